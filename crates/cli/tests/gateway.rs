//! `longhaul gateway` between hosts that know nothing of it: what happens to their connections when a
//! gateway is killed, or has no file left for them; and what it writes of them.

mod support;
#[path = "../../gateway/examples/pair/world.rs"]
#[allow(dead_code, reason = "a part is for those who measure")]
mod world;

use std::fs::{self, File};
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

use rustix::io::ioctl_fionbio;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
use serde_json::Value;
use support::{Home, skip};
use world::{CLIENT, FAR, NEAR, PATIENCE, SERVER, SERVERS, World, at};

const TICK: Duration = Duration::from_millis(20);
/// The server's port, which sends back what it gets.
const ECHO: u16 = 8000;
const FAR_SETTINGS: &str = "[trunk]\nlisten = \"10.77.0.2:7273\"\nkey = \"key\"\n";
const NEAR_SETTINGS: &str =
    "[trunk]\npeer = \"10.77.0.2:7273\"\nkey = \"key\"\n[intercept]\ninterfaces = [\"lan\"]\n";

/// Hosts, a server that runs, and a folder with a key that gateways share.
struct Scene {
    world: World,
    home: Home,
}

impl Scene {
    fn new(name: &str) -> Option<Self> {
        let world = match world::missing() {
            None => World::new().ok_or("no right to make network namespaces".to_owned()),
            Some(missing) => Err(missing),
        };
        let world = world.inspect_err(|reason| skip(name, reason)).ok()?;
        let home = Home::new();
        home.succeed(&["keygen", "--shared", "key"]);
        let listener = world.on(SERVER, || TcpListener::bind(at(SERVERS[0], ECHO)).unwrap());
        world.start(SERVER, move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || {
                    let mut reader = stream.try_clone().unwrap();
                    let _ = std::io::copy(&mut reader, &mut &stream);
                    stream.shutdown(Shutdown::Write)
                });
            }
        });
        Some(Self { world, home })
    }

    fn gateway(&self, host: usize, settings: &str) -> Gateway {
        self.gateway_after(host, settings, || ())
    }

    /// One that may not administer the network.
    fn rootless(&self, host: usize, settings: &str) -> Gateway {
        self.gateway_after(host, settings, || {
            remove_capability_from_bounding_set(CapabilitySet::NET_ADMIN).unwrap();
        })
    }

    /// One that is started by a thread that does this first.
    fn gateway_after(&self, host: usize, settings: &str, first: fn()) -> Gateway {
        self.gateway_by(host, settings, first, |_| ())
    }

    /// One whose command is changed so before.
    fn gateway_by(
        &self,
        host: usize,
        settings: &str,
        first: fn(),
        change: impl FnOnce(&mut Command),
    ) -> Gateway {
        let log = tempfile::NamedTempFile::new().unwrap().into_temp_path().keep().unwrap();
        let child = self.start(host, settings, first, change, File::create(&log).unwrap());
        Gateway { child, log }
    }

    /// Starts one that writes there.
    fn start(
        &self,
        host: usize,
        settings: &str,
        first: fn(),
        change: impl FnOnce(&mut Command),
        output: impl Into<Stdio>,
    ) -> Child {
        let file = self.home.path(&format!("{host}.toml"));
        fs::write(&file, settings).unwrap();
        let mut command =
            self.home.longhaul(&["gateway", "run", "--json", "-c", file.to_str().unwrap()]);
        change(&mut command);
        command.stdout(output);
        self.world.on(host, || (first(), command.spawn().unwrap()).1)
    }

    /// Both, with a trunk.
    fn pair(&self) -> [Gateway; 2] {
        let far = self.gateway(FAR, FAR_SETTINGS);
        let near = self.gateway(NEAR, NEAR_SETTINGS);
        near.wait_for_trunks(1);
        [near, far]
    }

    fn connect(&self) -> TcpStream {
        self.world.on(CLIENT, || {
            let stream = TcpStream::connect_timeout(&at(SERVERS[0], ECHO), PATIENCE).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream
        })
    }

    /// A new connection that carries some bytes there and back; gives the client's address.
    fn exchange(&self) -> SocketAddr {
        let stream = self.connect();
        let own = stream.local_addr().unwrap();
        echo(stream);
        own
    }
}

