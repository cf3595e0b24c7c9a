//! The mover beside its peers: the same trees fetched over the same paths.
//!
//! `cargo install --locked qcp sendme` brings the two that Debian has not.
//!
//! The far host has an sshd, which is a tool of the tests, and `longhaul serve` with its FTP. What has
//! arrived when the time is up counts, whole files or not; so nobody may reserve room or throw away what was
//! interrupted.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::lab::{Bed, Crossing, GRIDFTP_SERVER, payload_limit};
use super::{spread, verdict};
use crate::{command, tools};

/// What to measure.
#[derive(clap::Args)]
pub struct Args {
    /// Who, of: udp, tcp, ssh (ours), scp, rsync, lftp, rclone, aria2, gridftp, qcp, sendme.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "udp,tcp,ssh,scp,rsync,lftp,rclone,aria2,gridftp,qcp,sendme"
    )]
    peers: Vec<String>,
    /// What, of: large, medium (a thousand of 1 MiB), small (a hundred thousand of 4 KiB), mixed.
    #[arg(long, value_delimiter = ',', default_value = "large,medium,small,mixed")]
    trees: Vec<String>,
    /// Size of the large file in MiB.
    #[arg(long, default_value_t = 4096)]
    size: u64,
    /// Losses in percent.
    #[arg(long, value_delimiter = ',', default_value = "0,0.1,1")]
    loss: Vec<f64>,
    /// The hosts' TCP congestion control.
    #[arg(long, default_value = "cubic")]
    cc: String,
    /// The most seconds a run may take.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Runs of each, each with a seed of its own.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
}

/// What ours must reach of the payload limit with large and with small files, over a whole transfer.
const GOALS: [(&str, f64); 2] = [("large", 0.9), ("small", 0.45)];

/// Ours come first: each is compared with the best of the others.
const OURS: usize = 3;

/// Somebody who fetches trees.
struct Peer {
    name: &'static str,
    /// What must be on the search path.
    programs: &'static str,
    /// Shell commands on the far host, beside its sshd and its FTP server; they end with `&`.
    far: &'static str,
    /// A shell command that fetches `$TREE` from `$FROM` of the far host to `in`.
    fetch: &'static str,
}

impl Peer {
    /// Of those that need nothing but an sshd or an FTP server.
    const fn new(name: &'static str, programs: &'static str, fetch: &'static str) -> Self {
        Self { name, programs, far: "", fetch }
    }
}

const PEERS: [Peer; 11] = [
    Peer::new(
        "udp",
        "true",
        "\"$LONGHAUL\" cp -q --no-remember --transport udp --key \"$KEY\" lh://$LONGHAUL_FAR/$TREE in/",
    ),
    Peer::new(
        "tcp",
        "true",
        "\"$LONGHAUL\" cp -q --no-remember --transport tcp --key \"$KEY\" lh://$LONGHAUL_FAR/$TREE in/",
    ),
    Peer::new(
        "ssh",
        "ssh",
        "\"$LONGHAUL\" cp -q --no-remember -e \"ssh -F $CONFIG\" --remote-path \"$LONGHAUL\" \
         root@$LONGHAUL_FAR:\"$FROM\"/$TREE in/",
    ),
    Peer::new("scp", "scp", "scp -q -r -F \"$CONFIG\" root@$LONGHAUL_FAR:\"$FROM\"/$TREE in/"),
    Peer::new(
        "rsync",
        "rsync",
        "rsync -a --inplace -e \"ssh -F $CONFIG\" root@$LONGHAUL_FAR:\"$FROM\"/$TREE in/",
    ),
    Peer::new(
        "lftp",
        "lftp",
        "lftp -c \"set file:use-fallocate no; set sftp:connect-program 'ssh -a -x -F $CONFIG'; open sftp://root:x@$LONGHAUL_FAR; \
         mirror --parallel=16 --use-pget-n=16 '$FROM/$TREE' in/$TREE\"",
    ),
    Peer::new(
        "rclone",
        "rclone",
        "rclone copy --local-no-preallocate --transfers 16 --multi-thread-streams 4 --multi-thread-cutoff 1M \
         --sftp-host $LONGHAUL_FAR --sftp-user root --sftp-key-file \"$CONFIG.key\" \
         \":sftp:$FROM/$TREE\" in/$TREE",
    ),
    Peer::new(
        "aria2",
        "aria2c",
        "(cd \"$FROM\" && find $TREE -type f -printf \"ftp://$LONGHAUL_FAR:2121/%p\\n  out=%p\\n\") >list; \
         aria2c -q -i list -j 16 -x 16 -s 16 -k 1M --file-allocation=none -d in",
    ),
    Peer {
        name: "gridftp",
        programs: "globus-url-copy globus-gridftp-server",
        far: GRIDFTP_SERVER,
        fetch: "globus-url-copy -q -r -cd -fast -pp -cc 4 -p 16 -tcp-bs 33554432 \
         \"ftp://$LONGHAUL_FAR:2811$FROM/$TREE/\" \"file://$PWD/in/$TREE/\"",
    },
    Peer {
        // Told the path, which nobody else is.
        name: "qcp",
        programs: "qcp",
        far: "",
        fetch: "qcp -q -r -j 16 --rx 125M --rtt 200 --congestion bbr --ssh-subsystem true -S -F -S \"$CONFIG\" \
         root@$LONGHAUL_FAR:\"$FROM\"/$TREE in/",
    },
    Peer {
        name: "sendme",
        programs: "sendme",
        far: "sendme send --no-progress --relay disabled --ticket-type addresses \"$FROM/$TREE\" >ticket & ",
        fetch: "cd in && sendme receive --no-progress --relay disabled $(grep -o 'blob[a-z0-9]*' ../ticket)",
    },
];

