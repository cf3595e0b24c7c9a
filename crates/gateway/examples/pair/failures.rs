//! How soon new connections are made when a gateway of ours is killed.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::bench::{Goal, Way};
use crate::contender::{Contender, Running};
use crate::load::{ECHOES, Servers};
use crate::world::{CLIENT, PATIENCE, SERVERS, World, at};

/// A client that comes when a gateway has just been killed, and others after it, so much later each.
const CLIENTS: u32 = 20;
const BETWEEN: Duration = Duration::from_millis(100);
/// What the host may take beside the path's round trip.
const LOCAL: Duration = Duration::from_millis(50);

/// Prints a line for each failure; false if a connection took longer than it may, or was not made.
///
/// # Errors
/// The gateways do not start, or carry nothing before they are killed or long after.
pub fn run(program: &Path, way: Way) -> io::Result<bool> {
    let rtt = Duration::from_millis(way.rtt);
    let pair = Contender::longhaul(program);
    println!("\nlonghaul, killed; seconds that the slowest of {CLIENTS} new connections took");
    let far = measure(&pair, way, Running::kill_far)?;
    let near = measure(&pair, way, Running::kill_near)?;
    let standby = measure(&Contender::longhaul_standby(program), way, Running::kill_far)?;
    let show = |what: &str, took: Option<Duration>| match took {
        Some(took) => println!("  {what}: {:.2}", took.as_secs_f64()),
        None => println!("  {what}: not all were made"),
    };
    show("the far gateway", far);
    show("the near gateway", near);
    show("one of two far gateways", standby);
    let goal = |what, took: Option<Duration>, most| Goal {
        what,
        holds: took.is_some_and(|took| took <= most),
    };
    let goals = [
        // The SYN leaves within the second, and its answer takes the path's round trip.
        goal("all go direct within 1 s", far, Duration::from_secs(1) + rtt),
        goal("direct at once without the near one", near, rtt + LOCAL),
        goal("the other one serves within 3 s", standby, Duration::from_secs(3)),
    ];
    Ok(goals.iter().fold(true, |all, goal| goal.tell() & all))
}

/// How long the slowest of those waited that came after the kill; none if one was not connected.
fn measure(
    contender: &Contender,
    way: Way,
    kill: fn(&mut Running),
) -> io::Result<Option<Duration>> {
    let (_lab, world) = way.start()?;
    let _servers = Servers::start(&world);
    let mut running = contender.start(&world)?;
    exchange(&world)?;
    kill(&mut running);
    let slowest = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let world = &world;
                scope.spawn(move || {
                    thread::sleep(BETWEEN * number);
                    let begun = net::clock::now();
                    connect(world).map(|_| net::clock::now().since(begun))
                })
            })
            .collect();
        let took = clients.into_iter().map(|client| client.join().ok()?.ok());
        took.collect::<Option<Vec<_>>>()?.into_iter().max()
    });
    exchange(&world)?;
    Ok(slowest)
}

fn connect(world: &World) -> io::Result<TcpStream> {
    world.on(CLIENT, || TcpStream::connect_timeout(&at(SERVERS[0], ECHOES), PATIENCE))
}

/// A connection that carries a byte there and back.
fn exchange(world: &World) -> io::Result<()> {
    let mut stream = connect(world)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&[7])?;
    stream.read_exact(&mut [0])
}