fn echo(mut stream: TcpStream) {
    stream.write_all(b"hello").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"hello");
}

/// A gateway that runs; killed when dropped.
struct Gateway {
    child: Child,
    log: PathBuf,
}

impl Gateway {
    /// What it has written so far.
    fn events(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.log).unwrap();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn wait<T>(&self, what: &str, wanted: impl Fn(&[Value]) -> Option<T>) -> T {
        for _ in 0..PATIENCE.as_millis() / TICK.as_millis() {
            if let Some(found) = wanted(&self.events()) {
                return found;
            }
            sleep(TICK);
        }
        panic!("{what} never came: {:#?}", self.events());
    }

    /// Waits until it has had so many trunks.
    fn wait_for_trunks(&self, count: usize) {
        self.wait("a trunk", |events| {
            let up = events.iter().filter(|it| it["event"] == "trunk" && it["state"] == "up");
            (up.count() >= count).then_some(())
        });
    }

    /// Waits for the record of a client's connection.
    fn record(&self, client: SocketAddr) -> Value {
        let client = client.to_string();
        self.wait("a record", |events| {
            events.iter().find(|it| it["client"] == client.as_str()).cloned()
        })
    }

    fn count(&self, event: &str) -> usize {
        self.events().iter().filter(|it| it["event"] == event).count()
    }

    /// As by `kill -9`.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// As by `systemctl stop`; gives its exit code.
    fn end(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.child.wait().unwrap().code()
    }

    /// Lets it open files below this number, or as many as it may.
    fn limit_files(&self, limit: Option<u64>) {
        let pid = Pid::from_child(&self.child);
        let maximum = getrlimit(Resource::Nofile).maximum;
        let limit = Rlimit { current: limit.or(maximum), maximum };
        prlimit(Some(pid), Resource::Nofile, limit).unwrap();
    }

    /// The number of the file that it would open next.
    fn next_file(&self) -> u64 {
        let open = |number| PathBuf::from(format!("/proc/{}/fd/{number}", self.child.id()));
        (0..).find(|&number| fs::symlink_metadata(open(number)).is_err()).unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.log);
    }
}

#[test]
fn who_loses_a_gateway_goes_direct_until_it_is_back() {
    let Some(scene) = Scene::new("who_loses_a_gateway_goes_direct_until_it_is_back") else {
        return;
    };
    let [near, far] = scene.pair();
    let own = scene.exchange();
    for (gateway, side) in [(&near, "near"), (&far, "far")] {
        let record = gateway.record(own);
        assert_eq!((&record["side"], &record["outcome"]), (&side.into(), &"carried".into()));
        assert_eq!((&record["bytes_there"], &record["bytes_back"]), (&5.into(), &5.into()));
        assert!(record["seconds"].as_f64() > Some(0.0) && record["time"].as_f64() > Some(1e9));
    }
    far.kill();
    // It cannot be known yet that nobody answers: the SYN waits until it is.
    let own = scene.exchange();
    assert_eq!(near.record(own)["outcome"], "bypassed_no_trunk");
    // One that is not answered is repeated by the client, and told of once.
    let silent = at(SERVERS[0], ECHO + 1);
    let drop = "{ type filter hook input priority 0; tcp dport 8001 drop; }";
    scene.world.nft(SERVER, &format!("add table inet cut; add chain inet cut in {drop}"));
    let patience = Duration::from_millis(1500);
    let failed = scene.world.on(CLIENT, || TcpStream::connect_timeout(&silent, patience).is_err());
    assert!(failed, "a server answered that cannot be heard");
    let silent = silent.to_string();
    assert_eq!(near.events().iter().filter(|it| it["server"] == silent.as_str()).count(), 1);

    let far = scene.gateway(FAR, FAR_SETTINGS);
    near.wait_for_trunks(2);
    assert_eq!(far.record(scene.exchange())["outcome"], "carried");

    near.kill();
    scene.exchange();
    let rules = |scene: &Scene| {
        let mut nft = Command::new("nft");
        scene.world.on(NEAR, || nft.args(["list", "table", "inet", "longhaul"]).output().unwrap())
    };
    assert!(rules(&scene).status.success(), "its rules went with it, so nothing was tried");
    let near = scene.gateway(NEAR, NEAR_SETTINGS);
    near.wait_for_trunks(1);
    assert_eq!(near.record(scene.exchange())["outcome"], "carried");
}

