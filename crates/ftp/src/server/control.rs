//! One client: its control connection, its session, and the work that the session asks for.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};

use super::store::Store;
use super::transfer::{Ports, Prepared};
use super::{Event, Shared, What, guard, is_anonymous};
use crate::data::{Channel, keep_alive};
use crate::landing::blocking;
use crate::session::{Action, Answer, Failure, Session, Task, User};

/// A client that takes a reply no faster is gone.
const WRITE_PATIENCE: Duration = Duration::from_secs(30);

/// A TLS handshake that takes longer has failed.
pub const TLS_PATIENCE: Duration = Duration::from_secs(20);

/// What a client has, while it has a connection.
struct Client {
    shared: Arc<Shared>,
    /// This end of the control connection, and the other.
    local: SocketAddr,
    peer: SocketAddr,
    login: Option<Login>,
    ports: Option<Ports>,
    prepared: Option<Prepared>,
}

/// Somebody who has logged in.
struct Login {
    user: User,
    store: Arc<Store>,
    _place: Option<guard::Place>,
}

/// Work on a task. Told to stop, it soon ends, having kept what is to be kept.
struct Job {
    work: Pin<Box<dyn Future<Output = Done> + Send>>,
    stop: Stop,
}

/// How work is given up.
enum Stop {
    /// It moves data, and ends in good order once this is gone.
    Moving(oneshot::Sender<()>),
    /// It is on a disk, on a thread that nothing can stop: it is waited for, so that no client has
    /// more than one under way. What is long looks whether this is gone.
    OnDisk(Arc<()>),
    /// It is left alone: it waits for something, and what that costs goes on without it.
    Waiting,
}

/// What came of it.
struct Done {
    answer: Answer,
    login: Option<Login>,
    prepared: Option<Prepared>,
}

impl From<Answer> for Done {
    fn from(answer: Answer) -> Self {
        Self { answer, login: None, prepared: None }
    }
}

/// Serves a client to its end, under TLS from the first byte on or not; true when that cut a transfer.
pub async fn serve(
    shared: Arc<Shared>,
    stream: TcpStream,
    begins_secure: bool,
    ended: watch::Receiver<bool>,
) -> bool {
    // The mark of an urgent ABOR stays in its place among the bytes (RFC 959, section 4.1.3).
    let _ = SockRef::from(&stream).set_out_of_band_inline(true);
    let _ = stream.set_nodelay(true);
    keep_alive(&stream);
    let (Ok(local), Ok(peer)) = (stream.local_addr(), stream.peer_addr()) else { return false };
    let (local, peer) = (canonical(local), canonical(peer));
    let mut control: Channel = Box::new(stream);
    if begins_secure {
        match secure(&shared, control).await {
            Some(secured) => control = secured,
            None => return false,
        }
    }
    let settings = shared.config.settings.clone();
    let session = Session::new(settings, peer.ip(), begins_secure, net::clock::now());
    let client = Client { shared, local, peer, login: None, ports: None, prepared: None };
    let (reader, writer) = tokio::io::split(control);
    let mut talk = Talk { client, session, reader, writer, job: None };
    let cut = talk.run(ended).await.is_none();
    let job = talk.job.take();
    let moved = job.as_ref().is_some_and(|job| matches!(job.stop, Stop::Moving(_)));
    stop(job).await;
    cut && moved
}

/// In IPv4 where it is one of those.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(four) => SocketAddr::new(four.into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

async fn secure(shared: &Shared, channel: Channel) -> Option<Channel> {
    let acceptor = shared.acceptor.as_ref()?;
    match tokio::time::timeout(TLS_PATIENCE, acceptor.accept(channel)).await {
        Ok(Ok(secured)) => Some(Box::new(secured)),
        _ => None,
    }
}

/// Tells work to stop, and waits until it has.
async fn stop(job: Option<Job>) {
    let Some(Job { work, stop }) = job else { return };
    match stop {
        Stop::Moving(stop) => drop(stop),
        Stop::OnDisk(wanted) => drop(wanted),
        Stop::Waiting => return,
    }
    work.await;
}

struct Talk {
    client: Client,
    session: Session,
    reader: ReadHalf<Channel>,
    writer: WriteHalf<Channel>,
    job: Option<Job>,
}

