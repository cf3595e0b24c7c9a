//! Our FTP client and other people's servers, which know nothing of ours: vsftpd, pure-ftpd, proftpd.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use support::{Home, bytes, finish, skip, start, text};

const PASSWORD: &str = "secret-word";
/// What `openssl passwd -5 -salt longhaul secret-word` says.
const CRYPT: &str = "$5$longhaul$ptA8jnxbmbYrwCq04BOwY.3lTPssuWOemERU6PMQ19/";
const SIZE: usize = 2_000_000;
const PART: usize = 765_432;

/// A server of the folder `root`; killed when dropped.
struct Foreign {
    child: Child,
    home: Home,
    user: &'static str,
    host: &'static str,
    port: u16,
}

/// IPv4 and IPv6, as in a configuration.
const HOSTS: [&str; 2] = ["127.0.0.1", "::1"];

impl Foreign {
    fn start(
        user: &'static str,
        host: &'static str,
        command: impl FnOnce(&Home, u16) -> Command,
    ) -> Self {
        let home = Home::new();
        // The servers give up root's rights and must still come here.
        fs::set_permissions(home.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        let root = home.folder("root");
        fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(root.join("big"), bytes(SIZE)).unwrap();
        fs::create_dir_all(root.join("dir/below")).unwrap();
        fs::write(root.join("dir/below/one two"), "1").unwrap();
        let (chain, key) = (home.path("cert.pem"), home.path("key.pem"));
        ftp::tls::write_self_signed(&chain, &key, vec!["localhost".into()]).unwrap();
        let both = fs::read_to_string(&chain).unwrap() + &fs::read_to_string(&key).unwrap();
        fs::write(home.path("both.pem"), both).unwrap();
        let port = std::net::TcpListener::bind((host, 0)).unwrap().local_addr().unwrap().port();
        let mut command = command(&home, port);
        // A group of its own: their sessions are processes too, and end with the test.
        command.process_group(0);
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let server = Self { child: child.unwrap(), home, user, host, port };
        for _ in 0..200 {
            if std::net::TcpStream::connect((host, port)).is_ok() {
                return server;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{command:?} does not listen");
    }

    fn longhaul(&self, arguments: &[&str], input: &str) -> String {
        fs::write(self.home.path("input"), input).unwrap();
        let mut command = self.home.longhaul(arguments);
        command.env("LONGHAUL_FTP_PASSWORD", PASSWORD);
        command.stdin(fs::File::open(self.home.path("input")).unwrap());
        let output = finish(start(&mut command));
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        said
    }

    fn is_there(&self, name: &str, expected: &[u8]) {
        let found =
            fs::read(self.home.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(found == expected, "{name}: {} bytes of {}", found.len(), expected.len());
    }

    /// Lists, gets, puts, resumes, renames, in clear and under TLS.
    fn serves(&self) {
        self.home.file("file", SIZE);
        for (scheme, extra) in [("ftp", "--ftp-no-tls"), ("ftps", "--ftp-accept-new")] {
            let host = if self.host.contains(':') { "[::1]" } else { self.host };
            let url = |path: &str| format!("{scheme}://{}{host}:{}/{path}", self.user, self.port);
            let folder = |name: &str| format!("{scheme}-{name}");
            self.longhaul(&["cp", extra, &url("dir"), &folder("tree")], "");
            self.is_there(&folder("tree/below/one two"), b"1");
            let part = self.home.path(&format!(".{}.longhaul.part", folder("got")));
            let got = folder("got");
            fs::write(&part, &bytes(SIZE)[..PART]).unwrap();
            let half = self.home.path(&format!("root/{got}-half"));
            fs::write(&half, &bytes(SIZE)[..PART]).unwrap();
            fs::set_permissions(&half, fs::Permissions::from_mode(0o666)).unwrap();
            let listed = self.longhaul(
                &["ftp", extra, &url("")],
                &format!(
                    "pwd\ndir\nreget big {got}\nput file {got}\nreput file {got}-half\n\
                     mput file\nrename {got} {got}-renamed\nget big {got}-active\n\
                     mkdir {got}-made\ncd {got}-made\npwd\ncd ..\nrmdir {got}-made\nmult 4\nactive\n\
                     get big {got}-active\n",
                ),
            );
            assert!(listed.contains("big") && listed.contains("knows nothing"), "{listed}");
            assert_eq!(listed.contains("under TLS"), scheme == "ftps", "{listed}");
            let theirs = ["renamed", "half"].map(|name| format!("root/{got}-{name}"));
            for name in theirs.iter().chain(&[got.clone(), format!("{got}-active")]) {
                self.is_there(name, &bytes(SIZE));
            }
            self.longhaul(&["cp", extra, &folder("tree"), &url("")], "");
            self.is_there(&format!("root/{}/below/one two", folder("tree")), b"1");
        }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Where a program is: in the system, or unpacked where `cargo xtask test` says.
fn find(test: &str, program: &str) -> Option<PathBuf> {
    if !rustix::process::geteuid().is_root() {
        skip(test, "the server needs root");
        return None;
    }
    let unpacked = std::env::var_os("LONGHAUL_TOOLS").map(PathBuf::from).unwrap_or_default();
    let folders =
        [Path::new("/"), &unpacked].map(|top| ["usr/sbin", "usr/bin"].map(|at| top.join(at)));
    let found = folders.concat().into_iter().map(|folder| folder.join(program));
    let found = found.into_iter().find(|path| path.is_file());
    if found.is_none() {
        skip(test, &format!("{program} is not installed"));
    }
    found
}

#[test]
fn vsftpd() {
    let Some(program) = find("vsftpd", "vsftpd") else { return };
    for host in HOSTS {
        let server = Foreign::start("", host, |home, port| vsftpd_of(&program, home, host, port));
        fs::write(server.home.path("root/dir/below/.hidden"), "2").unwrap();
        server.serves();
        // Its LIST does not show that by itself, and MLSD it does not know.
        server.is_there("ftp-tree/below/.hidden", b"2");
    }
}

fn vsftpd_of(program: &Path, home: &Home, host: &str, port: u16) -> Command {
    let at = |name: &str| home.path(name).display().to_string();
    home.folder("empty");
    let listen = match host.contains(':') {
        true => format!("listen=NO\nlisten_ipv6=YES\nlisten_address6={host}"),
        false => format!("listen=YES\nlisten_address={host}"),
    };
    let config = format!(
        "{listen}\nlisten_port={port}\nbackground=NO\n\
         anonymous_enable=YES\nno_anon_password=YES\nftp_username=nobody\nanon_root={root}\n\
         write_enable=YES\nanon_upload_enable=YES\nanon_mkdir_write_enable=YES\n\
         anon_other_write_enable=YES\nanon_umask=022\nanon_world_readable_only=NO\n\
         allow_writeable_chroot=YES\nrun_as_launching_user=YES\nseccomp_sandbox=NO\n\
         secure_chroot_dir={empty}\nconnect_from_port_20=NO\nssl_enable=YES\nallow_anon_ssl=YES\n\
         rsa_cert_file={cert}\nrsa_private_key_file={key}\nxferlog_enable=NO\n",
        root = at("root"),
        empty = at("empty"),
        cert = at("cert.pem"),
        key = at("key.pem"),
    );
    fs::write(home.path("vsftpd.conf"), config).unwrap();
    let mut command = Command::new(program);
    command.arg(home.path("vsftpd.conf"));
    command
}

#[test]
fn proftpd() {
    let Some(program) = find("proftpd", "proftpd") else { return };
    for host in HOSTS {
        Foreign::start("ann@", host, |home, port| proftpd_of(&program, home, host, port)).serves();
    }
}

fn proftpd_of(program: &Path, home: &Home, host: &str, port: u16) -> Command {
    let modules = program.parent().unwrap().parent().unwrap().join("lib/proftpd");
    let at = |name: &str| home.path(name).display().to_string();
    let passwd = format!("ann:{CRYPT}:0:0::{}:/bin/sh\n", at("root"));
    fs::write(home.path("passwd"), passwd).unwrap();
    fs::set_permissions(home.path("passwd"), fs::Permissions::from_mode(0o600)).unwrap();
    let config = format!(
        "ServerType standalone\nDefaultAddress {host}\nPort {port}\nUseIPv6 on\nUser root\n\
         Group root\nPidFile {pid}\nScoreboardFile none\nModulePath {modules}\nLoadModule mod_tls.c\n\
         AuthOrder mod_auth_file.c\nAuthUserFile {passwd}\nRequireValidShell off\nRootLogin on\n\
         DefaultRoot ~\nWtmpLog off\nDelayEngine off\nAllowOverwrite on\nAllowStoreRestart on\n\
         TLSEngine on\n\
         TLSECCertificateFile {cert}\nTLSECCertificateKeyFile {key}\nTLSRequired off\n\
         SystemLog none\nTransferLog none\n",
        pid = at("pid"),
        modules = modules.display(),
        passwd = at("passwd"),
        cert = at("cert.pem"),
        key = at("key.pem"),
    );
    fs::write(home.path("proftpd.conf"), config).unwrap();
    let mut command = Command::new(program);
    command.args(["-n", "-q", "-c"]).arg(home.path("proftpd.conf"));
    command
}

#[test]
fn pure_ftpd() {
    let Some(program) = find("pure_ftpd", "pure-ftpd") else { return };
    let Some(passwd) = find("pure_ftpd", "pure-pw") else { return };
    for host in HOSTS {
        let command = |home: &Home, port| pure_ftpd_of(&program, &passwd, home, host, port);
        Foreign::start("ann@", host, command).serves();
    }
}

fn pure_ftpd_of(program: &Path, passwd: &Path, home: &Home, host: &str, port: u16) -> Command {
    // Written by hand: what `pure-pw useradd` makes takes seconds of Argon2 at each login.
    let root = home.path("root").display().to_string();
    let user = format!("ann:{CRYPT}:65534:65534::{root}/./::::::::::::\n");
    fs::write(home.path("passwd"), user).unwrap();
    let mut make = Command::new(passwd);
    make.arg("mkdb").arg(home.path("pdb")).arg("-f").arg(home.path("passwd"));
    assert!(make.status().unwrap().success());
    let mut command = Command::new(program);
    command.args(["-E", "-H", "-u", "1", "-Y", "1", "-S", &format!("{host},{port}")]);
    command.arg("-l").arg(format!("puredb:{}", home.path("pdb").display()));
    command.arg("-2").arg(home.path("both.pem")).arg("-g").arg(home.path("pid"));
    command
}