#[test]
fn a_gateway_goes_on_when_nobody_reads_what_it_says() {
    let Some(scene) = Scene::new("a_gateway_goes_on_when_nobody_reads_what_it_says") else {
        return;
    };
    let (_nobody, mut full) = std::io::pipe().unwrap();
    ioctl_fionbio(&full, true).unwrap();
    while full.write(&[b' '; 4096]).is_ok() {}
    ioctl_fionbio(&full, false).unwrap();
    let child = scene.start(FAR, FAR_SETTINGS, || (), |_| (), full);
    let far = Gateway { child, log: PathBuf::new() };
    let near = scene.gateway(NEAR, NEAR_SETTINGS);
    near.wait_for_trunks(1);
    for _ in 0..3 {
        assert_eq!(near.record(scene.exchange())["outcome"], "carried");
    }
    assert_eq!(far.end(), Some(128 + 15));
}

#[test]
fn without_root_a_port_leads_to_its_server() {
    let Some(scene) = Scene::new("without_root_a_port_leads_to_its_server") else { return };
    let far = scene.rootless(FAR, FAR_SETTINGS);
    let near = "[trunk]\npeer = \"10.77.0.2:7273\"\nkey = \"key\"\n\
                [[proxy.forward]]\nlisten = \"10.1.0.1:8080\"\nto = \"10.2.0.2:8000\"\n";
    let near = scene.rootless(NEAR, near);
    near.wait_for_trunks(1);
    assert_eq!((near.count("rootless"), far.count("rootless")), (1, 1));
    let exchange = || {
        let stream = scene.world.on(CLIENT, || TcpStream::connect(at("10.1.0.1", 8080)).unwrap());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let own = stream.local_addr().unwrap();
        echo(stream);
        own
    };
    let own = exchange();
    assert_eq!(near.record(own)["outcome"], "carried");
    assert_eq!(far.record(own)["server"], "10.2.0.2:8000");
    far.kill();
    let own = exchange();
    assert_eq!(near.record(own)["outcome"], "bypassed_no_trunk");
}

#[test]
fn of_two_far_gateways_the_other_serves_when_one_is_killed() {
    let Some(scene) = Scene::new("of_two_far_gateways_the_other_serves_when_one_is_killed") else {
        return;
    };
    let first = scene.gateway(FAR, FAR_SETTINGS);
    let second = scene.gateway(
        SERVER,
        "[trunk]\nlisten = \"10.2.0.2:7280\"\nkey = \"key\"\n\
         [deliver]\nto = [\"10.2.0.0/24\"]\nfrom_client = false\n",
    );
    let standby = NEAR_SETTINGS.replace("key =", "standby = [\"10.2.0.2:7280\"]\nkey =");
    let near = scene.gateway(NEAR, &standby);
    near.wait_for_trunks(2);
    assert_eq!(first.record(scene.exchange())["outcome"], "carried");
    first.kill();
    assert_eq!(second.record(scene.exchange())["outcome"], "carried");
}

