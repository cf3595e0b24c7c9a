//! Writes each target's first inputs into a folder of its own below the folder named.
#![forbid(unsafe_code)]

use std::io::{Error, Result};
use std::path::PathBuf;

fn main() -> Result<()> {
    let root: PathBuf = std::env::args_os().nth(1).ok_or(Error::other("seeds FOLDER"))?.into();
    for target in fuzz::TARGETS {
        let folder = root.join(target.name);
        std::fs::create_dir_all(&folder)?;
        for (number, seed) in (target.seeds)().into_iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{number:03}")), seed)?;
        }
        println!("{}", target.name);
    }
    Ok(())
}
