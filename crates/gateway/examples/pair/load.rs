//! Clients and servers that measure: bytes without end, readers that stall, and many connections.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

use crate::contender::Process;
use crate::world::{CLIENT, SERVER, SERVERS, World, at};

/// Ports of the server: it counts what it reads, never reads, sends back what it gets, or sends without
/// end.
const COUNTS: u16 = 9001;
/// Those where it counts, by the weights that our gateway gives them.
pub const WEIGHTS: [(u16, u32); 3] = [(COUNTS, 1), (9004, 2), (9005, 4)];
const STALLS: u16 = 9002;
pub const ECHOES: u16 = 9003;
const SENDS: u16 = 9006;
/// Where a process of its own sends back what it gets.
const ECHOES_APART: u16 = 9007;
/// What that says when it is ready.
const READY: &str = "ready";
/// The last of several connections starts so late.
pub const LATE: Duration = Duration::from_secs(2);
/// The most connections that are counted.
const MOST: usize = 4096;
/// Connections that wait at the server.
const BACKLOG: u32 = 4096;
/// How long one exchange may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// The server's end.
pub struct Servers {
    /// Bytes that have arrived, by the number that each connection begins with.
    counts: Arc<Vec<AtomicU64>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Servers {
    pub fn start(world: &World) -> Self {
        let counts = Arc::new((0..MOST).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
        let stop = Arc::new(AtomicBool::new(false));
        let (counted, stopped) = (counts.clone(), stop.clone());
        let thread = world.start(SERVER, move || {
            let counting = |port| serve(port, |stream| count(stream, counted.clone()));
            in_runtime(async {
                tokio::select! {
                    () = counting(WEIGHTS[0].0) => {}
                    () = counting(WEIGHTS[1].0) => {}
                    () = counting(WEIGHTS[2].0) => {}
                    () = serve(STALLS, stall) => {}
                    () = serve(ECHOES, echo) => {}
                    () = serve(SENDS, send) => {}
                    () = until(&stopped) => {}
                }
            });
        });
        Self { counts, stop, thread: Some(thread) }
    }

    /// Connections of the client to which the server sends, and whose bytes are counted here too.
    pub fn send(&self, world: &World, connections: usize) -> Senders {
        let counts = self.counts.clone();
        Senders::start_each(world, connections, move |number| receive(number, counts.clone()))
    }

    /// Bytes that have arrived by the first so many connections since they were last reset.
    pub fn counts(&self, connections: usize) -> Vec<u64> {
        self.counts[..connections].iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    pub fn reset(&self) {
        self.counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn in_runtime<T>(run: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(run)
}

async fn until(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(20)).await;
    }
}

/// Sends back what it gets until it is killed.
///
/// # Errors
/// Nobody reads what it says.
pub fn echo_all() -> io::Result<bool> {
    in_runtime(async {
        let listener = listen(ECHOES_APART);
        writeln!(io::stdout(), "{READY}")?;
        serve_at(listener, echo).await;
        Ok(true)
    })
}

/// A process for that: no process may open as many files as both ends of all connections are.
fn echo_apart(world: &World) -> io::Result<Process> {
    let program = std::env::current_exe()?;
    let command = format!("exec {} echo", program.display());
    let mut process = Process::start(world, SERVER, &command, &std::env::temp_dir())?;
    process.wait_for(READY, 1)?;
    Ok(process)
}

fn listen(port: u16) -> TcpListener {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(at(SERVERS[0], port)).unwrap();
    socket.listen(BACKLOG).unwrap()
}

async fn serve<F>(port: u16, each: impl Fn(TcpStream) -> F)
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    serve_at(listen(port), each).await;
}

async fn serve_at<F>(listener: TcpListener, each: impl Fn(TcpStream) -> F)
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => drop(tasks.spawn(each(stream))),
            Some(_) = tasks.join_next() => {}
        }
    }
}

async fn count(mut stream: TcpStream, counts: Arc<Vec<AtomicU64>>) -> io::Result<()> {
    let number = stream.read_u32_le().await? as usize;
    add_up(stream, counts.get(number).ok_or(io::ErrorKind::InvalidData)?).await
}

async fn add_up(mut stream: TcpStream, count: &AtomicU64) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            read => drop(count.fetch_add(read as u64, Ordering::Relaxed)),
        }
    }
}

async fn stall(_stream: TcpStream) -> io::Result<()> {
    std::future::pending().await
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    let byte = stream.read_u8().await?;
    stream.write_u8(byte).await?;
    stream.read(&mut [0]).await.map(drop)
}