#[test]
fn without_a_file_for_another_connection_new_ones_go_direct_and_others_wait() {
    let name = "without_a_file_for_another_connection_new_ones_go_direct_and_others_wait";
    let Some(scene) = Scene::new(name) else { return };
    let [near, _far] = scene.pair();
    near.limit_files(Some(near.next_file() + 2));
    let mut waiting = Vec::new();
    while near.count("full") == 0 {
        assert!(waiting.len() < 100, "there are always more files");
        waiting.push(scene.connect());
        sleep(2 * TICK);
    }
    let own = scene.exchange();
    assert_eq!(near.record(own)["outcome"], "bypassed_no_room");
    // Several times it has tried again since.
    sleep(20 * TICK);
    assert_eq!(near.count("full"), 1, "it is told again and again: {:#?}", near.events());
    near.limit_files(None);
    waiting.into_iter().for_each(echo);
    // It may rest still.
    let carried = (0..100).any(|_| {
        sleep(TICK);
        near.record(scene.exchange())["outcome"] == "carried"
    });
    assert!(carried, "it never took heart again");
}

/// What systemd does for a service that is started again: it keeps the sockets that the service hands
/// it, and gives them to the next.
struct Keeper {
    notified: UnixDatagram,
    path: PathBuf,
}

impl Keeper {
    fn new(scene: &Scene) -> Self {
        let path = scene.home.path("notify");
        let notified = UnixDatagram::bind(&path).unwrap();
        notified.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { notified, path }
    }

    /// The next socket that a service hands over.
    fn kept(&self) -> OwnedFd {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut text = [0; 256];
        let mut parts = [IoSliceMut::new(&mut text)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let length = recvmsg(&self.notified, &mut parts, &mut control, flags).unwrap().bytes;
        assert_eq!(&text[..length], b"FDSTORE=1\nFDNAME=10.1.0.1-8080\n");
        let mut files = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        files.next().unwrap().next().unwrap()
    }
}

#[test]
fn nobody_is_refused_while_a_gateway_is_started_again() {
    let Some(scene) = Scene::new("nobody_is_refused_while_a_gateway_is_started_again") else {
        return;
    };
    let keeper = Keeper::new(&scene);
    let settings = format!(
        "{NEAR_SETTINGS}[[proxy.forward]]\nlisten = \"10.1.0.1:8080\"\nto = \"10.2.0.2:8000\"\n"
    );
    let start = |kept: Option<OwnedFd>| {
        scene.gateway_by(
            NEAR,
            &settings,
            || (),
            |command| {
                command.env("NOTIFY_SOCKET", &keeper.path);
                let Some(kept) = kept else { return };
                // The number of the process is known only once it runs.
                let script = "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\" 3<&0 </dev/null";
                let mut shell = Command::new("sh");
                shell
                    .args(["-c", script, "sh"])
                    .arg(command.get_program())
                    .args(command.get_args());
                let set = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
                shell.envs(set).current_dir(command.get_current_dir().unwrap()).stdin(kept);
                *command = shell;
            },
        )
    };
    let _far = scene.gateway(FAR, FAR_SETTINGS);
    let near = start(None);
    let kept = keeper.kept();
    near.wait_for_trunks(1);

    let doors = [at("10.1.0.1", 8080), at(SERVERS[0], ECHO)];
    let (world, done) = (&scene.world, AtomicBool::new(false));
    let connect = |door| TcpStream::connect_timeout(&door, PATIENCE).map(drop);
    thread::scope(|scope| {
        let clients = scope.spawn(|| {
            let mut clients = Vec::new();
            while !done.load(Ordering::Relaxed) {
                for door in doors {
                    clients.push(scope.spawn(move || world.on(CLIENT, || connect(door))));
                }
                sleep(TICK / 2);
            }
            let made = clients.len();
            for client in clients {
                client.join().unwrap().unwrap();
            }
            made
        });
        sleep(10 * TICK);
        near.end();
        let between = scene.world.on(CLIENT, || TcpStream::connect(doors[0]).unwrap());
        between.set_read_timeout(Some(PATIENCE)).unwrap();
        // Whoever comes now goes direct, or waits for the next one.
        sleep(10 * TICK);
        let near = start(Some(kept));
        echo(between);
        near.wait_for_trunks(1);
        assert_eq!(near.record(scene.exchange())["outcome"], "carried");
        done.store(true, Ordering::Relaxed);
        assert!(clients.join().unwrap() > 40);
    });
}
