//! A gateway as a service of its host: a unit of systemd's, and the kernel's settings. Rules and
//! routes are put in force by the gateway itself when it starts, and go with it.

use std::fmt::{self, Write as _};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::doctor::{Setting, dotted, settings};
use crate::reuse;
use crate::rules;
use crate::sight::{self, AskError};

/// The unit's name.
pub const UNIT: &str = "longhaul-gateway.service";
const UNIT_FILE: &str = "etc/systemd/system/longhaul-gateway.service";
const SETTINGS_FILE: &str = "etc/sysctl.d/60-longhaul-gateway.conf";
/// What the settings were before, one a line: name and value.
const BEFORE_FILE: &str = "var/lib/longhaul/gateway-settings-before";

/// Why a gateway was not installed or removed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A file.
    #[error("cannot write {path}: {source}; run this as root")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// One of the kernel's settings.
    #[error("cannot set {name}: {source}; run this as root")]
    Set {
        /// Its name, below `/proc/sys`.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// Nothing is installed.
    #[error("no gateway is installed on this host")]
    Absent,
}

/// What `install` does: shown by its `Display`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Files and their contents, below the root.
    files: Vec<(&'static str, String)>,
    settings: Vec<Setting>,
    rules: String,
}

impl Plan {
    /// For a gateway of this configuration, which `file` holds, run by `program`; its identity is
    /// in `home`. Looks at the interfaces in the network namespace of the calling thread.
    pub fn new(config: &Config, file: &Path, program: &Path, home: &Path) -> Self {
        let settings = settings(config);
        let mut text =
            String::from("# For longhaul gateway; `longhaul gateway uninstall` removes it.\n");
        for (name, value) in &settings {
            let _ = writeln!(text, "{} = {value}", dotted(name));
        }
        let files = vec![(UNIT_FILE, unit(file, program, home)), (SETTINGS_FILE, text)];
        Self { files, settings, rules: rules::ruleset(config.intercept.as_ref(), true) }
    }

    /// Writes the files below `root`, and makes the settings, in the network namespace of the
    /// calling thread. A second time changes nothing of what was there before the first.
    ///
    /// # Errors
    /// [`InstallError`].
    pub fn apply(&self, root: &Path) -> Result<(), InstallError> {
        self.remember(&root.join(BEFORE_FILE))?;
        for (path, text) in &self.files {
            write(&root.join(path), text)?;
        }
        self.settings.iter().try_for_each(|(name, value)| set(name, value))
    }

    /// Notes what the settings are, but for those of which it is known already what they were.
    fn remember(&self, file: &Path) -> Result<(), InstallError> {
        let mut text = match fs::read_to_string(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read.map_err(|source| InstallError::Write { path: file.to_owned(), source })?,
        };
        for (name, _) in &self.settings {
            let known = text.lines().any(|line| line.split(' ').next() == Some(name));
            // A gateway that was killed has left its own value there.
            let killed = (name == reuse::NAME).then(reuse::before).flatten();
            let value = || killed.or_else(|| fs::read_to_string(proc(name)).ok());
            if !known && let Some(value) = value() {
                let _ = writeln!(text, "{name} {}", value.trim());
            }
        }
        write(file, &text)?;
        reuse::forget();
        Ok(())
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (path, text) in &self.files {
            writeln!(f, "write /{path}:\n{}", indented(text))?;
        }
        for (name, value) in &self.settings {
            writeln!(f, "set {} = {value}", dotted(name))?;
        }
        writeln!(f, "start {UNIT}, which puts these rules in force:\n{}", indented(&self.rules))
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

fn unit(file: &Path, program: &Path, home: &Path) -> String {
    format!(
        "[Unit]\n\
         Description=Longhaul gateway\n\
         Wants=network-online.target\n\
         After=network-online.target nftables.service\n\
         StartLimitIntervalSec=0\n\n\
         [Service]\n\
         ExecStart=\"{}\" gateway run --config \"{}\"\n\
         Environment=\"LONGHAUL_HOME={}\"\n\
         Restart=always\n\
         RestartSec=1\n\
         SuccessExitStatus=143\n\
         LimitNOFILE=1048576\n\
         NotifyAccess=main\n\
         FileDescriptorStoreMax=256\n\
         CapabilityBoundingSet=CAP_NET_ADMIN CAP_NET_RAW CAP_NET_BIND_SERVICE CAP_DAC_READ_SEARCH\n\
         NoNewPrivileges=yes\n\
         ProtectSystem=full\n\
         PrivateTmp=yes\n\n\
         [Install]\n\
         WantedBy=multi-user.target\n",
        program.display(),
        file.display(),
        home.display()
    )
}

/// Whether [`Plan::apply`] was called below `root`, and not taken back.
pub fn is_installed(root: &Path) -> bool {
    root.join(BEFORE_FILE).exists()
}

/// What is left of a gateway once it is uninstalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing, rules that a killed gateway left included.
    Nothing,
    /// The rules of one that seems to run here, not as a service.
    Running,
}

/// Takes back what [`Plan::apply`] did below `root`, once the service has been stopped.
///
/// # Errors
/// [`InstallError`].
pub fn uninstall(root: &Path) -> Result<Left, InstallError> {
    let before = root.join(BEFORE_FILE);
    let text = fs::read_to_string(&before).map_err(|_| InstallError::Absent)?;
    // The last first: what depends on another setting was set after it.
    for (name, value) in text.lines().rev().filter_map(|line| line.split_once(' ')) {
        set(name, value)?;
    }
    for path in [UNIT_FILE, SETTINGS_FILE, BEFORE_FILE] {
        let path = root.join(path);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(InstallError::Write { path, source });
            }
            _ => {}
        }
    }
    match sight::ask() {
        Err(AskError::NotRunning) => {
            rules::remove();
            reuse::forget();
            Ok(Left::Nothing)
        }
        _ => Ok(Left::Running),
    }
}

fn proc(name: &str) -> PathBuf {
    Path::new("/proc/sys").join(name)
}

/// What this network namespace does not have cannot be set in it.
fn set(name: &str, value: &str) -> Result<(), InstallError> {
    match fs::write(proc(name), value) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(InstallError::Set { name: dotted(name), source })
        }
        _ => Ok(()),
    }
}

/// Whole or not at all.
fn write(path: &Path, text: &str) -> Result<(), InstallError> {
    let fresh = path.with_extension("new");
    let attempt = || {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(&fresh, text)?;
        fs::rename(&fresh, path)
    };
    attempt().map_err(|source| InstallError::Write { path: path.to_owned(), source })
}
