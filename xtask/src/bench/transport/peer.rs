//! How each peer is started, and how what arrives is counted.
//!
//! Scripts run under `sh`, the sender's on the near host, the receiver's on the far one, in the
//! folder of this run, where the receiver has a RAM disk `in`. Their environment: `LONGHAUL` (the
//! product), `PEERS` (programs built for the benchmark), `SOURCE` (a folder with `file`, which lasts
//! longer than a run), `TIME` (seconds).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::super::lab::target_directory;
use crate::command;

/// How it is told what arrived, in the file `count`.
#[derive(Clone, Copy, Debug)]
pub enum Count {
    /// `longhaul cp --json`, each line behind the nanoseconds of the clock; the first has no more.
    Longhaul,
    /// `iperf3 --json` of the server, which counts from when all its connections stand. Beside it `near-start`, the
    /// nanoseconds of the clock when the client began, and `near-second`: those when its first second was over, and how
    /// long that was.
    Iperf3,
    /// What the sender's kernel knows to be delivered, at intervals: `== NANOSECONDS`, then what `ss` tells of each
    /// connection. Beside it `near-start`. Unlike what an application is given, that leaves out nothing that arrived
    /// behind a hole, as ours does not: 16 connections in loss hold back whole seconds, and hand them over later.
    Kernel,
    /// Lines `SECONDS BYTES`, from the start of the connection: without its handshake, which ours and iperf3 count.
    Pairs,
}

/// Someone who moves data.
pub struct Peer {
    /// What the table calls it.
    pub name: &'static str,
    /// The kernel's congestion control in the lab.
    pub kernel_cc: &'static str,
    /// The sender's script; the run is over when it ends.
    pub near: &'static str,
    /// The receiver's script.
    pub far: &'static str,
    /// What is in `count`, which one of the two writes.
    pub count: Count,
    /// Programs it wants, and where they come from.
    pub wants: &'static [(&'static str, &'static str)],
}

const TIME: &[(&str, &str)] = &[("/usr/bin/time", "apt-get install time")];
const KERNEL: &[(&str, &str)] =
    &[("iperf3", "apt-get install iperf3"), ("ss", "apt-get install iproute2")];
const SING_BOX: &[(&str, &str)] = &[(
    "sing-box",
    "go install -tags with_quic github.com/sagernet/sing-box/cmd/sing-box@v1.14.1, on the PATH",
)];
const SRT: &[(&str, &str)] = &[("srt-file-transmit", "apt-get install srt-tools")];

/// Runs iperf3's client with more options.
macro_rules! iperf3_client {
    ($options:literal) => {
        concat!(
            "date +%s%N >near-start; iperf3 --forceflush --time $TIME --client ",
            $options,
            " | { while read -r line; do case \"$line\" in *' 0.00-'*) end=${line#* 0.00-}; \
             echo \"$(date +%s%N) ${end%% *}\"; break; esac; done; cat >&2; } >near-second"
        )
    };
}

/// Runs iperf3 over so many of the kernel's connections, which write `count`.
macro_rules! kernel_client {
    ($connections:literal) => {
        concat!(
            "sleep 1; { while sleep 0.5; do echo \"== $(date +%s%N)\"; \
             ss --tcp --info --no-header --oneline dst $LONGHAUL_FAR; done >count; } & ",
            "date +%s%N >near-start; iperf3 --time $((TIME + 1)) --parallel ",
            $connections,
            " --client $LONGHAUL_FAR; kill $!"
        )
    };
}

/// It counts nothing: the sender's side does.
const IPERF3_SERVER: &str = "exec iperf3 --server --one-off >&2";

