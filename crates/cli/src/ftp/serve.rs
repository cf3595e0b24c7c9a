//! `longhaul serve --ftp`: the FTP server beside the other one, and `longhaul ftp-user`.

use std::io::{IsTerminal, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use ftp::server::{Config, Event, Limits, Server, Users, What};
use ftp::session::Settings;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use units::{Bytes, Rate};

use super::args::{FtpServe, FtpUser, UserCommand};
use crate::args::Serve;
use crate::keys::home::folder;
use crate::serve::directory;

/// Only root may listen at ports below this, by the system's default.
const LOW_PORTS: u16 = 1024;

/// The longest password that is read from standard input.
const PASSWORD_MAX: u64 = 4096;

/// Listens, when the options ask for it.
pub async fn listen(serve: &Serve, root: &Path) -> anyhow::Result<Option<Server>> {
    let (options, quiet) = (&serve.ftp, serve.quiet);
    let Some(address) = options.listen else { return Ok(None) };
    let file = users_file(options.users.as_deref())?;
    let users = Users::read(&file)?;
    ensure!(
        options.anonymous || !users.is_empty(),
        "nobody could log in by FTP: name users with `longhaul ftp-user set NAME --root DIR`, or add \
         --ftp-anonymous",
    );
    let config = Config {
        settings: Settings {
            requires_tls: options.require_tls,
            streams: options.streams.into(),
            ..Settings::default()
        },
        anonymous: options.anonymous.then(|| root.to_owned()),
        users,
        read_only: serve.read_only,
        policy: options.sender.policy,
        congestion_control: serve.tcp_cc.clone(),
        passive_ports: options.passive.clone(),
        limits: Limits {
            sessions: options.sessions.into(),
            per_address: options.per_address.into(),
            per_user: options.per_user.into(),
        },
        tls: Some(certificate(options)?),
        lax_tls_end: options.lax_tls_end,
        implicit_tls: options.tls,
        observer: Arc::new(move |event| {
            if !quiet {
                tell_event(event);
            }
        }),
    };
    let server = Server::bind(address, config).await;
    let tls = options.tls.map(|tls| format!(" and {tls}")).unwrap_or_default();
    Ok(Some(server.with_context(|| {
        let low = " (ports below 1024 need root; another will do, as in --ftp [::]:2121)";
        let low = if address.port() < LOW_PORTS { low } else { "" };
        format!("cannot listen for FTP at {address}{tls}{low}")
    })?))
}

/// A server that runs.
pub struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<usize>>,
}

impl Running {
    /// Starts it, and says where.
    pub fn start(server: Server, quiet: bool) -> anyhow::Result<Self> {
        let address = server.address().context("the FTP server has no address")?;
        let tls_address = server.tls_address().context("the FTP server has no address")?;
        if !quiet {
            say!("FTP on {address}");
            if let Some(address) = tls_address {
                say!("FTP under TLS on {address}");
            }
        }
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.serve(async {
            let _ = stopped.await;
        }));
        Ok(Self { stop, task })
    }

    /// Stops it, and tells how many transfers that cut.
    pub async fn stop(self) -> usize {
        drop(self.stop);
        self.task.await.ok().and_then(Result::ok).unwrap_or(0)
    }
}

/// The named certificate, or the one in `LONGHAUL_HOME`, made when it is missing.
fn certificate(options: &FtpServe) -> anyhow::Result<Arc<ftp::tls::ServerConfig>> {
    if let (Some(chain), Some(key)) = (&options.cert, &options.cert_key) {
        return ftp::tls::server(chain, key).context("cannot use that certificate");
    }
    let home = folder()?;
    let (chain, key) = (home.join("ftp-cert.pem"), home.join("ftp-key.pem"));
    if !chain.exists() {
        make_home(&home)?;
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        ftp::tls::write_self_signed(&chain, &key, vec![name, "localhost".to_owned()])
            .with_context(|| format!("cannot write a certificate to {}", home.display()))?;
    }
    ftp::tls::server(&chain, &key).context("cannot use the certificate")
}

pub(super) fn make_home(home: &Path) -> anyhow::Result<()> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(home);
    made.with_context(|| format!("cannot make {}", home.display()))
}

fn users_file(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    match named {
        Some(path) => Ok(path.to_owned()),
        None => Ok(folder()?.join("ftp-users")),
    }
}

fn tell_event(event: &Event) {
    let (peer, user) = (event.peer, event.user.as_deref().unwrap_or("nobody"));
    match &event.what {
        What::LoggedIn => say!("{peer} ftp {user}: logged in"),
        What::WrongPassword(name) => say!("{peer} ftp wrong name or password for {name:?}"),
        What::Transfer { received, path, bytes, took, connections, used, failure } => {
            let way = if *received { "put" } else { "get" };
            let over = match connections {
                all if all == used => all.to_string(),
                all => format!("{used} of {all}"),
            };
            let rate = Rate::of(Bytes(*bytes), *took).map(|rate| format!(", {rate}"));
            let end = failure.map(|failure| format!("; {failure}")).unwrap_or_default();
            say!(
                "{peer} ftp {user} {way} {path:?}: {} over {over}{}{end}",
                Bytes(*bytes),
                rate.unwrap_or_default(),
            );
        }
    }
}

/// `longhaul ftp-user`.
pub fn user(options: &FtpUser) -> anyhow::Result<ExitCode> {
    let file = users_file(options.file.as_deref())?;
    let mut users = Users::read(&file)?;
    match &options.what {
        UserCommand::Set { name, root, read_only } => {
            let root = directory(root)?;
            users.set(name, &read_password()?, root, !read_only)?;
        }
        UserCommand::Remove { name } => {
            ensure!(users.remove(name), "there is no user {name:?}: `longhaul ftp-user list`");
        }
        UserCommand::List => {
            for (name, account) in users.iter() {
                let access = if account.may_write { "read and write" } else { "read" };
                say!("{name}: {access} {}", account.root.display());
            }
            return Ok(ExitCode::SUCCESS);
        }
    }
    if let Some(home) = file.parent().filter(|_| options.file.is_none()) {
        make_home(home)?;
    }
    users.write(&file)?;
    Ok(ExitCode::SUCCESS)
}

/// Twice from the terminal, unseen; or the first line of standard input.
fn read_password() -> anyhow::Result<Vec<u8>> {
    if std::io::stdin().is_terminal() {
        let ask = |prompt| rpassword::prompt_password(prompt).context("cannot read a password");
        let password = ask("Password: ")?;
        if ask("Once more: ")? != password {
            bail!("the two passwords differ");
        }
        return Ok(password.into_bytes());
    }
    let mut bytes = Vec::new();
    std::io::stdin().take(PASSWORD_MAX).read_to_end(&mut bytes)?;
    let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(bytes.len());
    bytes.truncate(end);
    Ok(bytes)
}
