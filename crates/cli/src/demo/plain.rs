//! The way that everybody has: one plain TCP connection, without any of our code in it.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use emulator::{Host, Lab};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use walkdir::WalkDir;

/// What is read from a file or socket at a time.
const BLOCK: usize = 1 << 18;

/// Sends the contents of every file below `root` from the near host to the far one, where they
/// are counted in `arrived` and thrown away: no disk and no protocol slows the connection down.
/// Dropped, it cuts the connection.
pub async fn send(lab: &Lab, root: &Path, arrived: &AtomicU64) -> io::Result<()> {
    let address = lab.address(Host::Far);
    let listener = lab.enter(Host::Far, || std::net::TcpListener::bind((address, 0)))??;
    let to = listener.local_addr()?;
    let sender = lab.enter(Host::Near, || std::net::TcpStream::connect(to))??;
    listener.set_nonblocking(true)?;
    sender.set_nonblocking(true)?;
    let (receiver, _) = TcpListener::from_std(listener)?.accept().await?;
    tokio::try_join!(send_files(root, TcpStream::from_std(sender)?), count(receiver, arrived))?;
    Ok(())
}

async fn send_files(root: &Path, mut to: TcpStream) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    for entry in WalkDir::new(root) {
        let entry = entry?;
        if !entry.file_type().is_file() {
            continue;
        }
        let mut file = File::open(entry.path()).await?;
        while let len @ 1.. = file.read(&mut block).await? {
            to.write_all(&block[..len]).await?;
        }
    }
    to.shutdown().await
}

async fn count(mut from: TcpStream, arrived: &AtomicU64) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    while let len @ 1.. = from.read(&mut block).await? {
        arrived.fetch_add(len as u64, Ordering::Relaxed);
    }
    Ok(())
}
