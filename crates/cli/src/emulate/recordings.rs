//! Captures and traces of a lab.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use anyhow::Context;
use emulator::{Host, Lab, Recording};

use crate::args::Recordings;

/// A file that is to be written, open before anything is made that would be in vain without it.
struct Target<'a> {
    path: &'a Path,
    file: File,
}

/// The files of a run.
pub struct Targets<'a> {
    options: &'a Recordings,
    captures: [Option<Target<'a>>; 2],
    trace: Option<Target<'a>>,
}

/// Recordings that run, each with the name of its file.
pub struct Running<'a>(Vec<(&'a Path, Recording)>);

impl<'a> Targets<'a> {
    /// Makes the files.
    pub fn open(options: &'a Recordings) -> anyhow::Result<Self> {
        let open = |path: &'a Option<std::path::PathBuf>| {
            let create = |path: &'a std::path::PathBuf| {
                let file = File::create(path);
                let file = file.with_context(|| format!("cannot write {}", path.display()))?;
                anyhow::Ok(Target { path, file })
            };
            path.as_ref().map(create).transpose()
        };
        let captures = [open(&options.pcap_near)?, open(&options.pcap_far)?];
        Ok(Self { options, captures, trace: open(&options.trace)? })
    }

    /// Starts the recordings.
    pub fn start(self, lab: &Lab) -> anyhow::Result<Running<'a>> {
        let Self { options, captures, trace } = self;
        let mut running = Vec::new();
        for (side, target) in Host::BOTH.into_iter().zip(captures) {
            if let Some(Target { path, file }) = target {
                let file = BufWriter::new(file);
                running.push((path, lab.capture(side, file, options.snaplen as usize)?));
            }
        }
        if let Some(Target { path, file }) = trace {
            running.push((path, lab.trace(BufWriter::new(file), options.trace_interval)?));
        }
        Ok(Running(running))
    }
}

impl Running<'_> {
    /// Ends them, and says what is missing from them.
    pub fn finish(self) -> anyhow::Result<()> {
        for (path, recording) in self.0 {
            let shown = path.display();
            let missed = recording.finish().with_context(|| format!("cannot write {shown}"))?;
            if missed > 0 {
                // A super-packet counts once, however many packets it would have been.
                tell!(
                    "longhaul: {missed} events or more are missing from {shown}: the disk was too \
                     slow; try --snaplen, or a file in memory"
                );
            }
        }
        Ok(())
    }
}