impl Talk {
    /// Until the session ends; `None` when the connection broke or the server ends.
    async fn run(&mut self, mut ended: watch::Receiver<bool>) -> Option<()> {
        let mut buffer = vec![0; 4096];
        loop {
            while let Some(action) = self.session.poll() {
                match action {
                    Action::Send(bytes) => self.send(&bytes).await?,
                    Action::StartTls => self.start_tls().await?,
                    Action::Do(task) => self.job = Some(self.client.begin(task)),
                    Action::Abort => stop(self.job.take()).await,
                    Action::Close => {
                        let _ = tokio::time::timeout(WRITE_PATIENCE, self.writer.shutdown()).await;
                        return Some(());
                    }
                }
            }
            let now = net::clock::now();
            let room = self.session.room().min(buffer.len());
            let deadline = tokio::time::sleep(self.session.deadline().since(now));
            tokio::select! {
                // The end of the control connection goes before the end of the data: a client that
                // was killed ends both, and what it was sending is not whole.
                biased;
                read = self.reader.read(&mut buffer[..room]), if room > 0 => match read {
                    Ok(read @ 1..) => self.session.receive(&buffer[..read], net::clock::now()),
                    _ => return None,
                },
                done = work(&mut self.job) => {
                    self.job = None;
                    let answer = self.client.take(done);
                    self.session.answer(answer, net::clock::now());
                }
                _ = ended.changed() => {
                    self.session.shut_down();
                    let cut = self.job.is_some();
                    while let Some(action) = self.session.poll() {
                        if let Action::Send(bytes) = action {
                            self.send(&bytes).await?;
                        }
                    }
                    return (!cut).then_some(());
                }
                () = deadline => self.session.expire(net::clock::now()),
            }
        }
    }

    async fn send(&mut self, bytes: &[u8]) -> Option<()> {
        let write = async {
            self.writer.write_all(bytes).await?;
            self.writer.flush().await
        };
        tokio::time::timeout(WRITE_PATIENCE, write).await.ok()?.ok()
    }

    async fn start_tls(&mut self) -> Option<()> {
        // Placeholders, for the moment in which the connection changes.
        let (empty_reader, empty_writer) = tokio::io::split(nothing());
        let reader = std::mem::replace(&mut self.reader, empty_reader);
        let writer = std::mem::replace(&mut self.writer, empty_writer);
        let secured = secure(&self.client.shared, reader.unsplit(writer)).await?;
        (self.reader, self.writer) = tokio::io::split(secured);
        self.client.login = None;
        self.session.secured(net::clock::now());
        Some(())
    }
}

fn nothing() -> Channel {
    Box::new(tokio::io::duplex(1).0)
}

async fn work(job: &mut Option<Job>) -> Done {
    match job {
        Some(job) => job.work.as_mut().await,
        None => std::future::pending().await,
    }
}

impl Client {
    fn event(&self, what: What) -> Event {
        let user = self.login.as_ref().map(|login| login.user.name.clone());
        Event { peer: self.peer.ip(), user, what }
    }

    /// Takes over what a job brought.
    fn take(&mut self, done: Done) -> Answer {
        if let Some(login) = done.login {
            self.login = Some(login);
            (self.shared.config.observer)(&self.event(What::LoggedIn));
        }
        if let Some(prepared) = done.prepared {
            self.prepared = Some(prepared);
        }
        done.answer
    }

    /// Begins what the session asks for.
    fn begin(&mut self, task: Task) -> Job {
        match task {
            Task::LogIn { name, password } => {
                let work = log_in(self.shared.clone(), self.peer.ip(), name, password);
                Job { work: Box::pin(work), stop: Stop::Waiting }
            }
            Task::Listen { connections } => {
                let ports = &self.shared.config.passive_ports;
                let answer = match Ports::listen(self.local, ports.clone()) {
                    Ok(listening) => {
                        let ends = listening.ends(connections);
                        self.ports = Some(listening);
                        Answer::Listening(ends)
                    }
                    Err(failure) => Answer::Failed(failure),
                };
                Job { work: Box::pin(std::future::ready(answer.into())), stop: Stop::Waiting }
            }
            Task::Move(data) => {
                let (stop, stopped) = oneshot::channel();
                let event = self.event(What::LoggedIn);
                let work = super::transfer::run(
                    self.shared.clone(),
                    (self.local, self.peer),
                    event,
                    self.prepared.take(),
                    self.ports.take(),
                    data,
                    stopped,
                );
                let work = Box::pin(async move { work.await.into() });
                Job { work, stop: Stop::Moving(stop) }
            }
            task => self.begin_on_disk(task),
        }
    }

    fn begin_on_disk(&mut self, task: Task) -> Job {
        let Some(login) = &self.login else {
            let answer = Answer::Failed(Failure::Denied);
            return Job { work: Box::pin(std::future::ready(answer.into())), stop: Stop::Waiting };
        };
        let (store, may_write) = (login.store.clone(), login.user.may_write);
        let wanted = Arc::new(());
        let seen = Arc::downgrade(&wanted);
        let work = async move {
            let done = blocking(move || Ok(on_disk(&store, may_write, task, &seen))).await;
            done.unwrap_or_else(|_| Answer::Failed(Failure::Disk).into())
        };
        Job { work: Box::pin(work), stop: Stop::OnDisk(wanted) }
    }
}