/// Connections of the client that send as fast as they can, until this is dropped.
pub struct Senders {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Senders {
    /// So many, of which the last starts late.
    pub fn start(world: &World, connections: usize) -> Self {
        Self::start_each(world, connections, move |number| async move {
            if connections > 1 && number + 1 == connections {
                sleep(LATE).await;
            }
            send_to(COUNTS, number).await
        })
    }

    /// One to each port of [`WEIGHTS`].
    pub fn weighted(world: &World) -> Self {
        Self::start_each(world, WEIGHTS.len(), |number| send_to(WEIGHTS[number].0, number))
    }

    /// So many to readers that do not read.
    pub fn stalled(world: &World, connections: usize) -> Self {
        Self::start_each(world, connections, |number| send_to(STALLS, number))
    }

    fn start_each<F>(
        world: &World,
        connections: usize,
        each: impl Fn(usize) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = io::Result<()>> + Send + 'static,
    {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = world.start(CLIENT, move || {
            in_runtime(async {
                let mut tasks = JoinSet::new();
                (0..connections).for_each(|number| drop(tasks.spawn(each(number))));
                until(&stopped).await;
            });
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Senders {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A connection of the client that says its number.
async fn introduce(port: u16, number: usize) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(at(SERVERS[0], port)).await?;
    stream.write_u32_le(number as u32).await?;
    Ok(stream)
}

async fn send_to(port: u16, number: usize) -> io::Result<()> {
    let stream = introduce(port, number).await?;
    // What a thousand of them have in their buffers would take half a minute after their end.
    SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
    send(stream).await
}

async fn receive(number: usize, counts: Arc<Vec<AtomicU64>>) -> io::Result<()> {
    add_up(introduce(SENDS, number).await?, &counts[number]).await
}

async fn send(mut stream: TcpStream) -> io::Result<()> {
    let chunk = vec![0; 64 << 10];
    loop {
        stream.write_all(&chunk).await?;
    }
}

/// What came of many connections.
#[derive(Default)]
pub struct Many {
    /// Those that were made and carried a byte there and back, while all before stayed open.
    pub made: usize,
    /// Why others were not, and how many for each reason.
    pub failed: BTreeMap<String, usize>,
    /// The longest that one took for that.
    pub slowest: Duration,
}

/// Makes `per_second` connections a second for so many seconds and leaves them open, then as many
/// for `churn` seconds that end at once; `look` sees the former all open.
///
/// # Errors
/// The server does not run.
pub fn open_many<T: Send>(
    world: &World,
    per_second: usize,
    (seconds, churn): (usize, usize),
    look: impl FnOnce() -> T + Send,
) -> io::Result<([Many; 2], T)> {
    let _server = echo_apart(world)?;
    Ok(world.on(CLIENT, || {
        in_runtime(async {
            let mut open = Vec::new();
            let stay = make(per_second, seconds, |stream| open.push(stream)).await;
            let come_and_go = make(per_second, churn, drop).await;
            ([stay, come_and_go], look())
        })
    }))
}

/// Makes connections; what is done with one that was made comes when it has carried its byte.
async fn make(per_second: usize, seconds: usize, mut made: impl FnMut(TcpStream)) -> Many {
    let (mut tasks, mut many) = (JoinSet::new(), Many::default());
    let mut beats = interval(Duration::from_millis(10));
    let mut count = |joined| match joined {
        Ok(Ok(Ok((stream, took)))) => {
            many.made += 1;
            many.slowest = many.slowest.max(took);
            made(stream);
        }
        Ok(Ok(Err(error))) => {
            let error: io::Error = error;
            *many.failed.entry(error.kind().to_string()).or_default() += 1;
        }
        _ => *many.failed.entry("no answer".to_owned()).or_default() += 1,
    };
    for beat in 0..seconds * 100 {
        beats.tick().await;
        for _ in per_second * beat / 100..per_second * (beat + 1) / 100 {
            tasks.spawn(timeout(PATIENCE, exchange()));
        }
        while let Some(joined) = tasks.try_join_next() {
            count(joined);
        }
    }
    while let Some(joined) = tasks.join_next().await {
        count(joined);
    }
    many
}

async fn exchange() -> io::Result<(TcpStream, Duration)> {
    let start = net::clock::now();
    let mut stream = TcpStream::connect(at(SERVERS[0], ECHOES_APART)).await?;
    stream.write_u8(7).await?;
    stream.read_u8().await?;
    Ok((stream, net::clock::now().since(start)))
}
