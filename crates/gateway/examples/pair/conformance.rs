//! Every promise of TCP's over IPv4 and IPv6, with some gateways or none, as a table.

use std::any::Any;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::cases::{ALL, Case, Earlier, Scene, earlier};
use crate::contender::{Contender, find};
use crate::no_world;
use crate::world::{World, missing};

/// What is tried, and between whom.
#[derive(clap::Args)]
pub struct Options {
    /// The gateways: longhaul, none (the control), haproxy, sing-box.
    #[arg(default_value = "longhaul", conflicts_with = "near")]
    gateway: String,
    /// A shell command that starts the near gateway, beside the client: its device towards the
    /// client is `lan`, towards the other gateway `path`, where it is 10.77.0.1 and fd77::1.
    #[arg(long, requires = "far")]
    near: Option<String>,
    /// One that starts the far gateway, beside the server, at 10.77.0.2 and fd77::2.
    #[arg(long, requires = "near")]
    far: Option<String>,
    /// How long a connection is left idle, in seconds. The time-outs of ours are a thirtieth of
    /// theirs here: two minutes are to them what an hour is to others.
    #[arg(long, default_value_t = 120)]
    idle: u64,
    /// Leave out what takes minutes or gigabytes.
    #[arg(long)]
    short: bool,
    /// Only promises with this in their names.
    #[arg(long, default_value = "")]
    only: String,
}

/// Tries all and prints a table; false if one was broken.
pub fn run(program: &Path, options: &Options) -> io::Result<bool> {
    let contender = contender(program, options)?.hurried();
    let world = missing().is_none().then(World::new).flatten().ok_or_else(no_world)?;
    let earlier = earlier(&world);
    let running = contender.start(&world)?;
    // Each failure is told once, in the table.
    panic::set_hook(Box::new(|_| {}));
    let (long, short): (Vec<_>, Vec<_>) = ALL
        .iter()
        .enumerate()
        .filter(|(_, case)| case.name.contains(&options.only) && !(options.short && case.long))
        .partition(|(_, case)| case.long);
    println!("TCP with these gateways: {}\n", contender.name);
    println!("| TCP promises | IPv4 | IPv6 |\n|---|---|---|");
    let idle = Duration::from_secs(options.idle);
    let mut kept = true;
    for cases in [short, long] {
        for (case, results) in try_all((&world, &earlier), &cases, idle) {
            let told = results.each_ref().map(|it| it.as_ref().err().map_or("holds", |why| why));
            println!("| {} | {} | {} |", case.name, told[0], told[1]);
            kept &= results.iter().all(Result::is_ok);
        }
    }
    drop(running);
    println!("\n{}", if kept { "All hold." } else { "Some are BROKEN." });
    Ok(kept)
}

fn contender(program: &Path, options: &Options) -> io::Result<Contender> {
    if let (Some(near), Some(far)) = (options.near.clone(), options.far.clone()) {
        return Ok(Contender::commands(near, far));
    }
    named(program, &options.gateway)
}

/// The gateways of a name.
///
/// # Errors
/// There are none, or they are not installed, and how to install them.
pub fn named(program: &Path, name: &str) -> io::Result<Contender> {
    let installed = |program: &str, how: &str| {
        let absent = || io::Error::other(format!("{program} is not installed: `{how}`"));
        find(program).ok_or_else(absent)
    };
    Ok(match name {
        "longhaul" => Contender::longhaul(program),
        "none" => Contender::none(),
        "haproxy" => {
            installed("haproxy", "apt-get install haproxy").map(|_| Contender::haproxy())?
        }
        "sing-box" => Contender::sing_box(&installed("sing-box", SING_BOX)?),
        other => return Err(io::Error::other(format!("no gateways are called {other:?}"))),
    })
}

/// Builds the version beside which ours was measured.
const SING_BOX: &str =
    "go install -tags with_quic github.com/sagernet/sing-box/cmd/sing-box@v1.14.1";

/// A case, and what came of it over IPv4 and IPv6.
type Tried<'a> = (&'a Case, [Result<(), String>; 2]);

/// All at the same time, for most of them wait.
fn try_all<'a>(
    world: (&World, &Earlier),
    cases: &[(usize, &'a Case)],
    idle: Duration,
) -> Vec<Tried<'a>> {
    thread::scope(|scope| {
        let started: Vec<_> = cases
            .iter()
            .map(|&(number, case)| {
                let attempt = |family| {
                    let scene = Scene::new(world, number, family, idle);
                    scope.spawn(move || attempt(case, &scene))
                };
                (case, [attempt(0), attempt(1)])
            })
            .collect();
        let joined = started.into_iter().map(|(case, threads)| {
            (case, threads.map(|it| it.join().unwrap_or_else(|panic| Err(message(&*panic)))))
        });
        joined.collect()
    })
}

fn attempt(case: &Case, scene: &Scene) -> Result<(), String> {
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| (case.check)(scene)));
    outcome.map_err(|panic| message(&*panic))
}

/// What a failed assertion said, on one line.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("it failed");
    format!("BROKEN: {}", text.split_whitespace().collect::<Vec<_>>().join(" "))
}
