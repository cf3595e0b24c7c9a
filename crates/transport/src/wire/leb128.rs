//! Unsigned LEB128 (DWARF 5, section 7.6): numbers that may be large, and mostly are not.

use bytes::{Buf, BufMut};

use super::WireError;

/// The bytes that any number fits.
pub(crate) const MAX_LEN: usize = 10;

/// How many bytes the number takes.
pub(crate) const fn len(value: u64) -> usize {
    (u64::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// Needless zeros are read, as long as there are no more than [`MAX_LEN`] bytes.
pub(super) fn get(body: &mut &[u8]) -> Result<u64, WireError> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = body.try_get_u8()?;
        let bits = u64::from(byte & 0x7f);
        if bits.leading_zeros() < shift {
            return Err(WireError::Field("LEB128 number"));
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(WireError::Field("LEB128 number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needless_zeros_are_read_and_too_many_are_not() {
        assert_eq!(get(&mut &[0x85, 0x80, 0x00][..]), Ok(5));
        assert_eq!(get(&mut &[0x80; 10][..]), Err(WireError::Field("LEB128 number")));
        assert_eq!(get(&mut &[0x80; 9][..]), Err(WireError::Truncated));
        let over = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert_eq!(get(&mut &over[..]), Err(WireError::Field("LEB128 number")));
    }

    #[test]
    fn numbers_come_back_and_are_as_long_as_told() {
        for bits in 0..64 {
            for value in [1u64 << bits, (1u64 << bits) - 1, u64::MAX >> bits] {
                let mut out = Vec::new();
                put(&mut out, value);
                assert_eq!(out.len(), len(value), "{value}");
                assert!(out.len() <= MAX_LEN);
                assert_eq!(get(&mut &out[..]), Ok(value));
            }
        }
    }
}
