//! What a gateway shows of itself while it carries.

use std::future::ready;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::Command;
use std::sync::mpsc::channel;

use gateway::{AskError, GatewayError, Status, TrunkState};
use net::{Credentials, SharedKey};
use socket2::SockRef;

use crate::gateways::{NOBODY, Pair, as_nobody, skip};
use crate::world::{NEAR, PATIENCE, SERVERS, World, at};
use crate::{connect, server, with_world};

fn status(world: &World) -> Result<Status, AskError> {
    world.on(NEAR, gateway::status)
}

/// What the web page's address answers.
fn get(world: &World, path: &str) -> String {
    world.on(NEAR, || {
        let mut stream = TcpStream::connect_timeout(&at("127.0.0.1", 7275), PATIENCE).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:7275\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    })
}

#[test]
fn status_page_and_metrics_show_what_is_carried() {
    with_world("status_page_and_metrics_show_what_is_carried", |world| {
        assert!(matches!(status(world), Err(AskError::NotRunning)));
        let [near, _far] = world.gateways("[web]\n");
        let to = at(SERVERS[0], 8000);
        let (let_go, wait) = channel::<()>();
        let served = server(world, to, move |mut stream, _| {
            stream.read_exact(&mut [0; 5]).unwrap();
            stream.write_all(b"there you are").unwrap();
            wait.recv_timeout(PATIENCE).unwrap();
        });
        let mut client = connect(world, to).unwrap();
        let own = client.local_addr().unwrap();
        client.write_all(b"hello").unwrap();
        client.read_exact(&mut [0; 13]).unwrap();

        let seen = status(world).unwrap();
        assert_eq!((seen.open, seen.trunk.state), (1, TrunkState::Up));
        let connection = &seen.connections[0];
        assert_eq!((&connection.client, &connection.server), (&own.to_string(), &to.to_string()));
        assert_eq!((connection.there, connection.back), (5, 13));
        // With what was asked of the far gateway.
        assert!((5 + 1..100).contains(&connection.scheduled), "{}", connection.scheduled);
        assert!(seen.to_string().contains(&own.to_string()), "{seen}");
        let metrics = get(world, "/metrics");
        for metric in ["connections 1", "bytes_there_total 5", "bytes_back_total 13"] {
            assert!(metrics.contains(&format!("longhaul_gateway_{metric}\n")), "{metrics}");
        }
        assert!(get(world, "/status.json").contains(&own.to_string()));
        assert!(get(world, "/").contains("<title>Longhaul gateway</title>"));

        let_go.send(()).unwrap();
        served.join().unwrap();
        drop(client);
        near.record(own);
        let seen = status(world).unwrap();
        assert_eq!((seen.open, seen.totals.carried), (0, 1));
        assert_eq!((seen.totals.there, seen.totals.back), (5, 13));
    });
}

/// The web page as a browser has it after it has asked for the status some times.
fn page_in_a_browser(world: &World) -> String {
    let home = tempfile::tempdir().unwrap();
    let mut browser = Command::new("timeout");
    browser.args(["60", BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]);
    browser.args(["--disable-dev-shm-usage", "--disable-background-networking"]);
    browser.arg(format!("--user-data-dir={}", home.path().display())).env("HOME", home.path());
    // So many milliseconds of the page's own time, which stands still while it waits for answers.
    browser.args(["--virtual-time-budget=3000", "--dump-dom", "http://127.0.0.1:7275/"]);
    // The links are new: an address that comes late has the browser give up.
    for _ in 0..5 {
        let output = world.on(NEAR, || browser.output().unwrap());
        let said = String::from_utf8_lossy(&output.stderr);
        if !said.contains("ERR_NETWORK_CHANGED") {
            assert!(output.status.success(), "{BROWSER}: {}: {said}", output.status);
            return String::from_utf8(output.stdout).unwrap();
        }
    }
    panic!("the network changes for ever");
}

