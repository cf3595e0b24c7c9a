//! Our FTP server and other people's clients: the real programs, plain and under TLS, over IPv4 and
//! IPv6. Each lists, gets, puts, resumes and renames as far as it can.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use support::{Home, bytes, finish, names, skip, start, text};

const PASSWORD: &str = "secret-word";
const SIZE: usize = 3_000_000;
/// What was there of a file before a resume.
const PART: usize = 1_234_567;

/// A server of the folder `root` for the user ann; killed when dropped.
struct FtpServer {
    child: Child,
    home: Home,
    /// As in a URL.
    host: &'static str,
    port: String,
    /// Of clients that begin with TLS.
    tls_port: Option<String>,
    /// What it says, line by line.
    said: Arc<Mutex<Vec<String>>>,
}

impl FtpServer {
    fn start(host: &'static str, options: &[&str]) -> Self {
        let home = Home::new();
        fs::write(home.folder("root").join("big"), bytes(SIZE)).unwrap();
        home.folder("root/dir/below");
        fs::write(home.path("root/dir/below/one"), "1").unwrap();
        let mut user = home.longhaul(&["ftp-user", "set", "ann", "--root", "root"]);
        let mut user = user.stdin(Stdio::piped()).spawn().unwrap();
        writeln!(user.stdin.take().unwrap(), "{PASSWORD}").unwrap();
        assert!(user.wait().unwrap().success());
        let address = format!("{host}:0");
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--root", "root", "--ftp", &address];
        let mut command = home.longhaul(&[&arguments, options].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut port = |before: &str| {
            let found = lines.find_map(|line| {
                let line = line.unwrap();
                Some(line.strip_prefix(before)?.rsplit(':').next()?.to_owned())
            });
            found.unwrap()
        };
        let plain = port("FTP on ");
        let tls_port = options.contains(&"--ftp-tls").then(|| port("FTP under TLS on "));
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = said.clone();
        std::thread::spawn(move || {
            lines.map_while(Result::ok).for_each(|line| heard.lock().unwrap().push(line));
        });
        Self { child, home, host, port: plain, tls_port, said }
    }

    /// How many connections a transfer of this file had, as the server says once it has ended. It is told of
    /// once.
    fn connections(&self, file: &str) -> usize {
        let file = format!("{file:?}: ");
        for _ in 0..500 {
            let mut said = self.said.lock().unwrap();
            if let Some(at) = said.iter().position(|line| line.contains(&file)) {
                let line = said.remove(at);
                // "2 of 4", or "4" where all carried something.
                let (_, over) = line.rsplit_once(" over ").unwrap();
                let over = over.split([',', ';']).next().unwrap();
                return over.rsplit(' ').next().unwrap().parse().unwrap();
            }
            drop(said);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("nothing was said of {file}");
    }

    /// Without brackets.
    fn bare_host(&self) -> &'static str {
        self.host.trim_matches(['[', ']'])
    }

    fn url(&self, path: &str) -> String {
        format!("ftp://ann:{PASSWORD}@{}:{}/{path}", self.host, self.port)
    }

    /// Runs a program in the home folder.
    fn run(&self, program: &str, arguments: &[&str], input: &str) -> String {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.home.path("")).stdin(Stdio::piped());
        command.env("HOME", self.home.path("")).env("LONGHAUL_HOME", self.home.path("home"));
        let mut child = start(&mut command);
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = finish(child);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {said}");
        said
    }

