//! Scenarios by name or from a file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use path::{MAX_SCENARIO, Preset};
use rustix::fs::OFlags;

/// The longest trace file that is read, in bytes: the most lines there may be, with room for
/// their digits.
const MAX_TRACE_FILE: u64 = 128 << 20;

/// The text of a scenario, and where the files that it names are.
pub struct Source {
    /// As it was asked for.
    pub name: String,
    pub text: String,
    folder: PathBuf,
}

impl Source {
    /// The scenario of this name, else the one in this file.
    pub fn find(name: &Path) -> anyhow::Result<Self> {
        if let Some(preset) = name.to_str().and_then(Preset::find) {
            let (name, text) = (preset.name.to_owned(), preset.source.to_owned());
            return Ok(Self { name, text, folder: PathBuf::new() });
        }
        let text = read(name, MAX_SCENARIO as u64).with_context(|| {
            format!("no scenario is called {0}, and no file {0} can be read", name.display())
        })?;
        // Files that it names stand beside it.
        let folder = name.parent().unwrap_or(Path::new("")).to_owned();
        Ok(Self { name: name.display().to_string(), text, folder })
    }

    /// The text of a file that it names.
    pub fn load(&self, file: &str) -> Result<String, String> {
        read_trace(&self.folder, file)
    }
}

/// The text of a trace that is named from this folder. A lab reads it while it runs, so it never
/// waits for a writer, as a FIFO does.
pub fn read_trace(folder: &Path, file: &str) -> Result<String, String> {
    let path = folder.join(file);
    let open = || {
        let no_wait = OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(no_wait).open(&path)?;
        let regular = file.metadata()?.is_file();
        regular.then_some(file).ok_or_else(|| io::Error::other("it is not a regular file"))
    };
    let text = open().and_then(|file| text(file, MAX_TRACE_FILE));
    text.map_err(|error| format!("{}: {error}", path.display()))
}

/// The text of a file of at most this length.
fn read(path: &Path, most: u64) -> io::Result<String> {
    text(File::open(path)?, most)
}

fn text(file: File, most: u64) -> io::Result<String> {
    let mut text = String::new();
    file.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        return Err(io::Error::other(format!("it is longer than {most} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lab_waits_for_no_trace() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        std::fs::write(folder.path().join("trace"), "0 1").unwrap();
        assert_eq!(read_trace(folder.path(), "trace"), Ok("0 1".to_owned()));
        for name in ["fifo", "/dev/zero", "."] {
            let error = read_trace(folder.path(), name).unwrap_err();
            assert!(error.contains("not a regular file"), "{error}");
        }
    }
}