/// Prints a table for each tree and loss; false when a goal is missed.
pub fn run(args: &Args) -> Result<bool> {
    let site = Site::new(args)?;
    let mut reached = true;
    for tree in &args.trees {
        for &loss in &args.loss {
            reached &= site.table(args, tree, loss)?;
        }
    }
    Ok(reached)
}

struct Site {
    bed: Bed,
    sshd: PathBuf,
}

/// One run.
struct Run {
    mbps: f64,
    is_whole: bool,
    is_faithful: bool,
}

impl Site {
    fn new(args: &Args) -> Result<Self> {
        for peer in &args.peers {
            let known = PEERS.iter().find(|known| known.name == peer);
            let known = known.with_context(|| format!("no peer is called {peer:?}"))?;
            for name in known.programs.split(' ') {
                ensure!(tools::on_path(name), "there is no {name} here, for --peers {peer}");
            }
        }
        let sshd = tools::find("sshd");
        let sshd = sshd.context("there is no sshd here: `cargo xtask test` fetches one")?;
        let site = Self { bed: Bed::new()?, sshd };
        site.configure()?;
        for tree in &args.trees {
            site.plant(tree, args.size)?;
        }
        Ok(site)
    }

    /// Keys, users and configuration of ssh, of this benchmark alone.
    fn configure(&self) -> Result<()> {
        let folder = self.bed.folder();
        let shown = folder.display();
        for key in ["ssh.key", "host.key"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.join(key));
            command::run(&mut keygen)?;
        }
        for (name, text) in [
            (
                "ssh",
                format!(
                    "Host *\n IdentityFile {shown}/ssh.key\n IdentitiesOnly yes\n BatchMode yes\n \
                     StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n LogLevel ERROR\n"
                ),
            ),
            (
                "sshd",
                // The far side's search path is not ours.
                format!(
                    "ListenAddress 0.0.0.0\nHostKey {shown}/host.key\nPidFile none\nUsePAM no\n\
                     AuthorizedKeysFile {shown}/ssh.key.pub\nStrictModes no\nMaxSessions 64\n\
                     MaxStartups 100\nSubsystem sftp internal-sftp\n\
                     Subsystem qcp {} --server\n",
                    tools::find("qcp").unwrap_or_default().display()
                ),
            ),
            (
                "passwd",
                "root:x:0:0::/root:/bin/sh\nsshd:x:6544:6544::/run/sshd:/usr/sbin/nologin\n".into(),
            ),
            ("shadow", "root:*:20000:0:99999:7:::\n".into()),
        ] {
            fs::write(folder.join(name), text)?;
        }
        Ok(())
    }

    fn plant(&self, tree: &str, size: u64) -> Result<()> {
        let files: Vec<(String, u64)> = match tree {
            "large" => vec![("file".into(), size << 20)],
            "medium" => (0..1000).map(|number| (number.to_string(), 1 << 20)).collect(),
            "small" => {
                (0..100_000).map(|number| (format!("{}/{number}", number / 1000), 4096)).collect()
            }
            "mixed" => {
                let size = |number: u64| [900, 70_000, 5_000_000][(number % 3) as usize];
                let small = |number| (format!("{}/{number}", number % 17), size(number));
                (0..300).map(small).chain([("large".into(), 256 << 20)]).collect()
            }
            other => bail!("no tree is called {other:?}: large, medium, small, mixed"),
        };
        for (name, size) in files {
            let path = format!("{tree}/{name}");
            let place = self.bed.source().join(&path);
            fs::create_dir_all(place.parent().context("it has a parent")?)?;
            self.bed.fill(&path, size)?;
        }
        Ok(())
    }

    fn table(&self, args: &Args, tree: &str, loss: f64) -> Result<bool> {
        println!("{tree}, {loss}% lost, 1 Gbit/s, 200 ms, queue 50 ms, {}", args.cc);
        println!("| who | Mbit/s | least .. most | whole runs | times the best peer |");
        println!("|---|---|---|---|---|");
        let mut rows = Vec::new();
        for peer in PEERS.iter().filter(|peer| args.peers.iter().any(|name| name == peer.name)) {
            let mut runs = Vec::new();
            for seed in 1..=args.seeds {
                let run = self.run(args, tree, loss, peer, seed);
                runs.push(run.with_context(|| format!("{}, {tree}", peer.name))?);
            }
            let rates: Vec<_> = runs.iter().map(|run| run.mbps).collect();
            rows.push((peer.name, spread(&rates), runs));
        }
        let is_ours = |name: &str| PEERS[..OURS].iter().any(|ours| ours.name == name);
        let others = rows.iter().filter(|(name, ..)| !is_ours(name));
        let best = others.map(|(_, (median, ..), _)| *median).fold(0.0, f64::max);
        let goal = GOALS.iter().find(|(of, _)| *of == tree).map_or(0.0, |(_, share)| *share);
        let goal = goal * payload_limit(loss) / 1e6;
        let mut reached = true;
        for (name, (median, least, most), runs) in rows {
            let whole = runs.iter().filter(|run| run.is_whole).count();
            let judged = if name == "udp" {
                let passed = median >= goal && median > best;
                reached &= passed;
                format!(" ({}, {goal:.0} and the best peer)", verdict(passed))
            } else {
                String::new()
            };
            let late = runs.iter().filter(|run| !run.is_faithful);
            let late = Vec::from_iter(late.map(|run| format!("{:.0}", run.mbps))).join(", ");
            println!(
                "| {name} | {median:.0}{judged} | {least:.0} .. {most:.0} | {whole} of {} | {:.1}{} |",
                runs.len(),
                median / best,
                if late.is_empty() { late } else { format!(", emulator NOT faithful at {late}") },
            );
        }
        println!();
        Ok(reached)
    }

    fn run(&self, args: &Args, tree: &str, loss: f64, peer: &Peer, seed: u64) -> Result<Run> {
        let folder = self.bed.folder().display();
        let (binary, key) = (self.bed.binary().display(), self.bed.key());
        let (from, loss) = (self.bed.source(), format!("{loss}%"));
        let (from, key) = (from.display(), key.display());
        // The data comes from the far host.
        let path = ["--rate", "1gbit", "--rtt", "200ms", "--queue", "50ms", "--loss", "0"];
        let path = [&path[..], &["--loss-back", &loss]].concat();
        let far = format!(
            "cd {folder}; export FROM={from} TREE={tree}; {}unshare --mount sh -ec 'mount --bind {folder}/passwd /etc/passwd; \
             mount --bind {folder}/shadow /etc/shadow; mount -t tmpfs none /run; mkdir /run/sshd; \
             exec {} -D -e -f {folder}/sshd' 2>/dev/null & \
             exec {binary} serve -q --no-remember --key {key} --root {from} --ftp 0.0.0.0:2121 \
             --ftp-anonymous",
            peer.far,
            self.sshd.display(),
        );
        let near = format!(
            "export LONGHAUL={binary} KEY={key} CONFIG={folder}/ssh FROM={from} TREE={tree}; \
             cd {folder}; rm -rf in; mkdir in; sleep 1; \
             until [ ! -e ticket ] || grep -q blob ticket; do sleep 0.1; done; start=$(date +%s%N); \
             timeout -s INT -k 5 {} sh -c '{}' >&2; code=$?; end=$(date +%s%N); \
             bytes=$(du -s --block-size=1 in | cut -f1); \
             diff -rq {from}/{tree} in/{tree} >&2 && same=true || same=false; \
             rm -rf in ticket .sendme*; \
             echo \"{{\\\"ns\\\": $((end - start)), \\\"bytes\\\": $bytes, \\\"code\\\": $code, \
             \\\"same\\\": $same}}\"",
            args.seconds,
            peer.fetch.replace('\'', r"'\''"),
        );
        let crossing =
            Crossing { path: &path, congestion_control: &args.cc, seed: Some(seed), far, near };
        let (told, report) = crossing.run(self.bed.build())?;
        let figure = |name: &str| told[name].as_f64().context("no figure");
        let is_whole = told["same"] == Value::Bool(true);
        let is_late = figure("ns")? >= args.seconds as f64 * 1e9;
        ensure!(is_whole || is_late, "it failed, or its tree differs: {told}");
        Ok(Run {
            mbps: figure("bytes")? * 8e3 / figure("ns")?,
            is_whole,
            is_faithful: report["faithful"] == true,
        })
    }
}
