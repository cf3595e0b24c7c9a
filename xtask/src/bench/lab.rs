//! Runs across an emulated path, by the product's own commands.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::command;

/// The path, without the loss.
const RATE_BPS: f64 = 1e9;
const PATH: [&str; 6] = ["--rate", "1gbit", "--rtt", "200ms", "--queue", "50ms"];

/// The exit code of `longhaul emulate` when all went well, but for the emulator itself.
const UNFAITHFUL: i32 = 125;

/// Payload of a TCP packet of 1500 bytes, with timestamps.
pub const PACKET_PAYLOAD: f64 = 1448.0;

/// Payload that TCP could carry at most over a link of this rate, bit/s.
pub fn payload_of(rate: f64) -> f64 {
    rate * PACKET_PAYLOAD / 1500.0
}

/// Payload that TCP could carry at most over the path of [`Bed`], of what is not lost.
pub fn payload_limit(loss_percent: f64) -> f64 {
    payload_of(RATE_BPS) * (1.0 - loss_percent / 100.0)
}

/// The release build.
pub struct Build {
    /// The program; examples stand in a folder beside it.
    pub binary: PathBuf,
}

impl Build {
    /// Builds the product.
    pub fn new() -> Result<Self> {
        command::run(&mut command::cargo(&["build", "--release", "--package", "longhaul"]))?;
        Ok(Self { binary: target_directory()?.join("release/longhaul") })
    }
}

/// Commands on both hosts of a path.
pub struct Crossing<'a> {
    /// Options of `longhaul emulate` that say what the path is like.
    pub path: &'a [&'a str],
    /// The hosts' TCP congestion control.
    pub congestion_control: &'a str,
    /// Fixes the path's random choices; none where `path` is a scenario, which has its own.
    pub seed: Option<u64>,
    /// A shell command for the far host.
    pub far: String,
    /// A shell command for the near host that writes one JSON value.
    pub near: String,
}

impl Crossing<'_> {
    /// Runs them; gives what the near command wrote and the emulator's report.
    pub fn run(&self, build: &Build) -> Result<(Value, Value)> {
        let mut emulate = Command::new(&build.binary);
        emulate.arg("emulate").args(self.path).args(["--cc", self.congestion_control, "--json"]);
        // It is in the report, for the caller to judge.
        emulate.arg("--no-verdict");
        if let Some(seed) = self.seed {
            emulate.args(["--seed", &seed.to_string()]);
        }
        emulate.args(["--far", &self.far]);
        // The far command gets a moment to listen.
        let near = format!("sleep 0.5; {}", self.near);
        let output = emulate.args(["--", "sh", "-c", &near]).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`{near}` failed ({}):\n{said}", output.status);
        let mut values = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
        let mut value = || values.next().context("a value is missing")?.context("not JSON");
        Ok((value()?, value()?))
    }
}

/// Starts GridFTP's server beside whatever follows, at port 2811: anonymous users, for there is no
/// certificate authority here, who read all that we can, root included.
pub const GRIDFTP_SERVER: &str =
    "globus-gridftp-server -aa -allow-root -anonymous-user \"$(id -un)\" -p 2811 >/dev/null & ";

/// The product, a key, and folders for both sides in memory.
pub struct Bed {
    folder: TempDir,
    build: Build,
}

impl Bed {
    /// Builds the product and makes the folders, on a RAM disk where there is one.
    pub fn new() -> Result<Self> {
        let build = Build::new()?;
        let memory = Path::new("/dev/shm");
        let root = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let folder = tempfile::Builder::new().prefix("longhaul-bench-").tempdir_in(root)?;
        let bed = Self { folder, build };
        fs::create_dir(bed.source())?;
        let mut keygen = Command::new(&bed.build.binary);
        command::run(keygen.args(["keygen", "--shared"]).arg(bed.key()))?;
        Ok(bed)
    }

    /// What is copied.
    pub fn source(&self) -> PathBuf {
        self.folder.path().join("source")
    }

    /// Everything of this benchmark; gone when it ends.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The release build.
    pub fn build(&self) -> &Build {
        &self.build
    }

    /// The product.
    pub fn binary(&self) -> &Path {
        &self.build.binary
    }

    /// Where it arrives.
    pub fn destination(&self) -> PathBuf {
        self.folder.path().join("destination")
    }

    /// The key of both sides.
    pub fn key(&self) -> PathBuf {
        self.folder.path().join("key")
    }

    /// Fills a file of the source with random bytes.
    pub fn fill(&self, name: &str, size: u64) -> Result<()> {
        let mut random = io::Read::take(File::open("/dev/urandom")?, size);
        io::copy(&mut random, &mut File::create(self.source().join(name))?)?;
        Ok(())
    }

    /// Copies `what`, a path below the source, by UDP to an empty destination.
    pub fn copy(&self, what: &str, loss_percent: f64, seed: u64) -> Result<Copied> {
        match fs::remove_dir_all(self.destination()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => fs::create_dir(self.destination())?,
        }
        let times = self.folder.path().join("times");
        let binary = self.binary();
        let serve = format!(
            "exec {} serve --quiet --no-remember --key {} --root {}",
            binary.display(),
            self.key().display(),
            self.destination().display()
        );
        // The server gets a moment to listen, outside of what is timed.
        let copy = "sleep 0.5; date +%s%N >$2 && $0 cp --quiet --no-remember --key $3 $1 lh://$LONGHAUL_FAR/ && \
                    date +%s%N >>$2";
        let mut emulate = Command::new(binary);
        emulate.arg("emulate").args(PATH);
        emulate.args(["--loss", &format!("{loss_percent}%"), "--seed", &seed.to_string()]);
        emulate.args(["--far", &serve, "--", "sh", "-c", copy]).arg(binary);
        emulate.arg(self.source().join(what)).arg(&times).arg(self.key());
        let output = emulate.output().context("cannot start `longhaul emulate`")?;
        let said = String::from_utf8_lossy(&output.stderr);
        let faithful = output.status.code() != Some(UNFAITHFUL);
        ensure!(
            output.status.success() || !faithful,
            "the copy failed ({}):\n{said}",
            output.status
        );
        let text = fs::read_to_string(&times)?;
        let nanos: Vec<u64> = text.lines().map(str::parse).collect::<Result<_, _>>()?;
        ensure!(nanos.len() == 2, "no times were taken:\n{said}");
        Ok(Copied { time: Duration::from_nanos(nanos[1] - nanos[0]), faithful })
    }
}

/// A copy that arrived.
pub struct Copied {
    /// From the start of `cp` to its end, as the shell around it sees it.
    pub time: Duration,
    /// Whether the emulator kept up; else the time shows the machine and not the path.
    pub faithful: bool,
}

/// Where cargo builds.
pub fn target_directory() -> Result<PathBuf> {
    let output = command::cargo(&["metadata", "--no-deps", "--format-version", "1"]).output()?;
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let directory = metadata["target_directory"].as_str();
    Ok(directory.context("cargo names no target directory")?.into())
}
