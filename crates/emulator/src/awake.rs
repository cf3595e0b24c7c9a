//! Keeps idle processors ready while packets are under way.

use std::fs::{File, OpenOptions};
use std::io::Write;

/// The kernel's interface (Documentation/power/pm_qos_interface): the longest that a processor
/// may take to leave its idle state, in microseconds, for as long as the file stays open.
const DEVICE: &str = "/dev/cpu_dma_latency";

/// Idle processors poll for work.
const AT_ONCE: i32 = 0;

/// What the kernel assumes without a request (`PM_QOS_CPU_LATENCY_DEFAULT_VALUE`).
const ANY: i32 = 2_000_000_000;

/// A request that idle processors do not halt.
///
/// To wake a halted processor takes a virtual machine some 10 us, and costs as much of the time of
/// whoever wakes it: the emulator's thread at every timer, and for every batch of packets the
/// program that receives them. Users who may not ask (the file is root's) do without.
pub(crate) struct Awake {
    device: Option<File>,
    held: bool,
}

impl Awake {
    pub(crate) fn new() -> Self {
        Self { device: OpenOptions::new().write(true).open(DEVICE).ok(), held: false }
    }

    /// Keeps processors from halting, or lets them again.
    pub(crate) fn hold(&mut self, held: bool) {
        let Some(device) = self.device.as_mut().filter(|_| self.held != held) else {
            return;
        };
        let latency = if held { AT_ONCE } else { ANY };
        match device.write_all(&latency.to_ne_bytes()) {
            Ok(()) => self.held = held,
            Err(_) => *self = Self { device: None, held: false },
        }
    }
}