const PEERS: &[Peer] = &[
    Peer {
        name: "ours",
        kernel_cc: "cubic",
        near: "exec timeout -s INT $((TIME + 3)) /usr/bin/time -f %M -o near-memory \
               \"$LONGHAUL\" serve --quiet --no-remember --key \"$KEY\" --root \"$SOURCE\"",
        far: "sleep 1; { date +%s%N; timeout -s INT $((TIME + 1)) \
              /usr/bin/time -f %M -o far-memory \"$LONGHAUL\" cp --transport udp --json --key \"$KEY\" \
              lh://$LONGHAUL_NEAR/file in/ | while read -r line; do echo \"$(date +%s%N) $line\"; \
              done; } >count",
        count: Count::Longhaul,
        wants: TIME,
    },
    Peer {
        name: "cubic",
        kernel_cc: "cubic",
        near: kernel_client!("1"),
        far: IPERF3_SERVER,
        count: Count::Kernel,
        wants: KERNEL,
    },
    Peer {
        name: "bbr",
        kernel_cc: "bbr",
        near: kernel_client!("1"),
        far: IPERF3_SERVER,
        count: Count::Kernel,
        wants: KERNEL,
    },
    Peer {
        name: "cubic16",
        kernel_cc: "cubic",
        near: kernel_client!("16"),
        far: IPERF3_SERVER,
        count: Count::Kernel,
        wants: KERNEL,
    },
    Peer {
        name: "bbr16",
        kernel_cc: "bbr",
        near: kernel_client!("16"),
        far: IPERF3_SERVER,
        count: Count::Kernel,
        wants: KERNEL,
    },
    Peer {
        name: "quinn-cubic",
        kernel_cc: "cubic",
        near: "sleep 1; exec \"$PEERS/quinn\" send $LONGHAUL_FAR:4433 cubic $TIME",
        far: "exec \"$PEERS/quinn\" receive 0.0.0.0:4433 >count",
        count: Count::Pairs,
        wants: &[],
    },
    Peer {
        name: "quinn-bbr",
        kernel_cc: "cubic",
        near: "sleep 1; exec \"$PEERS/quinn\" send $LONGHAUL_FAR:4433 bbr $TIME",
        far: "exec \"$PEERS/quinn\" receive 0.0.0.0:4433 >count",
        count: Count::Pairs,
        wants: &[],
    },
    Peer {
        name: "brutal",
        kernel_cc: "bbr",
        near: concat!(
            "sleep 1; cat >client.json <<END\n",
            include_str!("brutal-client.json"),
            "\nEND\n",
            "sing-box run -c client.json & sleep 1; ",
            iperf3_client!("127.0.0.1 --port 5200"),
            "; kill $!",
        ),
        far: concat!(
            "sing-box generate tls-keypair peer >pair.pem; ",
            "sed -n '/BEGIN PRIVATE/,/END PRIVATE/p' pair.pem >key.pem; ",
            "sed -n '/BEGIN CERT/,/END CERT/p' pair.pem >cert.pem; cat >server.json <<END\n",
            include_str!("brutal-server.json"),
            "\nEND\n",
            "sing-box run -c server.json & ",
            "exec iperf3 --server --one-off --json --interval 0.5 >count",
        ),
        count: Count::Iperf3,
        wants: SING_BOX,
    },
    Peer {
        name: "udt",
        kernel_cc: "cubic",
        near: "sleep 1; exec \"$PEERS/udt\" send $LONGHAUL_FAR 9000 $TIME",
        far: "exec \"$PEERS/udt\" receive 9000 >count",
        count: Count::Pairs,
        wants: &[("g++", "apt-get install g++ libudt-dev")],
    },
    Peer {
        name: "srt",
        kernel_cc: "cubic",
        near: "sleep 1; exec timeout $((TIME + 1)) srt-file-transmit -q \"file://$SOURCE/file\" \
               \"srt://$LONGHAUL_FAR:9000?transtype=file&fc=200000&sndbuf=256000000\"",
        far: "srt-file-transmit -q \
              'srt://:9000?mode=listener&transtype=file&fc=200000&rcvbuf=256000000' \
              file://$PWD/in & until [ -s in/file ]; do sleep 0.01; done; start=$(date +%s%N); \
              while sleep 0.5; do \
              now=$(($(date +%s%N) - start)); \
              echo \"$((now / 1000000000)).$(printf %09d $((now % 1000000000))) \
              $(stat -c %s in/file)\" >>count; done",
        count: Count::Pairs,
        wants: SRT,
    },
];

impl Peer {
    /// By the name that the table calls it.
    pub fn find(name: &str) -> Result<&'static Self> {
        let known = || PEERS.iter().map(|peer| peer.name).collect::<Vec<_>>().join(", ");
        PEERS
            .iter()
            .find(|peer| peer.name == name)
            .with_context(|| format!("no peer is called {name:?}; there are {}", known()))
    }

    /// Whether it is our transport.
    pub fn is_ours(&self) -> bool {
        self.name == "ours"
    }

    /// Whether the product has a part in it.
    pub fn is_product(&self) -> bool {
        [self.near, self.far].iter().any(|script| script.contains("\"$LONGHAUL\""))
    }
}

/// Checks for programs, and says where one comes from that is missing.
pub fn require(programs: &[(&str, &str)]) -> Result<()> {
    for (program, source) in programs {
        let look = ["-c", "command -v \"$0\" >/dev/null", program];
        let found = Command::new("sh").args(look).status().context("cannot start a shell")?;
        ensure!(found.success(), "{program} is missing: {source}");
    }
    Ok(())
}

/// Checks for what the peers want, and builds what has to be built; gives the folder of it.
pub fn build(peers: &[&Peer]) -> Result<PathBuf> {
    peers.iter().try_for_each(|peer| require(peer.wants))?;
    let folder = target_directory()?.join("peers");
    std::fs::create_dir_all(&folder)?;
    let wanted = |start: &str| peers.iter().any(|peer| peer.name.starts_with(start));
    if wanted("quinn") {
        copy(&build_quinn()?, &folder.join("quinn"))?;
    }
    if wanted("udt") {
        let mut compile = Command::new("g++");
        compile.args(["-O2", "-o"]).arg(folder.join("udt")).arg("xtask/peers/udt/udt.cc");
        command::run(compile.args(["-ludt", "-lpthread"]))?;
    }
    Ok(folder)
}

/// Builds quinn's program; its path.
pub fn build_quinn() -> Result<PathBuf> {
    let folder = target_directory()?.join("peers/build");
    let manifest = "xtask/peers/quinn/Cargo.toml";
    let mut cargo = command::cargo(&["build", "--release", "--locked", "--manifest-path"]);
    command::run(cargo.arg(manifest).arg("--target-dir").arg(&folder))?;
    Ok(folder.join("release/longhaul-peer-quinn"))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::copy(from, to).with_context(|| from.display().to_string())?;
    Ok(())
}
