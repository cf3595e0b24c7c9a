//! The striped record of paper 3, section 2.3: 8 KiB behind a 4-byte number, and our closing record
//! that says how much there was (`docs/spec/ftp-extensions.md`).

/// Bytes of a record's number, big endian, modulo 2^32.
pub const NUMBER_LEN: usize = 4;

/// Bytes of data in every record; the last of a file is filled up with zeros.
pub const RECORD_LEN: usize = 8 << 10;

/// Bytes of a closing record: how many records there are, modulo 2^32, and how many bytes.
pub const CLOSING_LEN: usize = NUMBER_LEN + 8;

/// Writes a closing record for a transfer of so many bytes.
pub fn closing(bytes: u64) -> [u8; CLOSING_LEN] {
    let mut record = [0; CLOSING_LEN];
    record[..NUMBER_LEN].copy_from_slice(&number(records(bytes)));
    record[NUMBER_LEN..].copy_from_slice(&bytes.to_be_bytes());
    record
}

/// Reads one: the bytes of the transfer, unless its count of records says otherwise.
pub fn read_closing(record: &[u8]) -> Option<u64> {
    let (count, bytes) = record.split_first_chunk::<NUMBER_LEN>()?;
    let bytes = u64::from_be_bytes(bytes.try_into().ok()?);
    (*count == number(records(bytes))).then_some(bytes)
}

/// Records that so many bytes fill.
pub const fn records(bytes: u64) -> u64 {
    bytes.div_ceil(RECORD_LEN as u64)
}

/// A record's number as it is sent.
pub const fn number(record: u64) -> [u8; NUMBER_LEN] {
    (record as u32).to_be_bytes()
}

/// Which record a number means: that nearest to `expected`, as long as the two are less than 2^31
/// records (16 TiB) apart. A number can mean no record before the first.
pub fn unwrap(number: [u8; NUMBER_LEN], expected: u64) -> Option<u64> {
    let ahead = u32::from_be_bytes(number).wrapping_sub(expected as u32);
    expected.checked_add_signed(i64::from(ahead as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap_and_are_unwrapped() {
        let wrap = 1u64 << 32;
        for (record, expected) in
            [(0, 0), (5, 3), (wrap, wrap - 2), (wrap - 1, wrap + 1), (3 * wrap + 7, 3 * wrap)]
        {
            assert_eq!(unwrap(number(record), expected), Some(record));
        }
        assert_eq!(unwrap(number(u64::MAX), 0), None, "before the first");
    }

    #[test]
    fn a_closing_record_agrees_with_itself() {
        for bytes in [0, 1, 8192, 8193, u64::MAX] {
            assert_eq!(read_closing(&closing(bytes)), Some(bytes));
        }
        assert_eq!(closing(8193), [0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 32, 1]);
        assert_eq!(read_closing(&[0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 32, 1]), None);
        assert_eq!(read_closing(&closing(7)[..11]), None);
    }
}
