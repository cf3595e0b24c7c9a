//! Striping: record headers, and records that come over several connections in any order that
//! these may bring.

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use stripe::{Gather, HEADER_LEN, Header, MAX_PAYLOAD};
use units::SeqNo;

/// What is read, is written again as it was.
pub fn header(input: &[u8]) {
    let Some(bytes) = input.first_chunk::<HEADER_LEN>() else { return };
    let Ok(header) = Header::decode(bytes) else { return };
    assert_eq!(header.encode(), *bytes);
    assert!(header.payload() <= MAX_PAYLOAD);
}

/// A record and a fin.
pub fn header_seeds() -> Vec<Vec<u8>> {
    let data = Header::Data { number: SeqNo(9), length: 1000 };
    vec![data.encode().into(), Header::Fin { count: 10 }.encode().into()]
}

/// Records dealt to connections as the input says, and brought as it says: the stream comes out
/// whole and in order, however small the window, and nothing waits for ever.
pub fn records(input: &[u8]) {
    let _ = deal(&mut Unstructured::new(input));
}

fn deal(input: &mut Unstructured<'_>) -> Result<()> {
    let connections: usize = input.int_in_range(1..=4)?;
    let window: u64 = input.int_in_range(1..=4)?;
    let count: u64 = input.int_in_range(0..=60)?;
    let mut lanes: Vec<std::collections::VecDeque<Header>> = vec![Default::default(); connections];
    let mut text = Vec::new();
    for number in 0..count {
        let length = input.int_in_range(1..=40)?;
        text.extend((0..length).map(|place| (number as usize * 7 + place) as u8));
        let header = Header::Data { number: SeqNo(number), length };
        lanes[input.choose_index(connections)?].push_back(header);
    }
    lanes.iter_mut().for_each(|lane| lane.push_back(Header::Fin { count }));

    let mut gather = Gather::new(connections, units::Bytes(window * MAX_PAYLOAD as u64));
    let mut read = Vec::new();
    while lanes.iter().any(|lane| !lane.is_empty()) || read.len() < text.len() {
        let mut moved = false;
        // Without input left every connection brings what it may, and everything is read.
        let free = input.is_empty();
        for (index, lane) in lanes.iter_mut().enumerate() {
            if gather.can_read(index)
                && (free || input.arbitrary()?)
                && let Some(header) = lane.pop_front()
            {
                moved = true;
                gather.accept(index, header, payload(header)).expect("the rules are kept");
            }
        }
        let most = if free { 1000 } else { input.int_in_range(0..=50)? };
        let mut out = vec![0; most];
        let len = gather.read(&mut out);
        read.extend_from_slice(&out[..len]);
        assert!(text.starts_with(&read), "out of order after {} bytes", read.len());
        assert!(moved || len > 0 || !free, "nothing moves any more");
    }
    assert!(gather.is_ended() && read == text);
    Ok(())
}

fn payload(header: Header) -> Bytes {
    match header {
        Header::Data { number, length } => {
            (0..length).map(|place| (number.0 as usize * 7 + place) as u8).collect()
        }
        Header::Fin { .. } => Bytes::new(),
    }
}

/// Sequences of choices.
pub fn record_seeds() -> Vec<Vec<u8>> {
    crate::link::seeds()
}