    fn is_there(&self, name: &str, expected: &[u8]) {
        let found =
            fs::read(self.home.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(found == expected, "{name}: {} bytes of {}", found.len(), expected.len());
    }

    /// The first part of a file that is to be put, as the server keeps it after a cut.
    fn half_put(&self, name: &str) {
        let part = self.home.path(&format!("root/.{name}.longhaul.part"));
        fs::write(part, &bytes(SIZE)[..PART]).unwrap();
    }

    /// The first part of a file that is to be got.
    fn half_got(&self, name: &str) {
        fs::write(self.home.path(name), &bytes(SIZE)[..PART]).unwrap();
    }
}

impl Drop for FtpServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a program can be run; says so loudly when it cannot.
fn has(test: &str, program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    let has = found.is_ok_and(|output| output.status.success());
    if !has {
        skip(test, &format!("{program} is not installed"));
    }
    has
}

/// IPv4 and IPv6.
const HOSTS: [&str; 2] = ["127.0.0.1", "[::1]"];

/// Each host in clear and under TLS.
fn ways() -> impl Iterator<Item = (FtpServer, bool)> {
    HOSTS.into_iter().flat_map(|host| {
        [false, true].map(|tls| {
            let options: &[&str] = if tls { &["--ftp-require-tls"] } else { &[] };
            (FtpServer::start(host, options), tls)
        })
    })
}

#[test]
fn curl() {
    if !has("curl", "curl") {
        return;
    }
    for (server, tls) in ways() {
        server.home.file("file", SIZE);
        let common: &[&str] = if tls { &["-sS", "-k", "--ssl-reqd"] } else { &["-sS"] };
        let curl = |arguments: &[&str]| server.run("curl", &[common, arguments].concat(), "");
        assert!(curl(&[&server.url("")]).contains("big"));
        assert!(curl(&["-l", &server.url("dir/")]).contains("below"));
        curl(&["-o", "got", &server.url("big")]);
        server.is_there("got", &bytes(SIZE));
        server.half_got("rest");
        curl(&["-C", "-", "-o", "rest", &server.url("big")]);
        server.is_there("rest", &bytes(SIZE));
        curl(&["-T", "file", "--ftp-create-dirs", &server.url("new/put")]);
        server.is_there("root/new/put", &bytes(SIZE));
        server.half_put("file");
        curl(&["-T", "file", "-C", "-", &server.url("file")]);
        server.is_there("root/file", &bytes(SIZE));
        curl(&["-Q", "RNFR file", "-Q", "RNTO renamed", &server.url("")]);
        server.is_there("root/renamed", &bytes(SIZE));
        // Debian 12's curl (7.88) cannot tell its own address in active mode under TLS.
        if !tls {
            curl(&["-P", "-", "-o", "active", &server.url("big")]);
            server.is_there("active", &bytes(SIZE));
        }
    }
}

/// `ftps://`, as others mean it.
#[test]
fn curl_begins_with_tls() {
    if !has("curl_begins_with_tls", "curl") {
        return;
    }
    for host in HOSTS {
        let server = FtpServer::start(host, &["--ftp-tls", &format!("{host}:0")]);
        server.home.file("file", SIZE);
        let port = server.tls_port.as_deref().unwrap();
        let url = |path: &str| format!("ftps://ann:{PASSWORD}@{host}:{port}/{path}");
        let curl = |arguments: &[&str]| {
            server.run("curl", &[&["-sS", "-k"], arguments].concat(), "");
        };
        curl(&["-o", "got", &url("big")]);
        server.is_there("got", &bytes(SIZE));
        curl(&["-T", "file", &url("put")]);
        server.is_there("root/put", &bytes(SIZE));
    }
}

#[test]
fn lftp() {
    if !has("lftp", "lftp") {
        return;
    }
    for (server, tls) in ways() {
        server.home.file("file", SIZE);
        server.home.file("rest", SIZE);
        server.home.folder("tree/deep");
        fs::write(server.home.path("tree/deep/leaf"), "leaf").unwrap();
        server.half_got("got-rest");
        server.half_put("rest");
        let script = format!(
            "set cmd:fail-exit yes; set net:max-retries 2; set net:timeout 20; set cmd:interactive no
             set ssl:verify-certificate no; set ftp:ssl-force {tls}; set ftp:ssl-allow {tls}
             set ftp:ssl-protect-data {tls}; set xfer:clobber yes
             open {}
             ls; cls -l dir
             get big -o got; get -c big -o got-rest
             pget -n 3 big -o pgot
             put file; put -c rest
             mirror dir mirrored; mirror -R tree planted
             mv file renamed; mkdir made; rmdir made; chmod 600 rest
             bye
            ",
            server.url("")
        );
        let said = server.run("lftp", &["-f", "/dev/stdin"], &script);
        assert!(said.contains("big"), "{said}");
        for name in ["got", "got-rest", "pgot", "root/rest", "root/renamed"] {
            server.is_there(name, &bytes(SIZE));
        }
        server.is_there("mirrored/below/one", b"1");
        server.is_there("root/planted/deep/leaf", b"leaf");
        assert!(!names(&server.home.path("root")).iter().any(|name| name.ends_with(".part")));
    }
}

/// Debian's `ftp`, which is tnftp.
#[test]
fn tnftp() {
    if !has("tnftp", "tnftp") {
        return;
    }
    for host in HOSTS {
        let server = FtpServer::start(host, &[]);
        server.home.file("file", SIZE);
        server.half_got("rest");
        server.half_put("half");
        server.home.file("half", SIZE);
        let script = format!(
            "user ann {PASSWORD}\nbinary\nprompt\nls\nget big got\nreget big rest\nput file\n\
             restart {PART}\nput half\nrename file renamed\ncd dir/below\nmget o*\npassive\ncd /\nget big active\nbye\n"
        );
        let said = server.run("tnftp", &["-n", "-v", server.bare_host(), &server.port], &script);
        assert!(said.contains("226"), "{said}");
        for name in ["got", "rest", "active", "root/renamed", "root/half"] {
            server.is_there(name, &bytes(SIZE));
        }
        server.is_there("one", b"1");
    }
}

#[test]
fn python_ftplib() {
    const SCRIPT: &str = r#"
import ftplib, io, sys
host, port, password, tls, part = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4] == "true", int(sys.argv[5])
ftp = ftplib.FTP_TLS() if tls else ftplib.FTP()
ftp.connect(host, port, timeout=30)
ftp.login("ann", password)
if tls: ftp.prot_p()
assert "big" in ftp.nlst()
assert dict(ftp.mlsd())["big"]["type"] == "file"
lines = []
ftp.dir(lines.append)
assert any("big" in line for line in lines)
data = open("file", "rb").read()
got = bytearray()
ftp.retrbinary("RETR big", got.extend)
assert got == data
got = bytearray(data[:part])
ftp.retrbinary("RETR big", got.extend, rest=part)
assert got == data
ftp.storbinary("STOR put", io.BytesIO(data))
ftp.storbinary("STOR half", io.BytesIO(data[part:]), rest=part)
ftp.rename("put", "renamed")
ftp.voidcmd("TYPE I")
assert ftp.size("renamed") == len(data)
ftp.mkd("made"); ftp.cwd("made"); assert ftp.pwd() == "/made"; ftp.cwd(".."); ftp.rmd("made")
ftp.storlines("STOR text", io.BytesIO(b"one\ntwo\n"))
text = []
ftp.retrlines("RETR text", text.append)
assert text == ["one", "two"]
ftp.set_pasv(False)
got = bytearray()
ftp.retrbinary("RETR big", got.extend)
assert got == data
ftp.delete("text")
ftp.quit()
"#;
    if !has("python_ftplib", "python3") {
        return;
    }
    for (server, tls) in ways() {
        server.home.file("file", SIZE);
        server.half_put("half");
        fs::write(server.home.path("script.py"), SCRIPT).unwrap();
        let (tls, part) = (tls.to_string(), PART.to_string());
        let arguments = ["script.py", server.bare_host(), &server.port, PASSWORD, &tls, &part];
        server.run("python3", &arguments, "");
        server.is_there("root/half", &bytes(SIZE));
        server.is_there("root/renamed", &bytes(SIZE));
    }
}

