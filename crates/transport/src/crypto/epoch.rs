//! Key update: each direction's key changes long before AES-GCM's limits, and the header's epoch
//! says which one sealed a packet.

use core::time::Duration;

use units::{Bytes, Instant};

use super::{CryptoError, Opener, Sealer, TAG_LEN};

/// Packets under one key: half of what RFC 9001 allows AES-GCM.
pub const KEY_PACKETS: u64 = 1 << 22;
/// Bytes under one key: 2^31 blocks, of 2^32 that a key should see in its life.
pub const KEY_BYTES: Bytes = Bytes(1 << 35);
/// How long one key is used, so that one that is stolen opens little.
pub const KEY_TIME: Duration = Duration::from_secs(120);
/// How long the key before is kept, for packets that come late.
const KEPT: Duration = Duration::from_secs(10);

/// Seals what one end sends, under one key after the other.
#[derive(Debug)]
pub struct EpochSealer {
    sealer: Sealer,
    epoch: u8,
    /// The first number under this key.
    first: u64,
    bytes: u64,
    since: Instant,
}

impl EpochSealer {
    /// Begins with epoch 0.
    pub fn new(now: Instant, sealer: Sealer) -> Self {
        Self { sealer, epoch: 0, first: 0, bytes: 0, since: now }
    }

    /// The key in use, for the header.
    pub fn epoch(&self) -> u8 {
        self.epoch
    }

    /// See [`Sealer::seal`].
    pub fn seal(&mut self, number: u64, associated: &[u8], body: &mut [u8]) -> [u8; TAG_LEN] {
        self.bytes += body.len() as u64;
        self.sealer.seal(number, associated, body)
    }

    /// Whether this key has sealed `packets` or up to the other limits. `next` is the number of the
    /// next packet.
    pub fn is_used_up(&self, now: Instant, packets: u64, next: u64) -> bool {
        next - self.first >= packets.min(KEY_PACKETS)
            || self.bytes >= KEY_BYTES.0
            || now.since(self.since) >= KEY_TIME
    }

    /// Goes on to the next key if the other end is known to have this one: a number of this epoch is
    /// among those `received` up to. Tells whether the key is new.
    pub fn update(&mut self, now: Instant, next: u64, received: Option<u64>) -> bool {
        let is_known = received.is_some_and(|received| received >= self.first);
        if is_known {
            let epoch = self.epoch.wrapping_add(1);
            *self = Self { sealer: self.sealer.next(), epoch, first: next, bytes: 0, since: now };
        }
        is_known
    }
}

/// Opens what the other end sent. There are three keys at most, and the header says which one is
/// meant: a packet that nobody sealed costs one try.
#[derive(Debug)]
pub struct EpochOpener {
    epoch: u8,
    current: Opener,
    /// Made in advance: what anybody can send must not cost the making of a key.
    next: Opener,
    /// The one before, and until when it is kept.
    previous: Option<(Opener, Instant)>,
}

impl EpochOpener {
    /// Begins with epoch 0.
    pub fn new(opener: Opener) -> Self {
        Self { epoch: 0, next: opener.next(), current: opener, previous: None }
    }

    /// See [`Opener::open`]. The first authentic packet of the next epoch begins it.
    ///
    /// # Errors
    /// [`CryptoError`], also when there is no key for this epoch.
    pub fn open<'a>(
        &mut self,
        now: Instant,
        epoch: u8,
        number: u64,
        associated: &[u8],
        sealed: &'a mut [u8],
    ) -> Result<&'a mut [u8], CryptoError> {
        self.previous.take_if(|(_, until)| now >= *until);
        match epoch.wrapping_sub(self.epoch) {
            0 => self.current.open(number, associated, sealed),
            1 => {
                let body = self.next.open(number, associated, sealed)?;
                let after = self.next.next();
                let current = core::mem::replace(&mut self.next, after);
                let previous = core::mem::replace(&mut self.current, current);
                self.previous = Some((previous, now + KEPT));
                self.epoch = epoch;
                Ok(body)
            }
            u8::MAX => {
                let (previous, _) = self.previous.as_ref().ok_or(CryptoError::Epoch)?;
                previous.open(number, associated, sealed)
            }
            _ => Err(CryptoError::Epoch),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(1_000_000_000);

    fn pair() -> (EpochSealer, EpochOpener) {
        (EpochSealer::new(NOW, Sealer::new(&[1; 32])), EpochOpener::new(Opener::new(&[1; 32])))
    }

    fn sealed(sealer: &mut EpochSealer, number: u64) -> (u8, u64, Vec<u8>) {
        let mut body = b"body".to_vec();
        let tag = sealer.seal(number, b"", &mut body);
        body.extend(tag);
        (sealer.epoch(), number, body)
    }

    fn open(
        opener: &mut EpochOpener,
        now: Instant,
        (epoch, number, body): &(u8, u64, Vec<u8>),
    ) -> Result<(), CryptoError> {
        opener.open(now, *epoch, *number, b"", &mut body.clone()).map(|_| ())
    }

    #[test]
    fn late_packets_of_the_epoch_before_open_for_a_while() {
        let (mut sealer, mut opener) = pair();
        let old = sealed(&mut sealer, 0);
        assert!(sealer.update(NOW, 1, Some(0)));
        let new = sealed(&mut sealer, 1);
        assert_eq!(open(&mut opener, NOW, &new), Ok(()));
        assert_eq!(open(&mut opener, NOW, &old), Ok(()));
        assert_eq!(open(&mut opener, NOW + KEPT, &old), Err(CryptoError::Epoch));
    }

    #[test]
    fn a_forger_moves_no_epoch() {
        let (mut sealer, mut opener) = pair();
        let good = sealed(&mut sealer, 0);
        for epoch in 0..=u8::MAX {
            let mut body = good.2.clone();
            if epoch == 0 {
                body[0] ^= 1;
            }
            assert!(open(&mut opener, NOW, &(epoch, 0, body)).is_err());
        }
        assert_eq!(open(&mut opener, NOW, &good), Ok(()));
    }

    #[test]
    fn a_key_changes_when_used_up_and_only_after_the_other_end_has_it() {
        let (mut sealer, _) = pair();
        assert!(!sealer.is_used_up(NOW, 100, 99));
        assert!(sealer.is_used_up(NOW, 100, 100));
        assert!(!sealer.update(NOW, 100, None), "nothing has arrived");
        assert!(sealer.update(NOW, 100, Some(7)));
        assert!(!sealer.is_used_up(NOW, 100, 199) && sealer.is_used_up(NOW, 100, 200));
        assert!(!sealer.update(NOW, 200, Some(99)), "the new key has not arrived");
        assert!(sealer.update(NOW, 200, Some(100)));
        assert!(sealer.is_used_up(NOW + KEY_TIME, 100, 201), "old");
        assert!(!sealer.is_used_up(NOW, u64::MAX, 199 + KEY_PACKETS));
        assert!(sealer.is_used_up(NOW, u64::MAX, 200 + KEY_PACKETS));
        assert_eq!(sealer.epoch(), 2);
    }

    #[test]
    fn epochs_go_on_after_the_last_number() {
        let (mut sealer, mut opener) = pair();
        for number in 0..70_000 {
            let packet = sealed(&mut sealer, number);
            assert_eq!(open(&mut opener, NOW, &packet), Ok(()));
            assert!(sealer.update(NOW, number + 1, Some(number)));
        }
    }
}
