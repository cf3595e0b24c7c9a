//! A stream whose rate was asked for goes as fast, and no faster: whole connections come to more.

use core::time::Duration;

use units::{Bytes, Instant, Rate};

use super::Sample;

/// A look at the rate takes so long at least, and so many round trips: whole records are confirmed, not bytes.
const LOOK: Duration = Duration::from_secs(1);
const ROUND_TRIPS: u32 = 2;
/// By how much a look may change what is let through, less and more: what was too little may be so only
/// because connections are new.
const CHANGE: [f64; 2] = [0.5, 1.1];
/// Less than this part of the rate is an outage, which is not made up for.
const OUTAGE: f64 = 0.1;
/// Who has got so many times what a look should bring has been let through too much: what held him back is over.
const FULL: f64 = 1.1;

/// What each connection may send.
#[derive(Debug)]
pub struct Hold {
    target: Rate,
    /// What all together may send, over the target: connections are not alike, and headers count.
    over: f64,
    /// When the last look ended, and what was delivered by then.
    last: Option<(Instant, Bytes)>,
}

impl Hold {
    /// To this rate of payload.
    pub const fn new(target: Rate) -> Self {
        Self { target, over: 1.0, last: None }
    }

    /// What each connection may send from now on. To be called every [`TICK`](super::TICK) or so.
    pub fn limit(&mut self, sample: &Sample) -> Rate {
        let target = self.target.as_bits_per_sec() as f64;
        let connections = sample.connections.max(1) as f64;
        let (since, before) = *self.last.get_or_insert((sample.now, sample.delivered));
        let time = sample.now.since(since);
        let look = LOOK.max(sample.rtt * ROUND_TRIPS);
        let bits = sample.delivered.0.saturating_sub(before.0) as f64 * 8.0;
        let is_full = bits > target * look.as_secs_f64() * FULL;
        if sample.idle {
            self.last = None;
        } else if time >= look || is_full {
            let rate = bits / time.as_secs_f64().max(1e-3);
            let [less, more] = CHANGE;
            let less = if is_full { 0.0 } else { less };
            let change = (target / rate.max(1.0)).clamp(less, more);
            self.over = if rate < target * OUTAGE { 1.0 } else { self.over * change };
            self.last = Some((sample.now, sample.delivered));
        }
        // One of them may have to carry it all.
        self.over = self.over.clamp(1.0, connections.max(CHANGE[1]));
        Rate::from_bits_per_sec((target * self.over / connections) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::super::TICK;
    use super::super::tests::NOTHING;
    use super::*;

    /// Mbit/s of payload over the last 20 s of 40, of connections that come to so many by themselves, of which
    /// `headers` are none.
    fn held(target: f64, alone: &[f64], headers: f64) -> f64 {
        let mut hold = Hold::new(Rate::from_bits_per_sec((target * 1e6) as u64));
        let (mut now, mut bits, mut before) = (Instant::from_nanos(1), 0.0, 0.0);
        for tick in 0..400 {
            let connections = alone.len();
            let sample = Sample { now, connections, delivered: Bytes(bits as u64 / 8), ..NOTHING };
            let most = hold.limit(&sample).as_bits_per_sec() as f64;
            let sent: f64 = alone.iter().map(|&rate| (rate * 1e6).min(most)).sum();
            bits += sent * (1.0 - headers) * TICK.as_secs_f64();
            now += TICK;
            if tick == 199 {
                before = bits;
            }
        }
        (bits - before) / 20.0 / 1e6
    }

    #[test]
    fn as_fast_as_was_asked_for_and_no_faster() {
        for (target, alone, headers) in [
            (5.0, &[0.93; 6][..], 0.0),
            (5.0, &[0.95; 6], 0.05),
            (12.0, &[30.0; 2], 0.02),
            // One of them is slow: the others make up for it.
            (6.0, &[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.1], 0.0),
            // One has to carry nearly all.
            (5.0, &[4.0, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2], 0.0),
        ] {
            let held = held(target, alone, headers);
            assert!((held / target - 1.0).abs() < 0.02, "{held} of {target}, {alone:?}");
        }
        let few = held(5.0, &[0.93; 5], 0.0);
        assert!((few - 4.65).abs() < 0.01, "{few}: more than there is cannot be had");
    }

    /// What an outage, or a slow reader, has kept back is not sent the faster afterwards: within 3 s no more comes than
    /// is due in 4.5.
    #[test]
    fn what_could_not_be_sent_is_not_owed() {
        let rate = 50e6;
        for part in [0.0, 0.3, 0.7, 0.95] {
            let (mut now, mut bits) = (Instant::from_nanos(1), 0.0);
            let (mut hold, mut before) = (Hold::new(Rate::from_bits_per_sec(rate as u64)), 0.0);
            for tick in 0..330 {
                let delivered = Bytes(bits as u64 / 8);
                let limit = hold.limit(&Sample { now, connections: 8, delivered, ..NOTHING });
                let all = 8.0 * limit.as_bits_per_sec() as f64;
                let sent = if tick < 300 { all.min(rate * part) } else { all };
                bits += sent * TICK.as_secs_f64();
                now += TICK;
                if tick == 299 {
                    before = bits;
                }
            }
            let came = (bits - before) / rate;
            assert!((2.5..4.5).contains(&came), "{came} s worth in 3 s, after {part} of the rate");
        }
    }

    /// Who had nothing to say is not to make up for it.
    #[test]
    fn what_is_not_sent_is_not_owed() {
        let mut hold = Hold::new(Rate::from_bits_per_sec(5_000_000));
        let mut now = Instant::from_nanos(1);
        for _ in 0..200 {
            now += TICK;
            let most = hold.limit(&Sample { now, idle: true, ..NOTHING });
            assert_eq!(most, Rate::from_bits_per_sec(5_000_000));
        }
    }
}