#[test]
fn rclone() {
    if !has("rclone", "rclone") {
        return;
    }
    for (server, tls) in ways() {
        server.home.folder("tree/deep");
        fs::write(server.home.path("tree/deep/leaf"), bytes(SIZE)).unwrap();
        let numbers: String = (0..SIZE / 8).map(|number| format!("{number:07}\n")).collect();
        fs::write(server.home.path("root/numbers"), &numbers).unwrap();
        let password = server.run("rclone", &["obscure", PASSWORD], "");
        let config = format!(
            "[far]\ntype = ftp\nhost = {}\nport = {}\nuser = ann\npass = {}\nexplicit_tls = {tls}\n\
             no_check_certificate = true\n",
            server.host,
            server.port,
            password.trim(),
        );
        fs::write(server.home.path("rclone.conf"), config).unwrap();
        let rclone = |arguments: &[&str]| {
            let common = ["--config", "rclone.conf", "--retries", "1", "--low-level-retries", "1"];
            server.run("rclone", &[&common, arguments].concat(), "")
        };
        assert!(rclone(&["lsf", "far:"]).contains("big"));
        rclone(&["copyto", "far:big", "got"]);
        // How rclone goes on with what was begun: from a byte on.
        let rest = rclone(&["cat", "--offset", &PART.to_string(), "far:numbers"]);
        assert!(rest == numbers[PART..], "{} bytes", rest.len());
        rclone(&["copy", "tree", "far:planted"]);
        rclone(&["check", "--download", "tree", "far:planted"]);
        rclone(&["moveto", "far:planted/deep/leaf", "far:planted/renamed"]);
        server.is_there("got", &bytes(SIZE));
        server.is_there("root/planted/renamed", &bytes(SIZE));
    }
}

