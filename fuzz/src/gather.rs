//! Striping: what records and handshakes say, and records that come over connections which die.

use std::collections::VecDeque;

use arbitrary::{Result, Unstructured};
use stripe::count::{POLICY_LEN, Policy, System};
use stripe::{
    ACK_LEN, Ack, Assignment, Gather, HEADER_LEN, Header, LaneId, MAX_PAYLOAD, Record, Scatter,
    xftp,
};
use units::{Instant, SeqNo};

/// What is read, is written again as it was: of what means nothing, zeros.
pub fn fields(input: &[u8]) {
    if let Some(bytes) = input.first_chunk() {
        header(bytes);
    }
    if let Some(bytes) = input.first_chunk() {
        acknowledgement(bytes);
    }
    if let Some(bytes) = input.first_chunk::<POLICY_LEN>()
        && let Some(policy) = Policy::decode(bytes)
    {
        assert_eq!(Policy::decode(&policy.encode()), Some(policy));
        assert_eq!(policy.encode()[0], bytes[0]);
    }
    if let Some(bytes) = xftp::read_closing(input) {
        assert_eq!(xftp::closing(bytes), *input);
    }
}

fn header(bytes: &[u8; HEADER_LEN]) {
    let Ok(header) = Header::decode(bytes) else { return };
    assert_eq!(header.encode(), *bytes);
    assert!(header.payload() <= MAX_PAYLOAD);
}

/// Who has sent one record believes what can be true of it, and nothing else.
fn acknowledgement(bytes: &[u8; ACK_LEN]) {
    const SYSTEM_LEN: usize = 24;
    let ack = Ack::decode(bytes);
    let again = ack.encode();
    let known = if ack.system.is_some() { ACK_LEN } else { ACK_LEN - SYSTEM_LEN };
    assert_eq!(again[..known], bytes[..known]);
    assert_eq!(Ack::decode(&again), ack);
    let (mut scatter, now) =
        (Scatter::new(Assignment::Dynamic, units::Bytes(0)), Instant::from_nanos(1));
    scatter.join(LaneId(0));
    scatter.write(b"text");
    scatter.take(now, LaneId(0)).expect("there is something to be sent");
    let is_true = ack.received <= 1 && ack.through <= 1;
    assert_eq!(scatter.confirm(now, LaneId(0), &ack).is_ok(), is_true);
    assert!(scatter.delivered() <= units::Bytes(4) && scatter.kept() <= 1);
}

/// One of each.
pub fn field_seeds() -> Vec<Vec<u8>> {
    let data = Header::Data { number: SeqNo(9), length: 1000 };
    let headers = [data, Header::Ack, Header::Leave, Header::Reset];
    let mut seeds = Vec::from_iter(headers.map(|header| header.encode().to_vec()));
    let rtt = core::time::Duration::from_millis(200);
    let system = System { k: 750, window: units::Bytes(1 << 20), rtt };
    let ack = Ack { received: 1, through: 1, limit: 33, ..Ack::default() };
    for system in [None, Some(system)] {
        seeds.push(Ack { system, ..ack }.encode().to_vec());
    }
    let target = units::Rate::from_bits_per_sec(1 << 30);
    let (alpha, beta) = (rtt, rtt * 2);
    for policy in [
        Policy::Fixed(8),
        Policy::Equation { target, first: 4, k: 750 },
        Policy::RttBounded { alpha, beta },
        Policy::Auto { first: 0 },
    ] {
        seeds.push(policy.encode().to_vec());
    }
    seeds.push(xftp::closing(8193).to_vec());
    seeds
}

/// A stream dealt to connections as the input says, that bring it, tell what came and die as it says:
/// it comes out whole and in order, and nothing waits for ever.
pub fn records(input: &[u8]) {
    let _ = deal(&mut Unstructured::new(input));
}

struct Lane {
    id: LaneId,
    there: VecDeque<Record>,
    received: u64,
}

fn deal(input: &mut Unstructured<'_>) -> Result<()> {
    let text: Vec<u8> =
        (0..input.int_in_range(0..=60_000)?).map(|i: u32| ((i * 7) >> 3) as u8).collect();
    let mut scatter = Scatter::new(Assignment::Dynamic, units::Bytes(0));
    let mut gather = Gather::new(units::Bytes(0));
    let (mut written, mut read, mut now) = (0, Vec::new(), Instant::from_nanos(1));
    let mut lanes: Vec<Lane> = Vec::new();
    let mut joined = 0;
    while !scatter.is_confirmed() {
        // Without input left no connection dies, and everything that can happen does.
        let free = input.is_empty();
        let dies = !free && input.ratio(1, 8)?;
        if dies && !lanes.is_empty() {
            scatter.leave(lanes.swap_remove(input.choose_index(lanes.len())?).id);
        }
        if lanes.len() < 3 {
            let id = LaneId(joined);
            joined += 1;
            scatter.join(id);
            lanes.push(Lane { id, there: VecDeque::new(), received: 0 });
        }
        let amount = if free { 50_000 } else { input.int_in_range(0..=9000)? };
        let end = text.len().min(written + amount);
        written += if written < end { scatter.write(&text[written..end]) } else { 0 };
        if written == text.len() {
            scatter.finish();
        }
        now += core::time::Duration::from_millis(amount as u64);
        for lane in &mut lanes {
            let chooses =
                |input: &mut Unstructured<'_>| if free { Ok(true) } else { input.arbitrary() };
            if chooses(input)? {
                lane.there.extend(scatter.take(now, lane.id));
            }
            if chooses(input)?
                && let Some(record) = lane.there.pop_front()
            {
                gather.accept(record.number, record.payload).expect("the rules are kept");
                lane.received += 1;
            }
            if chooses(input)? {
                let (received, through, limit) = (lane.received, gather.through(), gather.limit());
                let ack = Ack { received, through, limit, ..Ack::default() };
                scatter.confirm(now, lane.id, &ack).expect("it was received");
            }
        }
        let mut out = vec![0; amount];
        let len = gather.read(&mut out);
        read.extend_from_slice(&out[..len]);
        assert!(text.starts_with(&read), "out of order after {} bytes", read.len());
    }
    let mut rest = vec![0; text.len()];
    let len = gather.read(&mut rest);
    read.extend_from_slice(&rest[..len]);
    assert!(gather.is_ended() && read == text);
    Ok(())
}

/// Sequences of choices.
pub fn record_seeds() -> Vec<Vec<u8>> {
    crate::link::seeds()
}
