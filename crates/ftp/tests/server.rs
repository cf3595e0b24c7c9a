//! The server over real sockets, for clients that give up in the middle, and for what they leave behind.

mod support;

use std::fs;
use std::path::Path;
use std::time::Duration;

use ftp::client::{Client, Options, Security};
use ftp::data::Moved;
use ftp::tls::Trust;
use support::{PASSWORD, Served};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn a_stale_part_does_not_get_into_the_file_that_is_there() {
    let server = Served::new().await;
    let (name, part) = (server.file("name"), server.file(".name.longhaul.part"));
    let mut talk = server.ann().await;
    for (command, expected) in
        [("APPE name", &b"0123456789new"[..]), ("REST 4\r\nSTOR name", b"0123new")]
    {
        fs::write(&name, b"0123456789").unwrap();
        fs::write(&part, [b'x'; 5000]).unwrap();
        assert_eq!(talk.ask("SIZE name").await.1, b"213 10");
        let mut command = command;
        if let Some((rest, stor)) = command.split_once("\r\n") {
            assert_eq!(talk.ask(rest).await.0, 350);
            command = stor;
        }
        assert_eq!(talk.put(command, b"new").await, 226);
        assert_eq!(fs::read(&name).unwrap(), expected);
        assert!(!part.exists());
    }
    fs::write(&part, [b'x'; 5000]).unwrap();
    talk.ask("REST 100").await;
    assert_eq!(talk.put("STOR name", b"new").await, 554, "the file has not so many bytes");
    assert_eq!(fs::read(&name).unwrap(), b"0123new");
    fs::remove_file(&name).unwrap();
    talk.ask("REST 2").await;
    assert_eq!(talk.put("STOR name", b"new").await, 226);
    assert_eq!(fs::read(&name).unwrap(), b"xxnew");
}

#[tokio::test]
async fn kept_parts_can_be_removed_and_have_no_name_yet() {
    let server = Served::new().await;
    let part = |folder: &str| server.file(folder).join(".name.longhaul.part");
    for folder in ["", "empty", "full"] {
        fs::create_dir_all(server.file(folder)).unwrap();
        fs::write(part(folder), b"some").unwrap();
    }
    fs::write(server.file("full/other"), b"other").unwrap();
    let mut talk = server.ann().await;
    assert_eq!(talk.ask("SIZE name").await.1, b"213 4");
    assert_eq!(talk.ask("RNFR name").await.0, 550);
    assert_eq!(talk.ask("DELE name").await.0, 250);
    assert_eq!(talk.ask("DELE name").await.0, 550);
    assert!(!part("").exists());
    assert_eq!(talk.ask("RMD empty").await.0, 250);
    assert_eq!(talk.ask("RMD full").await.0, 550);
    assert!(part("full").exists() && !server.file("empty").exists());
    fs::write(server.file("full/name"), b"whole").unwrap();
    assert_eq!(talk.ask("DELE full/name").await.0, 250);
    assert_eq!(talk.ask("SIZE full/name").await.0, 550, "its part has not taken its place");
}

#[tokio::test]
async fn a_renamed_file_leaves_no_part_to_begin_another_with() {
    let server = Served::new().await;
    fs::write(server.file("old"), b"whole").unwrap();
    for part in [".old.longhaul.part", ".new.longhaul.part"] {
        fs::write(server.file(part), b"stale").unwrap();
    }
    let mut talk = server.ann().await;
    assert_eq!(talk.ask("RNFR old").await.0, 350);
    assert_eq!(talk.ask("RNTO new").await.0, 250);
    assert_eq!(talk.ask("SIZE old").await.0, 550);
    assert_eq!(talk.ask("RNFR new").await.0, 350);
    assert_eq!(talk.ask("RNTO other").await.0, 250);
    assert_eq!(talk.ask("SIZE new").await.0, 550);
    assert_eq!(talk.put("APPE new", b"new").await, 226);
    assert_eq!(fs::read(server.file("new")).unwrap(), b"new");
}

