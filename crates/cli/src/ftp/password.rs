//! The password of a user, from the environment or from the terminal.

use std::io::{ErrorKind, IsTerminal};

use anyhow::{Context, bail};
use rustix::process::Signal;
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use tokio::sync::oneshot;

use crate::signals::Signals;

/// Holds a user's password, where no terminal can be asked.
pub const PASSWORD: &str = "LONGHAUL_FTP_PASSWORD";

/// Asks for it, unless the environment has it. A signal ends the question and leaves the terminal as it was.
pub async fn ask(user: &str) -> anyhow::Result<Result<String, Signal>> {
    if let Some(password) = std::env::var_os(PASSWORD) {
        let password = password.into_string().ok();
        return password.map(Ok).with_context(|| format!("{PASSWORD} is no text"));
    }
    let terminal = std::io::stdin();
    if !terminal.is_terminal() {
        bail!("no password for {user}: set {PASSWORD}, or run this at a terminal");
    }
    // Whoever asks raises Ctrl-C itself; were it not caught, the terminal would stay without an echo.
    let mut signals = Signals::catch()?;
    let before = tcgetattr(&terminal).context("cannot use the terminal")?;
    let question = format!("Password for {user}: ");
    let (tell, told) = oneshot::channel();
    // In a thread that nobody waits for: nothing but a line ends what reads one.
    std::thread::spawn(move || tell.send(rpassword::prompt_password(question)));
    let ended = async {
        loop {
            match signals.next().await {
                Signal::INT => {}
                signal => return signal,
            }
        }
    };
    tokio::select! {
        answer = told => match answer.context("cannot read a password")? {
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(Err(Signal::INT)),
            answer => answer.map(Ok).context("cannot read a password"),
        },
        signal = ended => {
            // The process ends, and with it what reads.
            let _ = tcsetattr(&terminal, OptionalActions::Now, &before);
            Ok(Err(signal))
        }
    }
}