const BROWSER: &str = "chromium";

#[test]
fn a_browser_shows_what_is_carried_and_what_was_not() {
    let name = "a_browser_shows_what_is_carried_and_what_was_not";
    if Command::new(BROWSER).arg("--version").output().is_err() {
        return skip(name, "no program chromium");
    }
    with_world(name, |world| {
        let [near, _far] = world.gateways("[web]\n[proxy]\nlisten = \"127.0.0.1:1080\"\n");
        let to = at(SERVERS[0], 8000);
        let (let_go, wait) = channel::<()>();
        let served = server(world, to, move |mut stream, _| {
            stream.write_all(&[7; 12_345]).unwrap();
            let _ = wait.recv();
        });
        let mut client = connect(world, to).unwrap();
        let own = client.local_addr().unwrap();
        client.read_exact(&mut [0; 12_345]).unwrap();
        connect(world, at(SERVERS[0], 9)).unwrap_err();
        // Who asks for a server chooses its name.
        let asker = world.on(NEAR, || {
            let mut asker = TcpStream::connect_timeout(&at("127.0.0.1", 1080), PATIENCE).unwrap();
            asker.write_all(b"CONNECT <b>name</b>:80 HTTP/1.1\r\n\r\n").unwrap();
            asker.local_addr().unwrap()
        });
        near.record(asker);
        while status(world).unwrap().history.is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }

        let page = page_in_a_browser(world);
        let (own, to) = (own.to_string(), to.to_string());
        for shown in [
            "data-state=\"up\"",
            "10.77.0.2:7273",
            &own,
            &to,
            "12,345",
            "the server refused",
            "&lt;b&gt;name&lt;/b&gt;:80",
        ] {
            assert!(page.contains(shown), "no {shown} in {page}");
        }
        assert_eq!(page.matches("<polyline class=\"").count(), 4, "{page}");
        assert_eq!(page.matches(" points=\"").count(), 4, "not every plot has points: {page}");
        assert!(!page.contains(" points=\"\""), "a plot is empty: {page}");
        let_go.send(()).unwrap();
        served.join().unwrap();
    });
}

#[test]
fn who_takes_the_gateways_name_is_not_believed_and_stops_nobody() {
    with_world("who_takes_the_gateways_name_is_not_believed_and_stops_nobody", |world| {
        let name = SocketAddr::from_abstract_name("longhaul-gateway-0").unwrap();
        let taken = as_nobody(world, || UnixListener::bind_addr(&name).unwrap());
        let _gateways = world.gateways("");
        assert!(matches!(status(world), Err(AskError::Stranger(NOBODY))));
        // To drop it is not enough: a child of this process that has not begun its program yet may hold it.
        SockRef::from(&taken).shutdown(Shutdown::Both).unwrap();
        assert!(matches!(status(world), Err(AskError::NotRunning)));
    });
}

#[test]
fn a_user_has_one_gateway_on_a_host() {
    with_world("a_user_has_one_gateway_on_a_host", |world| {
        let _gateways = world.gateways("");
        let config = "[trunk]\nlisten = \"127.0.0.1:7299\"\nkey = \"-\"\n".parse().unwrap();
        let second = world.on(NEAR, || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let key = Credentials::from(&SharedKey::from_bytes([7; 32]));
            runtime.unwrap().block_on(gateway::run(&config, key, ready(()), |_| ()))
        });
        assert!(matches!(second, Err(GatewayError::Twice)), "{second:?}");
    });
}

#[test]
fn others_are_told_that_roots_gateway_runs_and_no_more() {
    with_world("others_are_told_that_roots_gateway_runs_and_no_more", |world| {
        let ask = || as_nobody(world, gateway::status);
        assert!(matches!(ask(), Err(AskError::NotRunning)));
        let _gateways = world.gateways("");
        assert!(matches!(ask(), Err(AskError::RootOnly)));
        assert!(status(world).is_ok());
    });
}
