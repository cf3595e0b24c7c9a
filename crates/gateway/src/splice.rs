//! Two byte streams joined: what one end sends the other receives, half-closes and resets
//! included.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use net::clock;
use net::udp::{StreamMeter, UdpStream};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use crate::sight::{Counter, Counters, Pause};

/// Bytes that are read at a time.
const CHUNK: usize = 64 << 10;

thread_local! {
    /// Where bytes are on their way from one end to the other, unless they must wait.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; CHUNK]);
}

/// How long what was closed cleanly may take to arrive once the way back was reset.
const FAREWELL: Duration = Duration::from_secs(60);
/// How often it is looked whether it has: the kernel wakes nobody for that.
const LOOK: Duration = Duration::from_millis(10);
/// The code of a stream's reset because a host reset its connection.
const RESET: u64 = 2;

/// One end of a splice.
pub(crate) trait End: AsyncRead + AsyncWrite + Unpin {
    /// Tells the other side of this end that there is nothing more to say or to hear.
    fn abort(&mut self);

    /// From now on to be dropped is to be aborted.
    fn cut_when_dropped(&mut self);

    /// Lets it be dropped without a reset, now that all was said and heard.
    fn finish(&mut self);

    /// Whether its host had closed cleanly what is still to be read, before something failed with this
    /// error.
    fn had_ended(&self, failure: &io::Error) -> bool;

    /// What waits until nothing can be written any more, while nobody reads or writes either; and what
    /// writes meanwhile.
    fn watched(&mut self) -> (impl Future<Output = ()> + Send, impl AsyncWrite + Unpin + Send);

    /// Bytes written to it that are not known to have arrived.
    fn unacknowledged(&self) -> u64;

    /// Bytes that came by it and were not read.
    fn unread(&self) -> u64;

    /// All of these.
    fn held(&self) -> u64 {
        self.unacknowledged() + self.unread()
    }

    /// Whether nothing more arrives that was written to it.
    fn is_gone(&self) -> bool {
        self.is_lost()
    }

    /// What counts the bytes that the trunk sends of it, if it leads there.
    fn meter(&self) -> Option<StreamMeter> {
        None
    }

    /// Whether it led over a trunk that is no more.
    fn is_lost(&self) -> bool {
        false
    }
}

impl End for TcpStream {
    /// The kernel sends a reset when the socket is closed.
    fn abort(&mut self) {
        // Fails only if the socket has failed.
        let _ = socket2::SockRef::from(&*self).set_linger(Some(Duration::ZERO));
    }

    fn cut_when_dropped(&mut self) {
        self.abort();
    }

    fn finish(&mut self) {
        let _ = socket2::SockRef::from(&*self).set_linger(None);
    }

    /// A reset that comes after the end of what a host sends has the kernel fail writing with
    /// `EPIPE`, any other with `ECONNRESET`. Reading tells nothing: it ends without an error once
    /// writing has had that.
    fn had_ended(&self, failure: &io::Error) -> bool {
        failure.kind() == io::ErrorKind::BrokenPipe
    }

    fn watched(&mut self) -> (impl Future<Output = ()> + Send, impl AsyncWrite + Unpin + Send) {
        let (read, write) = self.split();
        let failed = async move {
            let _ = read.ready(Interest::ERROR).await;
        };
        (failed, write)
    }

    fn unacknowledged(&self) -> u64 {
        net::tcp::unacknowledged(self)
    }

    /// That is for its host to count, which is told by a reset.
    fn unread(&self) -> u64 {
        0
    }

    fn is_gone(&self) -> bool {
        self.peer_addr().is_err()
    }
}

impl End for UdpStream {
    fn abort(&mut self) {
        self.reset(RESET);
        self.stop(RESET);
    }

    /// A stream that is dropped before its end is reset of itself.
    fn cut_when_dropped(&mut self) {}

    /// One that has ended both ways has nothing left to reset.
    fn finish(&mut self) {}

    fn had_ended(&self, _: &io::Error) -> bool {
        self.is_finished()
    }

    fn watched(&mut self) -> (impl Future<Output = ()> + Send, impl AsyncWrite + Unpin + Send) {
        (self.stopped(), self)
    }

    fn unacknowledged(&self) -> u64 {
        self.undelivered()
    }

    fn unread(&self) -> u64 {
        UdpStream::unread(self)
    }

    fn meter(&self) -> Option<StreamMeter> {
        Some(UdpStream::meter(self))
    }

    fn is_lost(&self) -> bool {
        UdpStream::is_lost(self)
    }
}

/// What passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Bytes from the first end to the second, and back.
    pub bytes: (u64, u64),
    /// Whether both directions ended with all their bytes delivered.
    pub whole: bool,
    /// It was cut off because the trunk was lost.
    pub trunk_lost: bool,
    /// Bytes that came here, from a host or from the other gateway, and are not known to have gone on.
    /// Each gateway counts its own, so a byte whose receipt was lost with the trunk is in both counts.
    pub undelivered: u64,
    /// How long it was carried.
    pub lasted: Duration,
}

