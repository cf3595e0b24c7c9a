//! The crates of the workspace, as `cargo metadata` tells.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::command::cargo;

/// What `cargo metadata --no-deps` prints, as far as it matters here.
#[derive(Deserialize)]
pub struct Workspace {
    pub packages: Vec<Package>,
    workspace_root: String,
}

/// A member of the workspace.
#[derive(Deserialize)]
pub struct Package {
    pub name: String,
    /// From the root of the repository once loaded, as all paths here.
    pub manifest_path: String,
    pub dependencies: Vec<Dependency>,
    pub targets: Vec<Target>,
    /// The text of the manifest, for the line numbers that metadata lacks.
    #[serde(skip)]
    pub manifest: String,
}

/// A dependency as the manifest states it.
#[derive(Deserialize)]
pub struct Dependency {
    pub name: String,
    /// The key in the manifest, when it differs from the name.
    pub rename: Option<String>,
    /// `None` for an ordinary one, else `dev` or `build`.
    pub kind: Option<String>,
    /// Set for members of this workspace only.
    pub path: Option<String>,
}

/// A library, binary, test or benchmark.
#[derive(Deserialize)]
pub struct Target {
    pub kind: Vec<String>,
    pub src_path: String,
}

impl Workspace {
    pub fn load() -> Result<Self> {
        let output = cargo(&["metadata", "--no-deps", "--format-version", "1"]).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut workspace: Self = serde_json::from_slice(&output.stdout)?;
        for package in &mut workspace.packages {
            package.manifest = std::fs::read_to_string(&package.manifest_path)
                .with_context(|| format!("cannot read {}", package.manifest_path))?;
            let sources = package.targets.iter_mut().map(|target| &mut target.src_path);
            for path in sources.chain([&mut package.manifest_path]) {
                *path = Path::new(path.as_str())
                    .strip_prefix(&workspace.workspace_root)?
                    .to_string_lossy()
                    .into_owned();
            }
        }
        Ok(workspace)
    }
}

impl Package {
    /// The name used in the design: `net` for `longhaul-net`, `cli` for the binary itself.
    pub fn short_name(&self) -> &str {
        short_name(&self.name)
    }
}

/// See [`Package::short_name`].
pub fn short_name(package: &str) -> &str {
    match package.strip_prefix("longhaul-") {
        Some(name) => name,
        None if package == "longhaul" => "cli",
        None => package,
    }
}
