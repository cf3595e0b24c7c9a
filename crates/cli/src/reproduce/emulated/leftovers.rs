//! What is removed when a run is interrupted.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A shell that outlives us, however we end, just long enough to remove a folder. Ctrl-C ends all else:
/// labs go with us, and what runs in them.
pub struct Leftovers(Child);

impl Leftovers {
    /// Waits until its input ends, which it does when we do. What still runs may write meanwhile.
    const SCRIPT: &str = r#"
        read -r end
        for round in 1 2 3 4 5; do rm -rf "$1" && break; sleep 1; done"#;

    /// Of this folder.
    pub fn of(folder: &Path) -> io::Result<Self> {
        let mut shell = Command::new("sh");
        // Ctrl-C is for the foreground.
        shell.args(["-c", Self::SCRIPT, "sh"]).arg(folder).process_group(0);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        shell.spawn().map(Self)
    }
}

impl Drop for Leftovers {
    /// Removes what is left of it now.
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