/// Joins two ends until both directions have ended, or one of them fails, upon which what is left
/// is reset; so it is when this is dropped, or the process killed, for a host must not take what was
/// cut for the whole.
pub(crate) async fn splice(mut a: impl End, mut b: impl End, counters: &Counters) -> Passed {
    a.cut_when_dropped();
    b.cut_when_dropped();
    if let Some(meter) = a.meter().or_else(|| b.meter()) {
        counters.meter.get_or_init(|| meter);
    }
    let since = clock::now();
    let (mut there, mut back) = (Flow::new(&counters.there), Flow::new(&counters.back));
    let half = poll_fn(|cx| {
        // When one has failed the other is left as it is: a socket that was reset may read as if its
        // host had closed it.
        let first = there.poll(cx, &mut a, &mut b)?;
        let second = back.poll(cx, &mut b, &mut a)?;
        if first.is_ready() || second.is_ready() { Poll::Ready(Ok(())) } else { Poll::Pending }
    });
    let outcome: io::Result<()> = match half.await {
        Ok(()) if there.state == State::Closed => back.go_on(&mut b, &mut a).await,
        Ok(()) => there.go_on(&mut a, &mut b).await,
        failed => failed,
    };
    let failure = outcome.err();
    let whole = failure.is_none();
    if let Some(failure) = failure {
        // A direction that was closed before is not touched by the other's reset.
        let farewell = async {
            there.complete(&mut a, &mut b, &failure).await;
            back.complete(&mut b, &mut a, &failure).await;
        };
        let _ = tokio::time::timeout(FAREWELL, farewell).await;
    } else {
        a.finish();
        b.finish();
    }
    let (mut undelivered, mut trunk_lost) = (0, false);
    if !whole {
        undelivered = there.left() + back.left() + a.held() + b.held();
        trunk_lost = a.is_lost() || b.is_lost();
        a.abort();
        b.abort();
    }
    let lasted = clock::now().since(since);
    Passed { bytes: counters.read(), whole, trunk_lost, undelivered, lasted }
}

/// One direction.
struct Flow<'a> {
    /// Read and not written: from `start` on.
    rest: Vec<u8>,
    start: usize,
    counter: &'a Counter,
    state: State,
}

#[derive(PartialEq, Eq)]
enum State {
    Open,
    /// All was read; the end is being passed on.
    Closing,
    Closed,
    Failed,
}

impl<'a> Flow<'a> {
    fn new(counter: &'a Counter) -> Self {
        Self { rest: Vec::new(), start: 0, counter, state: State::Open }
    }

    /// Bytes read and not written.
    fn left(&self) -> u64 {
        (self.rest.len() - self.start) as u64
    }

    /// Goes on to its end when the other direction has come to its own: nobody reads any more at the end
    /// that this one leads to, and so nobody would see its reset while there is nothing to write.
    async fn go_on(&mut self, from: &mut impl End, to: &mut impl End) -> io::Result<()> {
        let (failed, mut to) = to.watched();
        tokio::select! {
            biased;
            ended = poll_fn(|cx| self.poll(cx, from, &mut to)) => ended,
            () = failed => {
                self.state = State::Failed;
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
    }

    /// Delivers what was closed cleanly before the other direction failed so.
    async fn complete(&mut self, from: &mut impl End, to: &mut impl End, failure: &io::Error) {
        if self.state == State::Open && !from.had_ended(failure) {
            return;
        }
        if poll_fn(|cx| self.poll(cx, from, to)).await.is_ok() {
            // A reset overtakes what the kernel has yet to send.
            while to.unacknowledged() > 0 && !to.is_gone() {
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        let Poll::Ready(outcome) = self.poll_through(cx, from, to) else {
            let full = self.left() > 0 || self.state == State::Closing;
            self.counter.pause(if full { Pause::Writing } else { Pause::Reading });
            return Poll::Pending;
        };
        self.counter.pause(Pause::Ended);
        self.state = if outcome.is_ok() { State::Closed } else { State::Failed };
        Poll::Ready(outcome)
    }

    fn poll_through(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        loop {
            match self.state {
                State::Open if self.start < self.rest.len() => {
                    let written =
                        ready!(Pin::new(&mut *to).poll_write(cx, &self.rest[self.start..]))?;
                    self.start += self.count(written)?;
                }
                State::Open => {
                    // Thousands of connections have nothing to say: they hold no memory.
                    (self.rest, self.start) = (Vec::new(), 0);
                    ready!(
                        SCRATCH.with_borrow_mut(|scratch| self.poll_pass(cx, from, to, scratch))
                    )?;
                }
                State::Closing => return Pin::new(&mut *to).poll_shutdown(cx),
                State::Closed => return Poll::Ready(Ok(())),
                State::Failed => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
    }

    /// Reads, and writes at once as much as is taken; only the rest is kept.
    fn poll_pass(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
        scratch: &mut [u8],
    ) -> Poll<io::Result<()>> {
        let mut buffer = ReadBuf::new(scratch);
        ready!(Pin::new(from).poll_read(cx, &mut buffer))?;
        let bytes = buffer.filled();
        if bytes.is_empty() {
            self.state = State::Closing;
        } else {
            let written = match Pin::new(to).poll_write(cx, bytes) {
                Poll::Ready(written) => self.count(written?)?,
                Poll::Pending => 0,
            };
            self.rest = bytes[written..].to_vec();
        }
        Poll::Ready(Ok(()))
    }

    fn count(&self, written: usize) -> io::Result<usize> {
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.counter.add(written);
        Ok(written)
    }
}
