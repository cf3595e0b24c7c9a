//! The tree that the demo moves, and the independent proof that it arrived.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use sha2::{Digest, Sha256};
use units::Bytes;
use walkdir::WalkDir;

/// Small files of a generated tree; together an eighth of it.
const SMALL: u64 = 480;
/// Middling ones; together half of it.
const MIDDLING: u64 = 16;

/// What stands at a path: the kind and mode, and the hash of its contents or target.
type Entry = (char, u32, [u8; 32]);

/// Makes a tree of `size` bytes below `root`: files from nothing to a quarter of the whole or
/// more, names that trip up careless programs, links, modes and an empty directory.
pub fn generate(root: &Path, size: Bytes) -> io::Result<()> {
    let mut source = Pcg64Mcg::seed_from_u64(7272);
    let mut left = size.0;
    let mut write = |path: PathBuf, size: u64| {
        let size = size.min(left);
        left -= size;
        write_random(&path, size, &mut source)
    };
    for directory in ["small/deep/er", "middling", "empty directory", "names"] {
        fs::create_dir_all(root.join(directory))?;
    }
    write(root.join("nothing"), 0)?;
    write(root.join("one byte"), 1)?;
    let odd: [&[u8]; 6] =
        [b"-rf *", b"a\nb", b"\"'$HOME", "Grüße 世界".as_bytes(), b".hidden", b"\xff\xfe"];
    for name in odd {
        write(root.join("names").join(std::ffi::OsStr::from_bytes(name)), 1000)?;
    }
    for i in 0..SMALL {
        let folder = if i % 2 == 0 { "small" } else { "small/deep/er" };
        // From a hundredth of the mean to twice of it.
        let bytes = size.0 / 8 / SMALL * (1 + i * 199 / SMALL) / 100;
        write(root.join(folder).join(format!("{i:03}")), bytes)?;
    }
    for i in 0..MIDDLING {
        write(root.join("middling").join(format!("{i:02}.dat")), size.0 / 2 / MIDDLING)?;
    }
    write(root.join("large.bin"), u64::MAX)?;
    fs::set_permissions(root.join("names/.hidden"), Permissions::from_mode(0o600))?;
    fs::set_permissions(root.join("one byte"), Permissions::from_mode(0o755))?;
    symlink("middling/00.dat", root.join("link"))?;
    symlink("nowhere", root.join("small/dangling"))
}

fn write_random(path: &Path, mut size: u64, source: &mut Pcg64Mcg) -> io::Result<()> {
    let mut file = File::create(path)?;
    let mut block = [0; 1 << 16];
    while size > 0 {
        let len = size.min(block.len() as u64);
        source.fill_bytes(&mut block[..len as usize]);
        file.write_all(&block[..len as usize])?;
        size -= len;
    }
    Ok(())
}

/// Files below `root` and their bytes.
pub fn measure(root: &Path) -> anyhow::Result<(u64, Bytes)> {
    let mut sum = (0, Bytes::ZERO);
    for entry in WalkDir::new(root) {
        let metadata = entry?.metadata()?;
        if metadata.is_file() {
            sum.0 += 1;
            sum.1 += Bytes(metadata.len());
        }
    }
    Ok(sum)
}

/// Compares two trees by walking and hashing both, with none of the code that moved them.
pub fn compare(left: &Path, right: &Path) -> anyhow::Result<()> {
    let (left, right) = std::thread::scope(|scope| {
        let other = scope.spawn(|| walk(right));
        (walk(left), other.join().expect("hashing does not panic"))
    });
    let (left, right) = (left?, right?);
    for (path, entry) in &left {
        let shown = path.display();
        let found = right.get(path).with_context(|| format!("{shown} is missing"))?;
        ensure!(found == entry, "{shown} differs");
    }
    let extra = right.keys().find(|path| !left.contains_key(*path));
    ensure!(extra.is_none(), "{} is too much", extra.expect("is some").display());
    Ok(())
}

fn walk(root: &Path) -> anyhow::Result<BTreeMap<PathBuf, Entry>> {
    let mut entries = BTreeMap::new();
    let mut block = vec![0; 1 << 18];
    for entry in WalkDir::new(root).min_depth(1) {
        let entry = entry?;
        let path = entry.path().strip_prefix(root)?.to_owned();
        let mut hash = Sha256::new();
        let kind = entry.file_type();
        let kind = if kind.is_file() {
            let mut file = File::open(entry.path())?;
            while let len @ 1.. = file.read(&mut block)? {
                hash.update(&block[..len]);
            }
            'f'
        } else if kind.is_symlink() {
            hash.update(fs::read_link(entry.path())?.as_os_str().as_bytes());
            'l'
        } else {
            'd'
        };
        let mode = entry.metadata()?.permissions().mode();
        entries.insert(path, (kind, mode, hash.finalize().into()));
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_the_size_asked_for_and_differences_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        for root in [&a, &b] {
            fs::create_dir(root).unwrap();
            generate(root, Bytes(3_000_001)).unwrap();
        }
        assert_eq!(measure(&a).unwrap().1, Bytes(3_000_001));
        compare(&a, &b).unwrap();
        let error = || compare(&a, &b).unwrap_err().to_string();
        fs::set_permissions(b.join("nothing"), Permissions::from_mode(0o600)).unwrap();
        assert!(error().contains("nothing differs"));
        fs::remove_file(b.join("nothing")).unwrap();
        assert!(error().contains("nothing is missing"));
        File::create(a.join("more")).unwrap();
        fs::rename(a.join("nothing"), a.join("more")).unwrap();
        fs::write(b.join("more"), "").unwrap();
        fs::write(b.join("much"), "").unwrap();
        assert!(error().contains("much is too much"));
    }
}
