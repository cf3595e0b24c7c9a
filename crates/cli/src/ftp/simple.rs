//! Commands of `longhaul ftp` that move no files: FTP's own, and how things stand.

use anyhow::{Context, bail, ensure};
use transfer::Notes;

use super::commands::COMMANDS;
use super::here::Here;
use super::show::Shown;

/// Connections when `mult` does not say how many (paper 3, section 2.2).
const STREAMS_DEFAULT: u16 = 4;

impl Here {
    /// A command that moves no file.
    pub async fn simple(&mut self, command: &str, arguments: &[&str]) -> anyhow::Result<()> {
        match (command, arguments) {
            ("help", names) => {
                let wanted = |name: &str| names.is_empty() || names.contains(&name);
                let commands = COMMANDS.iter().filter(|(name, _)| wanted(name));
                commands.for_each(|(name, what)| say!("{name:<10} {what}"));
            }
            ("close", []) => {
                self.close().await;
                self.url = None;
            }
            ("!", [line]) => shell(line).await?,
            ("lcd", []) => {
                let home =
                    std::env::var_os("HOME").context("no home is known: name a directory")?;
                std::env::set_current_dir(home).context("cannot go home")?;
            }
            ("lcd", [path]) => {
                std::env::set_current_dir(path).with_context(|| format!("cannot go to {path}"))?;
            }
            ("lpwd", []) => say!("{}", std::env::current_dir()?.display()),
            ("ls" | "dir" | "nlist", _) => self.list(command, arguments).await?,
            ("mdelete", [_, ..]) => self.delete_matching(arguments).await?,
            ("mult", _) => self.mult(arguments).await?,
            ("status", []) => self.status().await?,
            _ => self.own(command, arguments).await?,
        }
        Ok(())
    }

    /// Commands that are one of FTP's own.
    async fn own(&mut self, command: &str, arguments: &[&str]) -> anyhow::Result<()> {
        let client = self.client().await?;
        let done = match (command, arguments) {
            ("cd", [_]) | ("cdup", []) => {
                match arguments {
                    [path] => client.done_with("CWD", path.as_bytes()).await?,
                    _ => client.done("CDUP").await?,
                };
                self.names.set(Vec::new());
                return self.remember().await;
            }
            ("pwd", []) => {
                say!("{}", Shown(&client.here().await?));
                return Ok(());
            }
            ("type", []) => {
                say!("{}", if client.is_ascii() { "ascii" } else { "binary" });
                return Ok(());
            }
            ("binary" | "ascii", []) | ("type", ["ascii" | "binary"]) => {
                client.set_ascii([command].iter().chain(arguments).any(|word| *word == "ascii"));
                return Ok(());
            }
            ("passive" | "active", []) => {
                client.set_active(command == "active");
                self.options.active = command == "active";
                return Ok(());
            }
            ("size", [path]) => {
                let size = client.size(path.as_bytes()).await?;
                say!("{}", size.context("the server does not tell")?);
                return Ok(());
            }
            ("modtime", [path]) => {
                let time = client.modified(path.as_bytes()).await?;
                say!("{}", ftp::time::stamp(time.context("the server does not tell")?));
                return Ok(());
            }
            ("hash", [path]) => client.hash(path.as_bytes()).await?,
            ("delete", [path]) => client.done_with("DELE", path.as_bytes()).await?,
            ("mkdir", [path]) => client.done_with("MKD", path.as_bytes()).await?,
            ("rmdir", [path]) => client.done_with("RMD", path.as_bytes()).await?,
            ("chmod", [mode, path]) => {
                client.done_with(&format!("SITE CHMOD {mode}"), path.as_bytes()).await?
            }
            ("rename", [from, to]) => {
                client.done_with("RNFR", from.as_bytes()).await?;
                client.done_with("RNTO", to.as_bytes()).await?
            }
            ("features", []) => client.done("FEAT").await?,
            ("system", []) => client.done("SYST").await?,
            ("remotehelp", words) => client.done_with("HELP", words.join(" ").as_bytes()).await?,
            ("site", [_, ..]) => client.done_with("SITE", arguments.join(" ").as_bytes()).await?,
            ("quote", [_, ..]) => client.ask(&arguments.join(" ")).await?,
            _ => bail!("no such command, or not with these arguments: `help` lists them"),
        };
        done.lines.iter().for_each(|line| say!("{}", Shown(line)));
        Ok(())
    }

    async fn list(&mut self, command: &str, arguments: &[&str]) -> anyhow::Result<()> {
        ensure!(arguments.len() <= 1, "one name, or none");
        let path = arguments.first().copied().unwrap_or_default();
        let verb = if command == "dir" { "LIST" } else { "NLST" };
        let names = self.names.clone();
        let text = self.client().await?.listing(verb, path.as_bytes()).await?;
        let lines = text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_end);
        let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
        lines.iter().for_each(|line| say!("{}", Shown(line)));
        if verb == "NLST" && path.is_empty() {
            names
                .set(lines.iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect());
        }
        Ok(())
    }

    async fn mult(&mut self, arguments: &[&str]) -> anyhow::Result<()> {
        let wanted = match arguments {
            [] => STREAMS_DEFAULT,
            [number] => super::args::streams(number).map_err(anyhow::Error::msg)?,
            _ => bail!("mult wants one number of connections"),
        };
        self.options.streams = wanted;
        let client = self.client().await?;
        client.set_streams(wanted.into()).await?;
        match (wanted, client.streams_there()) {
            (0 | 2.., 1) => tell!("the server knows nothing of it: one connection a file"),
            _ => tell!("at most {} connections a file", client.streams()),
        }
        Ok(())
    }

    async fn status(&mut self) -> anyhow::Result<()> {
        let Some(url) = self.url.clone() else {
            say!("no server");
            return Ok(());
        };
        let client = self.client().await?;
        let user = url.user.as_deref().unwrap_or("anonymous");
        let secure = if client.is_secure() { "TLS" } else { "in clear" };
        let mode = if client.is_active() { "active" } else { "passive" };
        let kind = if client.is_ascii() { "ascii" } else { "binary" };
        say!("{user} at {}:{}, {secure}, {mode}, {kind}", url.host, url.port);
        say!(
            "at most {} connections a file (the server takes {})",
            client.streams(),
            client.streams_there()
        );
        if let Some(fingerprint) = client.fingerprint() {
            say!("certificate {fingerprint}");
        }
        Ok(())
    }

    /// Deletes the files whose names match.
    async fn delete_matching(&mut self, patterns: &[&str]) -> anyhow::Result<()> {
        let mut notes = Notes::default();
        let found = self.matching(patterns, &mut notes).await;
        // They may tell why nothing matches.
        notes.iter().for_each(|note| tell!("{note}"));
        let mut failed = notes.failed();
        for (path, _) in found? {
            match self.client().await?.done_with("DELE", &path).await {
                Ok(_) => tell!("deleted {}", Shown(&path)),
                Err(error) if error.is_refusal() => {
                    tell!("{error}");
                    failed += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
        ensure!(failed == 0, "{failed} failed");
        Ok(())
    }
}

/// Runs a line in the user's shell, or a shell alone.
async fn shell(line: &str) -> anyhow::Result<()> {
    let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    let mut command = tokio::process::Command::new(shell);
    if !line.is_empty() {
        command.args(["-c", line]);
    }
    let status = command.status().await.context("cannot start a shell")?;
    ensure!(status.success(), "the command has ended with {status}");
    Ok(())
}
