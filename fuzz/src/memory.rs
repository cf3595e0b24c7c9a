//! Code that reads and writes connections, over memory: nothing more comes there than is there.

use core::pin::pin;
use core::task::{Context, Poll};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Wake, Waker};

use tokio::io::Join;
use tokio::runtime::{Builder, Runtime};

/// For timers, whose time never comes.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    Builder::new_current_thread().enable_time().build().expect("a runtime without sockets")
});

/// Whether somebody has reason to look again.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What comes of it; `None` where it waits for what never comes.
pub fn settle<T>(work: impl Future<Output = T>) -> Option<T> {
    let _entered = RUNTIME.enter();
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    let mut work = pin!(work);
    loop {
        if let Poll::Ready(done) = work.as_mut().poll(&mut context) {
            return Some(done);
        }
        if !woken.0.swap(false, Ordering::Relaxed) {
            return None;
        }
    }
}

/// The same for what has all that it waits for.
pub fn settled<T>(work: impl Future<Output = T>) -> T {
    settle(work).expect("it waits for nothing that is not there")
}

/// Whoever says this, and keeps what is said to him.
pub fn peer(said: &[u8]) -> Join<&[u8], Vec<u8>> {
    tokio::io::join(said, Vec::new())
}
