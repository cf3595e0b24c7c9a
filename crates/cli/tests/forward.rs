//! `longhaul forward`: real programs, and applications of every temper, through both carriers.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use support::{Home, Server, bytes, fingerprint, finish, plant, send, skip, start, text};

const CARRIERS: [&[&str]; 2] = [&["--transport", "udp"], &["--transport", "tcp", "--streams", "3"]];
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts a command that goes on, and gives its first line.
fn first_line(command: &mut Command) -> (Child, String) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line)
}

/// A running `longhaul forward`; killed when dropped.
struct Forward {
    child: Child,
    address: SocketAddr,
}

impl Forward {
    fn start(home: &Home, carrier: &[&str], remote: &str) -> Self {
        let arguments = [&["forward", "0", remote], carrier].concat();
        let mut command = home.longhaul(&arguments);
        let (child, line) = first_line(&mut command);
        let address = line.split(' ').nth(1).and_then(|address| address.parse().ok());
        Self { child, address: address.unwrap_or_else(|| panic!("not forwarding: {line}")) }
    }

    fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Does the same with every connection that comes.
fn application(serve: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let socket = socket.unwrap();
            thread::spawn(move || serve(socket));
        }
    });
    address
}

#[test]
fn half_close_and_reset_pass_on_many_connections_at_a_time() {
    let home = Home::new();
    // Answers after the end of the question, and gives up on some.
    let target = application(|mut socket| {
        let mut question = Vec::new();
        if socket.read_to_end(&mut question).is_ok() && !question.starts_with(b"reset") {
            question.reverse();
            socket.write_all(&question).unwrap();
        } else {
            let linger = socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO));
            linger.unwrap();
        }
    });
    let server = home.serve(&["--forward", &target.to_string()]);
    for carrier in CARRIERS {
        let forward = Forward::start(&home, carrier, &server.url(&target.to_string()));
        let mut expected = bytes(300_000);
        let sockets: Vec<_> = (0..20).map(|_| forward.connect()).collect();
        for mut socket in &sockets {
            socket.write_all(&expected).unwrap();
            socket.shutdown(Shutdown::Write).unwrap();
        }
        expected.reverse();
        for mut socket in sockets {
            let mut answer = Vec::new();
            socket.read_to_end(&mut answer).unwrap();
            assert!(answer == expected);
        }
        let mut socket = forward.connect();
        socket.write_all(b"reset me").unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        let error = socket.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
}

#[test]
fn hundreds_of_connections_at_a_time_are_all_served() {
    let home = Home::new();
    let target = application(|mut socket| {
        let mut byte = [0];
        while socket.read_exact(&mut byte).is_ok() {
            socket.write_all(&byte).unwrap();
        }
    });
    let server = home.serve(&["--forward", &target.to_string()]);
    for carrier in CARRIERS {
        let forward = Forward::start(&home, carrier, &server.url(&target.to_string()));
        let sockets: Vec<_> = (0..300).map(|_| forward.connect()).collect();
        // All are open at the end of this.
        for (mut socket, byte) in sockets.iter().zip((0..=u8::MAX).cycle()) {
            socket.write_all(&[byte]).unwrap();
            let mut answer = [!byte];
            socket.read_exact(&mut answer).unwrap();
            assert_eq!(answer, [byte]);
        }
    }
}

/// In each direction, whatever carries it.
#[test]
fn a_rate_bounds_all_connections_together() {
    const SIZE: usize = 500_000;
    let home = Home::new();
    let sends = application(|mut socket| socket.write_all(&[7; SIZE]).unwrap()).to_string();
    let reads = application(|mut socket| {
        let mut all = Vec::new();
        socket.read_to_end(&mut all).unwrap();
        socket.write_all(&(all.len() as u64).to_be_bytes()).unwrap();
    })
    .to_string();
    let server = home.serve(&["--forward", &sends, "--forward", &reads]);
    let bound = |carrier: &[&str], target: &str, sent: &'static [u8], answer: usize| {
        let carrier = [carrier, &["--rate-limit", "4mbit"]].concat();
        let forward = Forward::start(&home, &carrier, &server.url(target));
        let begin = net::clock::now();
        let exchange = || {
            let mut socket = forward.connect();
            socket.write_all(sent).unwrap();
            socket.shutdown(Shutdown::Write).unwrap();
            let mut all = Vec::new();
            socket.read_to_end(&mut all).unwrap();
            assert_eq!(all.len(), answer);
        };
        std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(exchange))));
        // Together they take two seconds at that rate.
        let took = net::clock::now().since(begin);
        assert!(took > Duration::from_millis(1500), "{carrier:?}, {target}: {took:?}");
    };
    let bound = &bound;
    let (sends, reads) = (&sends, &reads);
    std::thread::scope(|scope| {
        for carrier in CARRIERS {
            scope.spawn(move || bound(carrier, sends, &[], SIZE));
            scope.spawn(move || bound(carrier, reads, &[7; SIZE], 8));
        }
    });
}

