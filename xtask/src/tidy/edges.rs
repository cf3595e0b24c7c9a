//! Which crate may depend on which.

use super::Violation;
use super::workspace::{Dependency, Package, short_name};

/// The crates, lowest first, and what each may use beside `units`.
const EDGES: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("path", &[]),
    ("transport", &[]),
    ("stripe", &[]),
    ("sim", &["path", "transport", "stripe"]),
    ("net", &["transport", "stripe"]),
    ("emulator", &["path"]),
    ("transfer", &["net"]),
    ("ftp", &["stripe", "net", "transfer"]),
    ("gateway", &["net"]),
];

/// These stand on top of everything: they may use any crate, and none may use them.
const TOP: &[&str] = &["cli", "fuzz", "xtask"];

/// What any crate's tests may run on: cargo keeps dev-dependencies out of the library, so that they
/// draw no edge in the house.
const TEST_BEDS: &[&str] = &["path", "sim", "emulator"];

pub fn check(packages: &[Package]) -> Vec<Violation> {
    packages.iter().flat_map(check_package).collect()
}

fn check_package(package: &Package) -> Vec<Violation> {
    let from = package.short_name();
    if TOP.contains(&from) {
        return Vec::new();
    }
    let Some((_, allowed)) = EDGES.iter().find(|(name, _)| *name == from) else {
        let message = format!("crate `{from}` has no place in the house: add it to EDGES in tidy");
        return vec![Violation::new(&package.manifest_path, 1, message)];
    };
    let inside = package.dependencies.iter().filter(|dependency| dependency.path.is_some());
    inside
        .filter(|dependency| {
            let to = short_name(&dependency.name);
            let is_test = dependency.kind.as_deref() == Some("dev");
            !(to == "units" || allowed.contains(&to) || is_test && TEST_BEDS.contains(&to))
        })
        .map(|dependency| {
            let message = format!(
                "`{from}` may not use `{}`, only {} (and its tests {}): move the code to where \
                 both may reach it",
                short_name(&dependency.name),
                [&["units"], *allowed].concat().join(", "),
                TEST_BEDS.join(", "),
            );
            Violation::new(&package.manifest_path, line_of(package, dependency), message)
        })
        .collect()
}

/// The line of the manifest that states the dependency, in whichever section it stands.
fn line_of(package: &Package, dependency: &Dependency) -> usize {
    let key = dependency.rename.as_ref().unwrap_or(&dependency.name);
    let section = match dependency.kind.as_deref() {
        Some(kind) => format!("{kind}-dependencies"),
        None => "dependencies".to_owned(),
    };
    let mut within = false;
    for (number, line) in package.manifest.lines().enumerate() {
        if let Some(header) = line.strip_prefix('[') {
            let header = header.trim_end_matches(']');
            within = header == section || header.ends_with(&format!(".{section}"));
        } else if within
            && line.strip_prefix(key.as_str()).is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
        {
            return number + 1;
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, manifest: &str) -> Package {
        let mut kind = None;
        let mut dependencies = Vec::new();
        for line in manifest.lines() {
            match line.split_once('.') {
                Some((key, _)) => dependencies.push(Dependency {
                    name: format!("longhaul-{key}"),
                    rename: Some(key.to_owned()),
                    kind: kind.clone(),
                    path: Some(format!("crates/{key}")),
                }),
                None => kind = line.starts_with("[dev").then(|| "dev".to_owned()),
            }
        }
        Package {
            name: name.to_owned(),
            manifest_path: "Cargo.toml".to_owned(),
            dependencies,
            targets: Vec::new(),
            manifest: manifest.to_owned(),
        }
    }

    fn lines(name: &str, manifest: &str) -> Vec<usize> {
        check(&[package(name, manifest)]).iter().map(|violation| violation.line).collect()
    }

    const MANIFEST: &str = "\
[dependencies]
units.workspace = true
transport.workspace = true
emulator.workspace = true
[dev-dependencies]
emulator.workspace = true
transfer.workspace = true";

    #[test]
    fn edges_that_the_design_lacks_are_found_where_they_stand() {
        assert_eq!(lines("longhaul-net", MANIFEST), [4, 7]);
        assert_eq!(lines("longhaul-path", MANIFEST), [3, 4, 7]);
    }

    #[test]
    fn the_top_may_use_everything_and_nobody_the_top() {
        assert_eq!(lines("longhaul", MANIFEST), [] as [usize; 0]);
        assert_eq!(lines("longhaul-net", "[dependencies]\ncli.workspace = true"), [2]);
    }

    #[test]
    fn a_crate_unknown_to_the_design_is_named() {
        assert_eq!(lines("longhaul-shortcut", "[dependencies]"), [1]);
    }

    #[test]
    fn each_crate_uses_only_crates_below_it() {
        for (at, (_, allowed)) in EDGES.iter().enumerate() {
            for used in *allowed {
                assert!(EDGES[..at].iter().any(|(name, _)| name == used), "{used}");
            }
        }
    }
}
