//! `longhaul ftp`: reads commands, with editing, completion and history at a terminal.

use std::io::{BufRead, IsTerminal};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use ftp::client::ClientError;
use rustix::process::Signal;
use rustyline::completion::{Completer, FilenameCompleter, Pair, Quote, escape, unescape};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Editor, Helper, Highlighter, Hinter, Validator};

use super::args::Ftp;
use super::commands::{COMMANDS, named, quoted, unfinished};
use super::connect::FtpUrl;
use super::here::{Here, Next};
use crate::FAILED;
use crate::args::usage;
use crate::signals::{self, Signals};

/// `longhaul ftp`.
pub fn run(options: Ftp) -> anyhow::Result<ExitCode> {
    let url = FtpUrl::read_host(&options.host).unwrap_or_else(|why| usage("ftp", &why));
    let runtime = tokio::runtime::Runtime::new().context("cannot start threads")?;
    let names = Names::default();
    let mut here = Here::new(options, names.clone());
    match runtime.block_on(here.begin(url)) {
        Ok(Next::Stopped(signal)) => return Ok(stopped(signal)),
        Ok(_) => {}
        Err(error) if !std::io::stdin().is_terminal() => return Err(error),
        Err(error) => tell!("{}", crate::sentence(&error)),
    }
    watch_signals(&runtime, &here)?;
    match std::io::stdin().is_terminal() {
        true => at_terminal(&runtime, here, names),
        false => from_pipe(&runtime, here),
    }
}

/// From now on a signal between two commands ends the session.
fn watch_signals(runtime: &tokio::runtime::Runtime, here: &Here) -> anyhow::Result<()> {
    let _here = runtime.enter();
    let (mut signals, stops) = (Signals::catch()?, here.stopper());
    let has_editor = std::io::stdin().is_terminal();
    runtime.spawn(async move {
        loop {
            let signal = signals.next().await;
            // It is the editor that sees Ctrl-C between commands.
            let is_key = has_editor && signal == Signal::INT;
            if !is_key && !stops(signal) {
                std::process::exit(signals::code(signal).into());
            }
        }
    });
    Ok(())
}

fn stopped(signal: Signal) -> ExitCode {
    tell!("longhaul: {}", ClientError::Stopped);
    ExitCode::from(signals::code(signal))
}

/// The first command that fails ends it, as in a script.
fn from_pipe(runtime: &tokio::runtime::Runtime, mut here: Here) -> anyhow::Result<ExitCode> {
    for line in std::io::stdin().lock().lines() {
        let line = line.context("cannot read commands")?;
        match runtime.block_on(here.run(&line))? {
            Next::Go => {}
            Next::End => break,
            Next::Stopped(signal) => return Ok(stopped(signal)),
        }
    }
    runtime.block_on(here.close());
    Ok(ExitCode::SUCCESS)
}

fn at_terminal(
    runtime: &tokio::runtime::Runtime,
    mut here: Here,
    names: Names,
) -> anyhow::Result<ExitCode> {
    let mut editor: Editor<Words, FileHistory> =
        Editor::new().context("cannot use the terminal")?;
    editor.set_helper(Some(Words { names, files: FilenameCompleter::new() }));
    let history = crate::keys::home::folder()?.join("ftp-history");
    // There is none the first time.
    let _ = editor.load_history(&history);
    let code = loop {
        match editor.readline("ftp> ") {
            Ok(line) => {
                let _ = editor.add_history_entry(&line);
                match runtime.block_on(here.run(&line)) {
                    Ok(Next::Go) => {}
                    Ok(Next::End) => break ExitCode::SUCCESS,
                    Ok(Next::Stopped(Signal::INT)) => tell!("{}", ClientError::Stopped),
                    Ok(Next::Stopped(signal)) => break stopped(signal),
                    Err(error) => tell!("{}", crate::sentence(&error)),
                }
            }
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break ExitCode::SUCCESS,
            Err(_) => break ExitCode::from(FAILED),
        }
    };
    runtime.block_on(here.close());
    // Lost history is no failure.
    let _ = editor.save_history(&history);
    Ok(code)
}

/// What the last listing of the server's current directory showed, for completion.
#[derive(Clone, Default)]
pub struct Names(Arc<Mutex<Vec<String>>>);

impl Names {
    /// Takes a new listing.
    pub fn set(&self, names: Vec<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    fn beginning(&self, word: &str) -> Vec<String> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.iter().filter(|name| name.starts_with(word)).cloned().collect()
    }
}

#[derive(Helper, Highlighter, Hinter, Validator)]
struct Words {
    names: Names,
    files: FilenameCompleter,
}

impl Completer for Words {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (words, start, word) = unfinished(&line[..at]);
        let pair = |name: String| Pair { replacement: quoted(&name), display: name };
        let Some(command) = words.first() else {
            let commands = COMMANDS.iter().filter(|(name, _)| name.starts_with(&word));
            return Ok((start, commands.map(|(name, _)| pair((*name).to_owned())).collect()));
        };
        let found = match named(command) {
            Ok("put" | "mput" | "reput" | "append" | "lcd") => self.files_beginning(&word)?,
            _ => self.names.beginning(&word).into_iter().map(pair).collect(),
        };
        Ok((start, found))
    }
}

impl Words {
    /// Asks in the completer's own quotation marks, and answers in those of commands.
    fn files_beginning(&self, word: &str) -> rustyline::Result<Vec<Pair>> {
        const ESCAPE: Option<char> = Some('\\');
        let is_special = |c| matches!(c, '"' | '\\');
        let asked = format!("\"{}", escape(word.to_owned(), ESCAPE, is_special, Quote::Double));
        let (_, mut found) = self.files.complete_path(&asked, asked.len())?;
        for pair in &mut found {
            pair.replacement = quoted(&unescape(&pair.replacement, ESCAPE));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_completed_is_one_word() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["two words", "it's \"so\""] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let names = Names::default();
        names.set(vec!["plain".to_owned(), "a file".to_owned(), "a\"b'c".to_owned()]);
        let completer = Words { names, files: FilenameCompleter::new() };
        let history = rustyline::history::MemHistory::new();
        // The words of a line, once its last is completed by what alone begins so.
        let completed = |line: &str| {
            let context = rustyline::Context::new(&history);
            let (start, found) = completer.complete(line, line.len(), &context).unwrap();
            let [Pair { replacement, .. }] = &found[..] else { panic!("{line}: {}", found.len()) };
            super::super::commands::words(&format!("{}{replacement}", &line[..start])).unwrap()
        };
        assert_eq!(completed("mod"), ["modtime"]);
        assert_eq!(completed("get pl"), ["get", "plain"]);
        assert_eq!(completed("get \"a f"), ["get", "a file"]);
        assert_eq!(completed("get plain 'a\""), ["get", "plain", "a\"b'c"]);
        let here = folder.path().display().to_string();
        assert_eq!(completed(&format!("put {here}/tw")), ["put", &format!("{here}/two words")]);
        assert_eq!(
            completed(&format!("send \"{here}/it's")),
            ["send", &format!("{here}/it's \"so\"")]
        );
    }
}