#[test]
fn a_server_that_was_started_again_is_found_again() {
    let home = Home::new();
    let target = application(|mut socket| socket.write_all(b"here").unwrap()).to_string();
    for carrier in CARRIERS {
        let mut server = home.serve(&["--forward", &target]);
        let address = server.address().to_owned();
        let forward = Forward::start(&home, carrier, &server.url(&target));
        let answer = || {
            let mut answer = Vec::new();
            forward.connect().read_to_end(&mut answer).map(|_| answer)
        };
        assert_eq!(answer().unwrap(), b"here");
        server.signal(Signal::TERM);
        server.exit_code();
        let again = ["serve", "--root", "root", "--listen", &address, "--forward", &target];
        server = Server::start(&mut home.longhaul(&again));
        // Those that are asked for while the loss is noticed may be lost with it.
        let answers = (0..20).any(|_| answer().is_ok_and(|answer| answer == b"here"));
        assert!(answers, "{carrier:?}");
        drop(server);
    }
}

#[test]
fn connections_that_are_cut_do_not_look_complete() {
    let home = Home::new();
    let (tell, told) = std::sync::mpsc::channel();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.write_all(b"half").unwrap();
            let tell = tell.clone();
            thread::spawn(move || tell.send(socket.read_to_end(&mut Vec::new())));
        }
    });
    let is_reset = |ended: std::io::Result<usize>| {
        assert_eq!(ended.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    };
    let connected = |forward: &Forward| {
        let mut socket = forward.connect();
        let mut half = [0; 4];
        socket.read_exact(&mut half).unwrap();
        socket
    };
    let server = home.serve(&["--forward", &target.to_string()]);
    for carrier in CARRIERS {
        let forward = Forward::start(&home, carrier, &server.url(&target.to_string()));
        let mut socket = connected(&forward);
        send(&forward.child, Signal::TERM);
        is_reset(socket.read(&mut [0]));
        // By striped TCP the server waits for further connections first.
        is_reset(told.recv_timeout(PATIENCE).unwrap());
    }
    let forward = Forward::start(&home, CARRIERS[1], &server.url(&target.to_string()));
    let _socket = connected(&forward);
    drop(server);
    is_reset(told.recv_timeout(PATIENCE).unwrap());
}

#[test]
fn what_only_udp_can_do_goes_by_udp() {
    let home = Home::new();
    for option in [&["--cc", "cubic"][..], &["--background"], &["--feedback", "positive-ack"]] {
        let words = [&["forward", "0", "lh://far/a:80", "--transport", "tcp"], option].concat();
        assert!(home.fail(2, &words).contains("goes with --transport udp"), "{option:?}");
    }
    let said = home.fail(2, &["forward", "0", "lh://far/a:80", "--transport", "ssh"]);
    assert!(said.contains("ssh"), "{said}");
}

#[test]
fn what_is_refused_is_told() {
    let home = Home::new();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let server = home.serve(&["--forward", &closed]);
    for carrier in CARRIERS {
        for (target, words) in [
            (&closed[..], "refused the connection"),
            ("127.0.0.1:1", "does not forward to 127.0.0.1:1: it would have to run with --forward"),
        ] {
            let url = server.url(target);
            let arguments = [&["forward", "0", &url], carrier].concat();
            let mut command = home.longhaul(&arguments);
            let (mut child, line) = first_line(command.stderr(Stdio::piped()));
            let address = line.split(' ').nth(1).unwrap();
            let mut socket = TcpStream::connect(address).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            assert!(socket.read(&mut [0]).is_err(), "it is reset");
            child.kill().unwrap();
            let said = text(&child.wait_with_output().unwrap().stderr);
            assert!(said.contains(words), "{said}");
        }
    }
    let said = home.fail(1, &["forward", "0", "lh://127.0.0.1:1/127.0.0.1:80"]);
    assert!(said.contains("127.0.0.1:1"), "{said}");
    for wrong in [&["forward", "0", "far:80"][..], &["forward", "x", "lh://far/a:80"]] {
        home.fail(2, wrong);
    }
}

