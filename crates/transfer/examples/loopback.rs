//! Copies a file or tree through a TCP connection to this very host:
//! `cargo run --release -p longhaul-transfer --example loopback -- SOURCE DESTINATION`.

use std::error::Error;
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, TcpStream};
use transfer::{Options, Progress, ServeOptions};

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(source), Some(destination)) = (arguments.next(), arguments.next()) else {
        return Err("usage: loopback SOURCE DESTINATION".into());
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let far = tokio::spawn(async move {
        let (stream, _) = listener.accept().await?;
        let options = ServeOptions::default();
        Ok::<_, Box<dyn Error + Send + Sync>>(
            transfer::serve(stream, Path::new("/"), &options).await?,
        )
    });

    let (options, progress) = (Options::default(), Progress::new());
    let remote = std::path::absolute(&destination)?;
    let stream = TcpStream::connect(address).await?;
    let summary = transfer::put(stream, &[source], &remote, &options, &progress).await?;
    far.await?.map_err(|error| error as Box<dyn Error>)?;
    for note in summary.notes.iter() {
        eprintln!("{note}");
    }
    println!("{:?}, limited by {:?}", summary.counts, summary.bottleneck());
    println!("sending {:?}, receiving {:?}", summary.sending, summary.receiving);
    Ok(())
}
