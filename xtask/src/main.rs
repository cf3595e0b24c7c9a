//! `cargo xtask`: the project's own checks, tests and benchmarks.
#![forbid(unsafe_code)]

fn main() -> anyhow::Result<()> {
    anyhow::bail!("no task is defined yet")
}
