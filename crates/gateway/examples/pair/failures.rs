//! How soon new connections are made when a gateway of ours is killed.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::bench::Way;
use crate::contender::{Contender, Running};
use crate::figures::Goal;
use crate::load::{ECHOES, Servers};
use crate::no_world;
use crate::world::{CLIENT, NEAR, PATIENCE, SECOND, SERVER, SERVERS, World, at};

/// A client that comes when a gateway has just been killed, and others after it, so much later each.
const CLIENTS: u32 = 20;
const BETWEEN: Duration = Duration::from_millis(100);
/// The longest that one of two may take to carry connections when the other is killed.
const TAKEN_OVER: Duration = Duration::from_secs(3);
/// How long one connection may take meanwhile.
const SOON: Duration = Duration::from_secs(2);
/// How often VRRP asks for a gateway's status, and how often it tells its priority.
const ASKED: Duration = Duration::from_secs(1);
const ADVERT: Duration = Duration::from_millis(250);
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
    let of_far = {
        let (_lab, world) = way.start()?;
        taken_over(&world, &Contender::longhaul_standby(program), SERVER, Running::kill_far)?
    };
    let of_near = {
        let world = World::with_two_near().ok_or_else(no_world)?;
        taken_over(&world, &Contender::longhaul_two_near(program), SECOND, |running| {
            kill_and_move(&world, running);
        })?
    };
    let show = |what: &str, took: Option<Duration>| match took {
        Some(took) => println!("  {what}: {:.2}", took.as_secs_f64()),
        None => println!("  {what}: never"),
    };
    show("the far gateway", far);
    show("the near gateway", near);
    println!("longhaul, one of two killed; seconds until the other one carried a connection");
    show("far gateways", of_far);
    show("near gateways, whose address VRRP moves, on a path without delay", of_near);
    let goal = |what, took: Option<Duration>, most| Goal {
        what,
        holds: took.is_some_and(|took| took <= most),
    };
    let goals = [
        // The SYN leaves within the second, and its answer takes the path's round trip.
        goal("all go direct within 1 s", far, Duration::from_secs(1) + rtt),
        goal("direct at once without the near one", near, rtt + LOCAL),
        goal("the other far one serves within 3 s", of_far, TAKEN_OVER),
        // A trunk is made, and then a connection over it, in three round trips.
        goal("the other near one too", of_near, TAKEN_OVER.saturating_sub(3 * rtt)),
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

/// How soon after a kill the gateway of this host, which stood by, has carried a connection.
fn taken_over(
    world: &World,
    contender: &Contender,
    host: usize,
    kill: impl FnOnce(&mut Running) + Send,
) -> io::Result<Option<Duration>> {
    let _servers = Servers::start(world);
    let mut running = contender.start(world)?;
    exchange(world)?;
    let carried = || {
        let status = world.on(host, gateway::status).unwrap_or_default();
        status.totals.carried + status.totals.reset + status.open
    };
    let before = carried();
    let begun = net::clock::now();
    let since = || net::clock::now().since(begun);
    Ok(thread::scope(|scope| {
        scope.spawn(|| kill(&mut running));
        while since() < PATIENCE {
            // One that comes while nobody has taken over may go direct, or fail.
            let _ = exchange_within(world, SOON);
            if carried() > before {
                return Some(since());
            }
            thread::sleep(BETWEEN);
        }
        None
    }))
}

/// Kills the near gateway and moves the address to the other one as VRRP does that asks for the
/// status every second (docs/book/gateway-pairs.md), and has just asked.
fn kill_and_move(world: &World, running: &mut Running) {
    running.kill_near();
    thread::sleep(ASKED);
    if world.on(NEAR, gateway::status).is_err() {
        thread::sleep(ADVERT);
        world.give(SECOND);
    }
}

fn connect(world: &World) -> io::Result<TcpStream> {
    connect_within(world, PATIENCE)
}

fn connect_within(world: &World, patience: Duration) -> io::Result<TcpStream> {
    world.on(CLIENT, || TcpStream::connect_timeout(&at(SERVERS[0], ECHOES), patience))
}

/// A connection that carries a byte there and back.
fn exchange(world: &World) -> io::Result<()> {
    exchange_within(world, PATIENCE)
}

fn exchange_within(world: &World, patience: Duration) -> io::Result<()> {
    let mut stream = connect_within(world, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(&[7])?;
    stream.read_exact(&mut [0])
}