#[test]
fn aria2() {
    if !has("aria2", "aria2c") {
        return;
    }
    for host in HOSTS {
        let server = FtpServer::start(host, &[]);
        let url = server.url("big");
        let common = ["-q", "--allow-overwrite=true", "-x4", "-s4", "-k1M"];
        server.run("aria2c", &[&common[..], &["-o", "got", &url]].concat(), "");
        server.is_there("got", &bytes(SIZE));
        server.half_got("rest");
        server.run("aria2c", &["-q", "-c", "-x1", "-o", "rest", &url], "");
        server.is_there("rest", &bytes(SIZE));
    }
}

#[test]
fn a_certificate_other_than_before_is_not_taken() {
    for (server, _) in ways().filter(|(_, tls)| *tls) {
        let url = format!("ftps://ann@{}:{}/big", server.host, server.port);
        let get = |options: &[&str]| {
            let mut command = server.home.longhaul(&[&["cp", &url, "got"], options].concat());
            let output = finish(start(command.env("LONGHAUL_FTP_PASSWORD", PASSWORD)));
            (output.status.code(), text(&output.stderr))
        };
        let (code, said) = get(&[]);
        assert!(code == Some(1) && said.contains("use --ftp-accept-new"), "{said}");
        let (code, said) = get(&["--ftp-accept-new"]);
        assert!(code == Some(0) && said.contains("is known from now on"), "{said}");
        // As if it had shown another one then.
        let file = server.home.path("home/ftp-known-certs");
        let known = fs::read_to_string(&file).unwrap();
        let (name, fingerprint) = known.trim_end().split_once(' ').unwrap();
        let other = format!("{name} {}\n", "0".repeat(fingerprint.len()));
        fs::write(&file, &other).unwrap();
        for options in [&[][..], &["--ftp-accept-new"]] {
            let (code, said) = get(options);
            assert!(code == Some(1) && said.contains("HAS CHANGED"), "{said}");
            assert!(said.contains(fingerprint) && said.contains("ftp-known-certs"), "{said}");
            assert_eq!(fs::read_to_string(&file).unwrap(), other);
        }
    }
}

