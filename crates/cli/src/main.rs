//! The `longhaul` command.
#![forbid(unsafe_code)]

fn main() -> anyhow::Result<()> {
    anyhow::bail!("nothing can be moved yet")
}
