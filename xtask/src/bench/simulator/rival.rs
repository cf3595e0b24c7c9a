//! ns-2 and ns-3, as Debian has them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::command;
use crate::tools;

/// The same dumbbell as [`super::Dumbbell::scenario`].
const NS2: &str = include_str!("dumbbell.tcl");
const NS3: &str = include_str!("dumbbell.cc");
/// Parts of ns-3 that it needs.
const PARTS: [&str; 8] = [
    "applications",
    "traffic-control",
    "point-to-point",
    "internet",
    "bridge",
    "stats",
    "network",
    "core",
];

/// Another simulator.
pub struct Rival {
    /// Its name.
    pub name: &'static str,
    /// Whether it is to be believed only of TCP with selective acknowledgements.
    pub sack_alone: bool,
    /// What it halves at a loss, as scenario files spell it.
    pub flight: &'static str,
    /// Whether it can be timed over millions of packets.
    pub is_quick: bool,
    program: PathBuf,
    script: Option<PathBuf>,
}

impl Rival {
    /// Those that are here or can be installed; of each other what to install.
    pub fn all(folder: &Path) -> Result<(Vec<Self>, Vec<&'static str>)> {
        let (mut all, mut missing) = (Vec::new(), Vec::new());
        match ns2(folder)? {
            Some(rival) => all.push(rival),
            None => missing.push("ns-2 is not here; apt-get install ns2"),
        }
        match ns3(folder)? {
            Some(rival) => all.push(rival),
            None => missing.push("ns-3 is not here; apt-get install libns3-dev g++"),
        }
        Ok((all, missing))
    }

    /// A run of the dumbbell: what it prints is in the head of `dumbbell.tcl`.
    pub fn command(&self, [count, recovery, queue]: [&str; 3], rest: [&str; 5]) -> Command {
        let mut command = Command::new(&self.program);
        match &self.script {
            Some(script) => command.arg(script).args([count, recovery, queue]),
            None => command.args([count, queue]),
        };
        command.args(rest);
        command
    }
}

fn ns2(folder: &Path) -> Result<Option<Rival>> {
    let here = || tools::on_path("ns");
    if !(here() || tools::install(&["ns2"]) && here()) {
        return Ok(None);
    }
    let script = folder.join("dumbbell.tcl");
    std::fs::write(&script, NS2)?;
    let (program, script) = ("ns".into(), Some(script));
    Ok(Some(Rival {
        name: "ns-2",
        sack_alone: false,
        flight: "unacknowledged",
        is_quick: true,
        program,
        script,
    }))
}

fn ns3(folder: &Path) -> Result<Option<Rival>> {
    if version().is_none() && !tools::install(&["libns3-dev", "g++"]) {
        return Ok(None);
    }
    let Some(version) = version() else { return Ok(None) };
    let (source, program) = (folder.join("dumbbell.cc"), folder.join("dumbbell"));
    std::fs::write(&source, NS3)?;
    let mut compile = Command::new("g++");
    compile.args(["-std=c++17", "-O2", "-w"]);
    let headers = Path::new("/usr/include").join(&version);
    // Where they are in `/usr/include/ns3` itself its `string.h` would hide the compiler's.
    if headers.join("ns3").is_dir() {
        compile.arg("-I").arg(&headers);
    }
    compile.arg(&source).arg("-o").arg(&program);
    compile.args(PARTS.map(|part| format!("-l{version}-{part}")));
    command::run(&mut compile)?;
    Ok(Some(Rival {
        name: "ns-3",
        sack_alone: true,
        flight: "pipe",
        is_quick: false,
        program,
        script: None,
    }))
}

/// Of the headers that are installed, as in `ns3.37`, or `ns3` alone.
fn version() -> Option<String> {
    let folders = std::fs::read_dir("/usr/include").ok()?.filter_map(Result::ok);
    let mut names = folders.filter_map(|folder| folder.file_name().into_string().ok());
    names.find(|name| name.starts_with("ns3"))
}