/// Carries out what is about files. Blocks.
fn on_disk(store: &Store, may_write: bool, task: Task, wanted: &Weak<()>) -> Done {
    let done = |result: Result<(), Failure>| match result {
        Ok(()) => Answer::Done,
        Err(failure) => Answer::Failed(failure),
    };
    let changes = |change: &dyn Fn() -> Result<(), Failure>| {
        done(if may_write { change() } else { Err(Failure::Denied) })
    };
    let is_wanted = || wanted.strong_count() > 0;
    let answer = match &task {
        Task::Inspect(path) => store.inspect(path).map_or_else(Answer::Failed, Answer::Entry),
        Task::MakeDirectory(path) => changes(&|| store.make_directory(path)),
        Task::RemoveDirectory(path) => changes(&|| store.remove(path, true)),
        Task::Remove(path) => changes(&|| store.remove(path, false)),
        Task::Rename(from, to) => changes(&|| store.rename(from, to)),
        Task::SetModified(path, time) => changes(&|| store.set_modified(path, *time)),
        Task::SetMode(path, mode) => changes(&|| store.set_mode(path, *mode)),
        Task::Hash(path, algorithm, first, end) => store
            .hash(path, *algorithm, (*first, *end), is_wanted)
            .map_or_else(Answer::Failed, |(sum, end)| Answer::Hash(sum, end)),
        Task::Status(path) => super::transfer::status(store, path),
        Task::Open(open) => {
            return match Prepared::open(store, may_write, open, &is_wanted) {
                Ok((prepared, size, name)) => {
                    let answer = Answer::Opened(size, name);
                    Done { answer, login: None, prepared: Some(prepared) }
                }
                Err(failure) => Answer::Failed(failure).into(),
            };
        }
        Task::LogIn { .. } | Task::Listen { .. } | Task::Move(_) => Answer::Failed(Failure::Denied),
    };
    answer.into()
}

/// Logs somebody in. One password of each address is checked at a time, for which nobody waits longer than
/// for a name; who gives up before it is looked at has not guessed.
async fn log_in(shared: Arc<Shared>, peer: IpAddr, name: String, password: Vec<u8>) -> Done {
    let found = if is_anonymous(&name) {
        check(shared.clone(), peer, name, password).await
    } else {
        let patience = shared.config.settings.login;
        let Some(turn) = shared.guard.turn(peer, patience).await else {
            return Answer::Failed(Failure::Crowded).into();
        };
        // On its own: what it costs, and that it was wrong, counts though nobody waits for it any more.
        let checking = check(shared.clone(), peer, name, password);
        let checked = tokio::spawn(async move {
            let _turn = turn;
            checking.await
        });
        checked.await.ok().flatten()
    };
    let Some((user, root)) = found else {
        return Answer::Failed(Failure::BadLogin).into();
    };
    let place = match is_anonymous(&user.name) {
        true => None,
        false => match shared.guard.admit_user(&user.name) {
            Some(place) => Some(place),
            None => return Answer::Failed(Failure::TooMany).into(),
        },
    };
    match blocking(move || Store::open(&root)).await {
        Ok(store) => {
            let login = Login { user: user.clone(), store: Arc::new(store), _place: place };
            Done { answer: Answer::User(user), login: Some(login), prepared: None }
        }
        Err(_) => Answer::Failed(Failure::Denied).into(),
    }
}

/// Who that is and what is seen as /, if the password is right, after the time that wrong ones before
/// it cost.
async fn check(
    shared: Arc<Shared>,
    peer: IpAddr,
    name: String,
    password: Vec<u8>,
) -> Option<(User, PathBuf)> {
    tokio::time::sleep(shared.guard.delay(peer, net::clock::now())).await;
    let config = &shared.config;
    let found = if is_anonymous(&name) {
        let user = User { name: "anonymous".to_owned(), may_write: false };
        config.anonymous.clone().map(|root| (user, root))
    } else {
        // Closed never: the permit is there in its time.
        let _permit = shared.checks.acquire().await;
        let (checker, who) = (shared.clone(), name.clone());
        let checked = blocking(move || {
            let account = checker.config.users.verify(&who, &password);
            Ok(account.map(|account| (account.may_write, account.root.clone())))
        });
        let found = checked.await.ok().flatten();
        found.map(|(may_write, root)| {
            let may_write = may_write && !config.read_only;
            (User { name: name.clone(), may_write }, root)
        })
    };
    if found.is_none() {
        shared.guard.wrong(peer, net::clock::now());
        let what = What::WrongPassword(name);
        (config.observer)(&Event { peer, user: None, what });
    }
    found
}
