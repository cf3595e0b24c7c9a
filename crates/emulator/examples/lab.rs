//! Runs a command on the near host of a lab, another on the far host meanwhile, and prints what
//! the path did: `lab RATE RTT_MS LOSS CC FAR_COMMAND NEAR_COMMAND` (commands for `sh -c`).

use std::time::Duration;

use emulator::{Host, Lab, LabOptions};
use path::PathConfig;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    emulator::init()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [rate, rtt, loss, cc, far, near] = &arguments[..] else {
        return Err("usage: lab RATE RTT_MS LOSS CC FAR_COMMAND NEAR_COMMAND".into());
    };
    let path = PathConfig::new(rate.parse()?, Duration::from_millis(rtt.parse()?))
        .with_loss(loss.parse()?);
    let options = LabOptions { congestion_control: cc.clone(), ..LabOptions::default() };
    let lab = Lab::start(&path, &options)?;
    for host in Host::BOTH {
        println!("{host}: {} {}, {}", host.address(), host.address6(), lab.shell_prefix(host));
    }
    let mut server = lab.command(Host::Far, "sh").args(["-c", far]).spawn()?;
    let status = lab.command(Host::Near, "sh").args(["-c", near]).status();
    server.kill()?;
    server.wait()?;
    println!("{}", lab.stop());
    println!("{}", status?);
    Ok(())
}