/// A web server of a folder: nginx, or Python's.
fn web_server(home: &Home) -> Option<(Child, u16)> {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let root = home.folder("web");
    let config = home.path("nginx.conf");
    let folder = home.path("");
    let folder = folder.display();
    let settings = format!(
        "daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
         events {{}} http {{ access_log off; client_body_temp_path {folder}/t1;
         proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3; uwsgi_temp_path {folder}/t4;
         scgi_temp_path {folder}/t5; server {{ listen 127.0.0.1:{port}; root {}; }} }}",
        root.display()
    );
    std::fs::write(&config, settings).unwrap();
    let mut nginx = Command::new("nginx");
    nginx.arg("-e").arg(home.path("nginx.log")).arg("-c").arg(config);
    let mut python = Command::new("python3");
    python
        .args(["-m", "http.server", "--bind", "127.0.0.1", &port.to_string()])
        .arg("-d")
        .arg(root);
    let commands = [&mut nginx, &mut python];
    commands.into_iter().find_map(|command| listening(command, port)).map(|child| (child, port))
}

/// Starts a server that is to listen at this port, and waits until it does.
fn listening(command: &mut Command, port: u16) -> Option<Child> {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
    for _ in 0..200 {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Some(child);
        }
        thread::sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

#[test]
fn curl_gets_from_a_web_server() {
    let home = Home::new();
    let has_curl = Command::new("curl").arg("--version").output().is_ok();
    let Some((mut web, port)) = web_server(&home).filter(|_| has_curl) else {
        return skip("curl through forward", "curl, or nginx and python3, are missing");
    };
    home.file("web/page", 3_000_000);
    let target = format!("127.0.0.1:{port}");
    let server = home.serve(&["--forward", "127.0.0.1:*"]);
    for carrier in CARRIERS {
        let forward = Forward::start(&home, carrier, &server.url(&target));
        let url = format!("http://{}/page", forward.address);
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--fail", "--parallel", "--max-time", "60"]);
        for copy in 0..8 {
            curl.arg(&url).arg("-o").arg(home.path(&format!("copy{copy}")));
        }
        let output = finish(start(&mut curl));
        assert!(output.status.success(), "{}", text(&output.stderr));
        for copy in 0..8 {
            assert!(std::fs::read(home.path(&format!("copy{copy}"))).unwrap() == bytes(3_000_000));
        }
    }
    web.kill().unwrap();
    web.wait().unwrap();
}

#[test]
fn rsync_copies_to_a_daemon_and_back() {
    let home = Home::new();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let there = home.folder("there");
    let settings = format!(
        "use chroot = no\nmunge symlinks = no\n[files]\npath = {}\nread only = no\nuid = root\ngid = root\n",
        there.display()
    );
    std::fs::write(home.path("rsyncd.conf"), settings).unwrap();
    let mut daemon = Command::new("rsync");
    daemon.args(["--daemon", "--no-detach", "--address=127.0.0.1", &format!("--port={port}")]);
    daemon.arg(format!("--config={}", home.path("rsyncd.conf").display()));
    let Some(mut daemon) = listening(&mut daemon, port) else {
        return skip("rsync through forward", "rsync is missing");
    };
    plant(&home.folder("tree"));
    // What is a second old at most counts for rsync as if it had the right time.
    let old = ["tree", "-exec", "touch", "-hd", "2001-02-03 04:05:06.7", "{}", "+"];
    assert!(Command::new("find").args(old).current_dir(home.path("")).status().unwrap().success());
    let target = format!("127.0.0.1:{port}");
    let server = home.serve(&["--forward", &target]);
    for (carrier, name) in CARRIERS.into_iter().zip(["udp", "tcp"]) {
        let forward = Forward::start(&home, carrier, &server.url(&target));
        let far = format!("rsync://{}/files/{name}/", forward.address);
        let back = format!("back-{name}/");
        for (from, to) in [("tree/", &far[..]), (&far, &back)] {
            let mut rsync = Command::new("rsync");
            rsync.args(["-a", "--timeout=60", from, to]).current_dir(home.path(""));
            let output = finish(start(&mut rsync));
            assert!(output.status.success(), "{}", text(&output.stderr));
        }
        let tree = fingerprint(&home.path("tree"));
        for copy in [there.join(name), home.path(&back)] {
            assert!(fingerprint(&copy) == tree, "{name}");
        }
    }
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}