#[tokio::test]
async fn who_gives_up_a_login_has_guessed_all_the_same() {
    let server = Served::new().await;
    let mut answered = 0;
    for _ in 0..200 {
        let mut talk = server.client().await;
        talk.ask("USER ann").await;
        talk.say("PASS wrong\r\n").await;
        // Begun by then, or not yet; the answer takes longer.
        tokio::time::sleep(Duration::from_millis(5)).await;
        match talk.ask("ABOR").await.0 {
            426 => assert_eq!(talk.reply().await.0, 226),
            _ => answered += 1,
        }
        drop(talk);
        for _ in 0..20 {
            if server.wrong_passwords() > answered {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    panic!("what was given up was never counted, {answered} were answered");
}

#[tokio::test]
async fn no_session_has_more_logins_by_giving_them_up() {
    let server = Served::new().await;
    let mut talk = server.client().await;
    talk.say("USER ann\r\nPASS a\r\nABOR\r\nUSER ann\r\nPASS b\r\nABOR\r\nUSER ann\r\nPASS c\r\nABOR\r\n")
        .await;
    let mut codes = Vec::new();
    for _ in 0..9 {
        codes.push(talk.reply().await.0);
    }
    assert_eq!(codes, [331, 426, 226, 331, 426, 226, 331, 426, 421]);
}

/// Whether this process has the file open.
fn is_open(path: &Path) -> bool {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().flatten();
    descriptors.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|open| open == path)
}

#[tokio::test]
async fn a_checksum_that_nobody_wants_is_not_computed() {
    let server = Served::new().await;
    let big = server.file("big");
    fs::File::create(&big).unwrap().set_len(1 << 38).unwrap();
    let big = big.canonicalize().unwrap();
    let mut talk = server.ann().await;
    talk.say("XSHA256 big\r\n").await;
    while !is_open(&big) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(talk.ask("ABOR").await.0, 426);
    assert_eq!(talk.reply().await.0, 226);
    assert!(!is_open(&big), "it was waited for");
    talk.say("XSHA256 big\r\n").await;
    while !is_open(&big) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(talk);
    while is_open(&big) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn mlsd_is_for_directories_and_names_are_told_in_their_bytes() {
    use std::os::unix::ffi::OsStrExt;

    let server = Served::new().await;
    fs::write(server.file("file"), b"").unwrap();
    let odd = std::ffi::OsStr::from_bytes(b"caf\xe9\xff");
    fs::create_dir(server.folder.path().join(odd)).unwrap();
    let mut talk = server.ann().await;
    talk.ask("EPSV").await;
    assert_eq!(talk.ask("MLSD file").await.0, 501);
    assert_eq!(talk.ask("MLSD f*").await.0, 550);
    talk.0.get_mut().write_all(b"CWD caf\xe9\xff\xff\r\n").await.unwrap();
    assert_eq!(talk.reply().await.0, 250);
    assert_eq!(talk.ask("PWD").await.1, b"257 \"/caf\xe9\xff\xff\" is the current directory");

    let options = Options { security: Security::Clear, ..Options::default() };
    let mut client = Client::connect("localhost", server.address, options).await.unwrap();
    client.log_in("ann", PASSWORD).await.unwrap();
    client.done_with("CWD", b"caf\xe9\xff").await.unwrap();
    assert_eq!(client.here().await.unwrap(), b"/caf\xe9\xff");
}

#[tokio::test]
async fn what_two_upload_at_a_time_is_not_lost() {
    let server = Served::new().await;
    fs::write(server.file("log"), b"old ").unwrap();
    for command in ["STOU name", "APPE log", "APPE new"] {
        let (mut one, mut other) = (server.ann().await, server.ann().await);
        let (mut first, mut second) = (one.data().await, other.data().await);
        let (code, named) = one.ask(command).await;
        assert_eq!(code, 150);
        let (code, named_too) = other.ask(command).await;
        first.write_all(b"first").await.unwrap();
        if command == "STOU name" {
            assert_eq!(
                (named, named_too),
                (b"150 FILE: /name".into(), b"150 FILE: /name.1".into())
            );
        } else {
            assert_eq!(code, 450, "{command}");
        }
        drop(first);
        assert_eq!(one.reply().await.0, 226);
        if code == 450 {
            assert_eq!(other.put(command, b"second").await, 226);
            continue;
        }
        second.write_all(b"second").await.unwrap();
        drop(second);
        assert_eq!(other.reply().await.0, 226);
    }
    for (name, content) in [
        ("name", "first"),
        ("name.1", "second"),
        ("log", "old firstsecond"),
        ("new", "firstsecond"),
    ] {
        assert_eq!(fs::read_to_string(server.file(name)).unwrap(), content, "{name}");
    }
    assert_eq!(fs::read_dir(server.folder.path()).unwrap().count(), 4, "nothing else is left");
}

#[tokio::test]
async fn what_a_link_leads_to_is_resumed_and_appended_to() {
    use std::os::unix::fs::symlink;

    let server = Served::new().await;
    fs::create_dir(server.file("folder")).unwrap();
    fs::write(server.file("folder/old"), b"0123456789").unwrap();
    let mut talk = server.ann().await;
    for (command, content) in [("REST 4\r\nSTOR link", "0123new"), ("APPE link", "0123456789new")] {
        let _ = fs::remove_file(server.file("link"));
        symlink("folder/old", server.file("link")).unwrap();
        assert_eq!(talk.ask("SIZE link").await.1, b"213 10");
        let mut command = command;
        if let Some((rest, stor)) = command.split_once("\r\n") {
            assert_eq!(talk.ask(rest).await.0, 350);
            command = stor;
        }
        assert_eq!(talk.put(command, b"new").await, 226);
        assert_eq!(fs::read_to_string(server.file("link")).unwrap(), content);
        assert_eq!(fs::read(server.file("folder/old")).unwrap(), b"0123456789");
    }
}

#[tokio::test]
async fn no_link_leads_out_of_the_root() {
    use std::os::unix::fs::symlink;

    let (server, outside) = (Served::new().await, tempfile::tempdir().unwrap());
    fs::write(outside.path().join("secret"), b"secret").unwrap();
    fs::create_dir(outside.path().join("empty")).unwrap();
    fs::write(server.file("mine"), b"mine").unwrap();
    let above = Path::new("..").join(outside.path().file_name().unwrap());
    for (name, target) in [("absolute", outside.path()), ("relative", &above)] {
        symlink(target, server.file(name)).unwrap();
        symlink(target.join("secret"), server.file(&format!("{name}-file"))).unwrap();
    }
    assert!(server.file("relative/secret").exists(), "it does lead there");
    let mut talk = server.ann().await;
    for link in ["absolute", "relative"] {
        for refused in [
            "CWD @",
            "CWD @/empty",
            "MKD @/made",
            "RMD @/empty",
            "DELE @/secret",
            "RNFR @/secret",
            "SIZE @/secret",
            "SIZE @-file",
            "MLST @/secret",
            "XSHA256 @-file",
            "MFMT 20200102030405 @-file",
            "SITE CHMOD 777 @-file",
        ] {
            let command = refused.replace('@', link);
            assert_eq!(talk.ask(&command).await.0, 550, "{command}");
        }
        assert_eq!(talk.ask("RNFR mine").await.0, 350);
        assert_eq!(talk.ask(&format!("RNTO {link}/moved")).await.0, 550);
        for refused in ["STOR @/new", "STOU @/new", "APPE @/new", "RETR @/secret", "LIST @"] {
            let command = refused.replace('@', link);
            assert_eq!(talk.put(&command, b"new").await, 550, "{command}");
        }
        assert_eq!(talk.put(&format!("APPE {link}-file"), b"new").await, 550);
        assert_eq!(talk.ask("REST 2").await.0, 350);
        assert_eq!(talk.put(&format!("STOR {link}-file"), b"new").await, 550);
        // A link itself is the user's, and may be replaced.
        assert_eq!(talk.put(&format!("STOR {link}-file"), b"new").await, 226);
        assert!(server.file(&format!("{link}-file")).symlink_metadata().unwrap().is_file());
        assert_eq!(talk.ask(&format!("DELE {link}")).await.0, 250);
    }
    assert_eq!(fs::read(outside.path().join("secret")).unwrap(), b"secret");
    assert!(outside.path().join("empty").is_dir());
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 2);
}

#[tokio::test]
async fn nlst_gives_names_that_can_be_sent_back() {
    let server = Served::new().await;
    fs::create_dir_all(server.file("a/b")).unwrap();
    fs::write(server.file("a/b/x"), b"content").unwrap();
    let mut talk = server.ann().await;
    assert!(talk.get("NLST a/b/X*").await.is_empty(), "case counts");
    for (typed, listed) in [
        ("", "a"),
        ("a", "a/b"),
        ("/a/", "/a/b"),
        ("a/b", "a/b/x"),
        ("a/b/x", "a/b/x"),
        ("-l a/b/*", "a/b/x"),
        ("a/../a/b", "a/../a/b/x"),
    ] {
        let names = talk.get(&format!("NLST {typed}")).await;
        assert_eq!(String::from_utf8(names).unwrap(), format!("{listed}\r\n"), "NLST {typed}");
        if listed.ends_with('x') {
            assert_eq!(talk.get(&format!("RETR {listed}")).await, b"content");
        }
    }
}

#[tokio::test]
async fn tls_from_the_first_byte_on() {
    let server = Served::new().await;
    fs::write(server.file("file"), b"content").unwrap();
    let options = Options {
        security: Security::Implicit,
        trust: Trust { anyone: true, ..Trust::default() },
        ..Options::default()
    };
    let mut client = Client::connect("localhost", server.tls_address, options).await.unwrap();
    client.log_in("ann", PASSWORD).await.unwrap();
    assert!(client.is_secure());
    let here = tempfile::tempdir().unwrap();
    let directory = fs::File::open(here.path()).unwrap().into();
    client.get(b"file", (directory, "got".as_ref()), false, &Moved::default()).await.unwrap();
    assert_eq!(fs::read(here.path().join("got")).unwrap(), b"content");
    // Nothing is said in clear there.
    let mut plain = TcpStream::connect(server.tls_address).await.unwrap();
    plain.write_all(b"USER ann\r\n").await.unwrap();
    let mut said = Vec::new();
    let _ = plain.read_to_end(&mut said).await;
    assert!(!said.starts_with(b"220"), "{said:?}");
}
