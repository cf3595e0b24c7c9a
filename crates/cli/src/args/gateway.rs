//! `longhaul gateway`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Make every TCP connection across a long path fast, with no host touched
///
/// A gateway stands on each side of the path, where the hosts' packets pass. It takes their TCP
/// connections and carries them over one encrypted UDP connection, the trunk, to the other. Hosts
/// keep their addresses and ports; a server that refuses, or does not answer, does so to the
/// client. Without the other gateway connections go direct.
#[derive(Args)]
#[command(after_long_help = LONG_HELP)]
pub struct Gateway {
    #[command(subcommand)]
    pub action: GatewayAction,
}

const LONG_HELP: &str = "\
A configuration file, for the gateway between the hosts at lan0 and the path (as root):
  [trunk]
  peer = \"198.51.100.7:7273\"   # the other gateway; there: listen = \"[::]:7273\"
  key = \"/etc/longhaul/trunk\"  # longhaul keygen --shared FILE, brought to both

  [intercept]                  # taken are connections
  interfaces = [\"lan0\"]        #   that come in here
  to = [\"10.20.0.0/16\"]        #   and go there

Gateways that stand in for the other one are named in trunk.standby; [[intercept.weights]] with
ports, to and weight says which connections get more of the trunk than others of their client.

Without root, and without [intercept], programs that know proxies have one (SOCKS5 and HTTP
CONNECT), and others a port for each server:
  [proxy]
  listen = \"127.0.0.1:1080\"
  [[proxy.forward]]
  listen = \"127.0.0.1:8080\"
  to = \"intranet.example:80\"

A page to look at, with /metrics for Prometheus and /dashboard.json for Grafana:
  [web]
  listen = \"127.0.0.1:7275\"";

/// What to do.
#[derive(Subcommand)]
pub enum GatewayAction {
    /// Run a gateway until it is told to end
    Run {
        #[command(flatten)]
        config: ConfigFile,
        /// Say nothing but errors, and nothing of single connections
        #[arg(short, long)]
        quiet: bool,
        /// Write what happens as one JSON object a line: one for each connection
        #[arg(long, conflicts_with = "quiet")]
        json: bool,
    },
    /// Show what the gateway that runs here is doing
    Status {
        /// Write it as JSON, with the history of the last ten minutes
        #[arg(long)]
        json: bool,
    },
    /// Look for what is wrong with this host, the rules or the other gateway, and say how to mend it
    Doctor {
        #[command(flatten)]
        config: ConfigFile,
        /// Write one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Make the gateway a service of this host (systemd), and set the kernel for it
    Install {
        #[command(flatten)]
        config: ConfigFile,
        /// Only show what would be done
        #[arg(long)]
        dry_run: bool,
    },
    /// Leave the host as it was before `install`
    Uninstall {
        /// Only show what would be done
        #[arg(long)]
        dry_run: bool,
    },
    /// Print the kernel's rules (nftables) that `run` would put in force
    Rules(ConfigFile),
}

/// Where the settings are.
#[derive(Args)]
pub struct ConfigFile {
    /// The gateway's settings (TOML)
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    pub path: PathBuf,
}
