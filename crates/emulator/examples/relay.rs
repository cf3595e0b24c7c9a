//! Relays UDP to a target across a path until its input ends, then prints what the path did:
//! `relay RATE RTT_MS LOSS TARGET`.

use std::io::{self, Read};
use std::time::Duration;

use emulator::Relay;
use path::PathConfig;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [rate, rtt, loss, target] = &arguments[..] else {
        return Err("usage: relay RATE RTT_MS LOSS TARGET".into());
    };
    let path = PathConfig::new(rate.parse()?, Duration::from_millis(rtt.parse()?))
        .with_loss(loss.parse()?);
    let relay = Relay::start(&path, target.parse()?)?;
    println!("{}", relay.address());
    io::stdin().read_to_end(&mut Vec::new())?;
    println!("{}", relay.stop());
    Ok(())
}