/// Our own client against our own server.
#[test]
fn longhaul_itself_stripes_and_resumes() {
    for (server, tls) in ways() {
        server.home.file("file", SIZE);
        server.home.folder("tree/deep");
        fs::write(server.home.path("tree/deep/leaf"), bytes(100_000)).unwrap();
        let scheme = if tls { "ftps" } else { "ftp" };
        let url = |path: &str| format!("{scheme}://ann@{}:{}/{path}", server.host, server.port);
        let longhaul = |arguments: &[&str]| {
            let mut command = server.home.longhaul(arguments);
            let output = finish(start(command.env("LONGHAUL_FTP_PASSWORD", PASSWORD)));
            assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
            text(&output.stdout) + &text(&output.stderr)
        };
        let accept = ["--ftp-accept-new", "--ftp-streams", "5"];
        longhaul(&[&["cp", &url("big"), "got"], &accept[..]].concat());
        assert_eq!(server.connections("/big"), 5);
        let said = longhaul(&["cp", "--json", "file", "tree", &url("put/")]);
        assert!(said.contains("\"streams\":4"), "{said}");
        // It says what it may use; the server, what there was.
        assert_eq!(server.connections("/put/file"), 4);
        assert_eq!(server.connections("/put/tree/deep/leaf"), 1, "it is small");
        server.half_put("resumed");
        let before = fs::metadata(server.home.path("root/.resumed.longhaul.part")).unwrap();
        let inode = std::os::unix::fs::MetadataExt::ino(&before);
        longhaul(&["cp", "file", &url("resumed")]);
        server.is_there("root/resumed", &bytes(SIZE));
        assert_eq!(server.connections("/resumed"), 4);
        let after = fs::metadata(server.home.path("root/resumed")).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::ino(&after), inode, "the part was gone on with");
        fs::write(server.home.path("root/.other.longhaul.part"), b"something else").unwrap();
        longhaul(&["cp", "file", &url("other")]);
        server.is_there("root/other", &bytes(SIZE));
        longhaul(&["cp", &url("put"), "back"]);
        assert_eq!(server.connections("/put/file"), 4);
        longhaul(&["cp", "--ftp-active", &url("big"), "active"]);
        assert_eq!(server.connections("/big"), 4);
        longhaul(&["cp", "--ftp-active", "file", &url("striped")]);
        assert_eq!(server.connections("/striped"), 4);
        server.is_there("root/striped", &bytes(SIZE));
        for name in ["got", "active", "root/put/file", "back/file"] {
            server.is_there(name, &bytes(SIZE));
        }
        server.is_there("back/tree/deep/leaf", &bytes(100_000));
        let time = |name: &str| fs::metadata(server.home.path(name)).unwrap().modified().unwrap();
        let age = time("root/big").duration_since(time("got")).unwrap();
        assert!(age.as_secs() == 0, "the time is kept to the second");

        fs::write(server.home.path(".rest.longhaul.part"), &bytes(SIZE)[..PART]).unwrap();
        server.half_put("again");
        let script = "ls\ndir\nreget big rest\nmult 3\nstatus\nput file\nreput file again\nrename file renamed\n\
                      mkdir made\ncd made\npwd\ncd ..\nrmdir made\nsize big\nmodtime big\nhash big\nmult 1\n\
                      mget b*\npassive\nactive\nget big second\nmult auto\nmult many\n";
        fs::write(server.home.path("script"), script).unwrap();
        let mut command = server.home.longhaul(&["ftp", &url("")]);
        command.env("LONGHAUL_FTP_PASSWORD", PASSWORD);
        command.stdin(fs::File::open(server.home.path("script")).unwrap());
        let output = finish(start(&mut command));
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "the last command fails: {said}");
        for words in ["write auto", "3 connections a file", "1 connections a file"] {
            assert!(said.contains(words), "{words}: {said}");
        }
        for name in ["rest", "big", "second", "root/renamed", "root/again"] {
            server.is_there(name, &bytes(SIZE));
        }
    }
}

#[test]
fn commands_that_other_clients_have() {
    let server = FtpServer::start("127.0.0.1", &[]);
    for (name, content) in [("one", "1\n"), ("two", "2\n"), ("stale", "old")] {
        fs::write(server.home.path(name), content).unwrap();
    }
    let stale = fs::File::options().write(true).open(server.home.path("stale")).unwrap();
    stale.set_modified(std::time::UNIX_EPOCH).unwrap();
    fs::write(server.home.path("root/fresh"), "new").unwrap();
    let script = "put one both\nappend two both\nmput ?n? tw*\ncd dir\ncdup\nnewer fresh stale\n\
                  type ascii\ntype\nimage\nfeat\nsys\nremotehelp\n! echo 'a  shell'\nmget dir/below/o*\nmdelete tw*\nmdel tw*\n";
    fs::write(server.home.path("script"), script).unwrap();
    let host = format!("ann@127.0.0.1:{}", server.port);
    let mut command = server.home.longhaul(&["ftp", "--ftp-accept-new", &host]);
    command.env("LONGHAUL_FTP_PASSWORD", PASSWORD);
    command.stdin(fs::File::open(server.home.path("script")).unwrap());
    let output = finish(start(&mut command));
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "the last command fails: {errors}");
    assert!(errors.contains("no file there matches tw*"), "{errors}");
    for words in ["ascii\n", " REST STREAM", "UNIX", " MLSD", "a  shell\n"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    server.is_there("root/both", b"1\n2\n");
    server.is_there("stale", b"new");
    server.is_there("one", b"1");
    server.is_there("root/one", b"1\n");
    assert!(!server.home.path("root/two").exists());
}

/// As in a shell: `mput *` sends no keys, `mget *` replaces no `.profile`.
#[test]
fn patterns_leave_dot_files_alone() {
    let server = FtpServer::start("127.0.0.1", &[]);
    for name in ["out/.secret", "out/sent", "root/.profile", "root/got"] {
        server.home.folder(Path::new(name).parent().unwrap().to_str().unwrap());
        fs::write(server.home.path(name), name).unwrap();
    }
    server.home.folder("in");
    let host = format!("ann@127.0.0.1:{}", server.port);
    let longhaul = |script: &str| {
        fs::write(server.home.path("script"), script).unwrap();
        let mut command = server.home.longhaul(&["ftp", "--ftp-accept-new", &host]);
        command.env("LONGHAUL_FTP_PASSWORD", PASSWORD);
        let output =
            finish(start(command.stdin(fs::File::open(server.home.path("script")).unwrap())));
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    let found = |folder: &str| {
        let mut names = names(&server.home.path(folder));
        names.retain(|name| !name.contains('/'));
        names.sort();
        names
    };
    longhaul("lcd out\nmput *\nlcd ../in\nmget *\nmdelete *\n");
    assert_eq!(found("in"), ["big", "got", "sent"]);
    assert_eq!(found("root"), [".profile", "dir"]);
    longhaul("lcd in\nmget .p*\nmdelete .*\nlcd ../out\nmput .*\n");
    server.is_there("in/.profile", b"root/.profile");
    assert_eq!(found("root"), [".secret", "dir"]);
}

/// Ports for data, and how many sessions there may be.
#[test]
fn what_the_options_of_the_server_allow() {
    let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let port = (30_000..32_000).find(is_free).unwrap();
    let ports = format!("{port}-{port}");
    let limits = ["--ftp-sessions", "4", "--ftp-per-address", "3", "--ftp-per-user", "2"];
    let server = FtpServer::start("127.0.0.1", &[&["--ftp-passive", &ports], &limits[..]].concat());
    let connect = || {
        let port: u16 = server.port.parse().unwrap();
        BufReader::new(std::net::TcpStream::connect((server.host, port)).unwrap())
    };
    let ask = |control: &mut BufReader<std::net::TcpStream>, lines: &str| -> Vec<String> {
        control.get_mut().write_all(lines.as_bytes()).unwrap();
        let replies = lines.matches('\n').count().max(1);
        (0..replies).map(|_| control.lines().next().unwrap().unwrap()).collect()
    };
    let login = format!("USER ann\r\nPASS {PASSWORD}\r\n");
    let (mut one, mut two, mut three) = (connect(), connect(), connect());
    for control in [&mut one, &mut two] {
        assert!(ask(control, "")[0].starts_with("220 "));
        assert!(ask(control, &login)[1].starts_with("230 "));
    }
    let said = ask(&mut one, "EPSV\r\n");
    assert!(said[0].ends_with(&format!("(|||{port}|)")), "{said:?}");
    let said = ask(&mut two, "EPSV\r\n");
    assert!(said[0].starts_with("425 "), "that port is taken: {said:?}");
    assert!(ask(&mut three, "")[0].starts_with("220 "));
    assert!(ask(&mut connect(), "")[0].starts_with("421 "), "three from one address");
    assert!(ask(&mut three, &login)[1].starts_with("421 "), "two of one user");

    for bad in [["--ftp-passive", "7-"], ["--ftp-passive", "9-8"], ["--ftp-per-user", "0"]] {
        let serve = ["serve", "--root", "root", "--ftp", "127.0.0.1:0"];
        let said = server.home.fail(2, &[&serve[..], &bad].concat());
        assert!(said.contains(bad[0]), "{said}");
    }
}

/// Nothing failed: what a mirror leaves out on purpose is only told.
#[test]
fn a_link_to_a_directory_is_skipped() {
    let server = FtpServer::start("127.0.0.1", &[]);
    for (link, to) in [("circle", "."), ("sibling", "below"), ("leaf", "below/one")] {
        std::os::unix::fs::symlink(to, server.home.path("root/dir").join(link)).unwrap();
    }
    let url = format!("ftp://ann@127.0.0.1:{}/dir", server.port);
    let mut command = server.home.longhaul(&["cp", "--ftp-accept-new", &url, "back"]);
    let output = finish(start(command.env("LONGHAUL_FTP_PASSWORD", PASSWORD)));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for link in ["dir/circle", "dir/sibling"] {
        assert!(said.contains(&format!("skipped: {link:?}: a link to a directory")), "{said}");
    }
    server.is_there("back/below/one", b"1");
    server.is_there("back/leaf", b"1");
    assert!(!server.home.path("back/circle").exists());
}

#[test]
fn a_user_sees_the_root_alone_and_anonymous_users_only_read() {
    let server = FtpServer::start("127.0.0.1", &["--ftp-anonymous"]);
    fs::write(server.home.path("outside"), "outside").unwrap();
    for (link, to) in [("up", "../outside"), ("abs", "/etc/passwd"), ("in", "dir/below/one")] {
        std::os::unix::fs::symlink(to, server.home.path("root").join(link)).unwrap();
    }
    let reply = |commands: &str| {
        use std::io::Read;
        let address = (Path::new(server.host).to_str().unwrap(), server.port.parse().unwrap());
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(commands.as_bytes()).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said
    };
    let login = format!("USER ann\r\nPASS {PASSWORD}\r\nTYPE I\r\n");
    let said =
        reply(&format!("{login}SIZE up\r\nSIZE abs\r\nSIZE ../../outside\r\nSIZE in\r\nQUIT\r\n"));
    let tail: Vec<&str> = said.lines().rev().skip(1).take(4).map(|line| &line[..3]).collect();
    assert_eq!(tail, ["213", "550", "550", "550"], "{said}");
    let said = reply("USER ftp\r\nPASS x\r\nDELE big\r\nMKD x\r\nEPSV\r\nSTOR x\r\nQUIT\r\n");
    assert_eq!(said.matches("\n550 ").count(), 3, "{said}");
    let said = reply("USER ann\r\nPASS wrong\r\nUSER nobody\r\nPASS x\r\nQUIT\r\n");
    assert_eq!(said.matches("\n530 ").count(), 2, "{said}");
}

#[test]
fn what_a_killed_client_was_sending_is_kept_but_not_shown() {
    let server = FtpServer::start("127.0.0.1", &[]);
    let connect = |port: u16| std::net::TcpStream::connect((server.host, port)).unwrap();
    let mut control = BufReader::new(connect(server.port.parse().unwrap()));
    let mut ask = |line: &str| {
        control.get_mut().write_all(line.as_bytes()).unwrap();
        let mut reply = String::new();
        control.read_line(&mut reply).unwrap();
        reply
    };
    assert!(ask("").starts_with("220 "));
    assert!(ask("USER ann\r\n").starts_with("331 "));
    assert!(ask(&format!("PASS {PASSWORD}\r\n")).starts_with("230 "));
    assert!(ask("TYPE I\r\n").starts_with("200 "));
    let port = ask("EPSV\r\n");
    let port = port.split('|').nth(3).unwrap().parse().unwrap();
    let mut data = connect(port);
    assert!(ask("STOR cut\r\n").starts_with("150 "));
    // More than sockets hold: most of it has been read when this returns.
    let sent = bytes(30_000_000);
    data.write_all(&sent).unwrap();
    // As the kernel does for a process that was killed, and in the worse order.
    drop(data);
    drop(control);
    let part = server.home.path("root/.cut.longhaul.part");
    for _ in 0..200 {
        if part.exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let kept = fs::read(&part).unwrap();
    assert!(!kept.is_empty() && sent.starts_with(&kept), "{} bytes", kept.len());
    assert!(!server.home.path("root/cut").exists());
}
