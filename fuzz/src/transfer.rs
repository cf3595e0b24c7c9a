//! The file transfer's messages: a stream in any pieces says the same, and what is read is written
//! again as it was.

use ::transfer::wire::{
    Attributes, CONTROL_HEAD, CONTROL_MAX, Compare, DATA_MAX, Decoder, HELLO_LEN, Item, MAGIC,
    Message, RawBytes, RelPath, Standing, Terms, WireError, append_message, check_hello, data_head,
    hello, packed_head, parse_message,
};
use ::transfer::{
    JOURNAL_MAGIC, Packer, TransferId, Unpacker, check_pattern, journal_example, journal_records,
};
use arbitrary::{Result, Unstructured};

/// Bytes from outside: a hello, then frames in pieces and as a whole.
pub fn stream(input: &[u8]) {
    if let Some(bytes) = input.first_chunk::<HELLO_LEN>() {
        let agreed = check_hello(bytes).map(|agreed| agreed.version);
        assert!(agreed.is_err() || bytes.starts_with(&MAGIC));
        assert!(agreed.is_ok() || *bytes != hello());
    }
    let whole = items(input, input.len().max(1));
    assert_eq!(whole, items(input, 1), "it matters how the stream is cut");
    let (items, _) = whole;
    for message in items.iter().filter_map(Part::message) {
        let mut again = Vec::new();
        append_message(message, &mut again);
        assert!(again.len() <= CONTROL_HEAD + CONTROL_MAX);
        let (head, body) = again.split_first_chunk().expect("a head");
        assert_eq!(parse_message(head, body).as_ref(), Ok(message));
        check_paths(message);
        check_patterns(message);
    }
    if let Some(packed) = items.iter().find_map(Part::packed) {
        unpack(packed);
    }
}

/// A message, or bytes of a file.
#[derive(Debug, PartialEq)]
enum Part {
    Message(Message),
    Data(Vec<u8>),
    Packed(Vec<u8>),
}

impl Part {
    fn message(&self) -> Option<&Message> {
        match self {
            Self::Message(message) => Some(message),
            Self::Data(_) | Self::Packed(_) => None,
        }
    }

    fn packed(&self) -> Option<&[u8]> {
        match self {
            Self::Packed(packed) => Some(packed),
            Self::Message(_) | Self::Data(_) => None,
        }
    }
}

fn items(input: &[u8], piece: usize) -> (Vec<Part>, Option<WireError>) {
    let mut decoder = Decoder::default();
    let mut parts: Vec<Part> = Vec::new();
    for mut piece in input.chunks(piece) {
        loop {
            match decoder.next(&mut piece) {
                Ok(None) => break,
                Ok(Some(Item::Message(message))) => parts.push(Part::Message(message)),
                Ok(Some(Item::Packed(data))) => {
                    assert!(!data.is_empty() && data.len() <= DATA_MAX);
                    parts.push(Part::Packed(data));
                }
                Ok(Some(Item::Data(data))) => {
                    assert!(!data.is_empty() && data.len() <= DATA_MAX);
                    match parts.last_mut() {
                        Some(Part::Data(before)) => before.extend_from_slice(data),
                        _ => parts.push(Part::Data(data.to_vec())),
                    }
                }
                Err(error) => return (parts, Some(error)),
            }
        }
    }
    (parts, None)
}

/// No path that was read leads elsewhere.
fn check_paths(message: &Message) {
    let (Message::Directory { path, .. } | Message::File { path, .. } | Message::Link { path, .. }) =
        message
    else {
        return;
    };
    let text = path.as_bytes();
    assert!(!text.starts_with(b"/") && !text.contains(&0));
    assert!(text.split(|&byte| byte == b'/').all(|name| name != b".."));
}

/// Whatever patterns say, they are understood or refused.
fn check_patterns(message: &Message) {
    let (Message::Get { terms: Terms { patterns, .. }, .. } | Message::Put { patterns, .. }) =
        message
    else {
        return;
    };
    for pattern in patterns {
        let _ = check_pattern(pattern);
    }
}

/// What was packed is no longer than a piece may be, and if it is packed once more, the same comes out.
fn unpack(packed: &[u8]) {
    let [mut first, mut second] = [(); 2].map(|()| Unpacker::new().expect("there is memory"));
    let Some(plain) = first.unpack(packed) else { return };
    assert!((1..=DATA_MAX).contains(&plain.len()));
    let mut packer = Packer::new().expect("there is memory");
    if let Some(again) = packer.pack(plain) {
        assert!(again.len() < plain.len() && second.unpack(again) == Some(plain));
    }
}

/// Messages of the input's choice, written and read.
pub fn messages(input: &[u8]) {
    let _ = round_trip(&mut Unstructured::new(input));
}

fn round_trip(input: &mut Unstructured<'_>) -> Result<()> {
    let (mut bytes, mut expected) = (Vec::new(), Vec::new());
    while !input.is_empty() && expected.len() < 50 {
        let part = part(input)?;
        match &part {
            Part::Message(message) => append_message(message, &mut bytes),
            Part::Packed(data) => {
                bytes.extend_from_slice(&packed_head(data.len()));
                bytes.extend_from_slice(data);
            }
            Part::Data(data) => {
                bytes.extend_from_slice(&data_head(data.len()));
                bytes.extend_from_slice(data);
            }
        }
        match (expected.last_mut(), part) {
            (Some(Part::Data(before)), Part::Data(data)) => before.extend(data),
            (_, part) => expected.push(part),
        }
    }
    assert_eq!(items(&bytes, input.int_in_range(1..=97)?), (expected, None));
    Ok(())
}

fn part(input: &mut Unstructured<'_>) -> Result<Part> {
    let raw = |input: &mut Unstructured<'_>| {
        let len = input.int_in_range(0..=60)?;
        Ok(input.bytes(len)?.to_vec())
    };
    Ok(match input.int_in_range(0..=8)? {
        0 => Part::Message(Message::Get {
            source: RawBytes(raw(input)?),
            terms: Terms {
                owner: input.arbitrary()?,
                compare: input.arbitrary::<bool>()?.then_some(Compare::Content),
                patterns: vec![input.arbitrary()?],
                ..Terms::default()
            },
        }),
        1 => Part::Message(Message::Put {
            destination: RawBytes(raw(input)?),
            into_directory: input.arbitrary()?,
            id: input.arbitrary::<Option<[u8; 16]>>()?.map(|id| TransferId::of([&id[..]])),
            rehearses: input.arbitrary()?,
            patterns: vec![input.arbitrary()?],
        }),
        2 => Part::Message(Message::Abandon),
        3 => {
            let [files, bytes, least] = input.arbitrary()?;
            Part::Message(Message::Totals { files, bytes, least })
        }
        4 => match RelPath::new(raw(input)?) {
            Ok(path) => {
                let (size, tag) = (input.arbitrary()?, input.arbitrary()?);
                let attributes = Attributes { mode: input.arbitrary()?, ..Attributes::default() };
                Part::Message(Message::File { path, size, tag, attributes })
            }
            Err(_) => Part::Message(Message::Abandon),
        },
        5 => {
            let name = raw(input)?;
            let (names, is_last) = (vec![RawBytes(name)], input.arbitrary()?);
            Part::Message(Message::Names { path: RelPath::default(), names, is_last })
        }
        6 => {
            let (key, rest) = input.arbitrary()?;
            Part::Message(Message::Stands { standing: vec![Standing { key, rest }; 3] })
        }
        kind => {
            let mut data = raw(input)?;
            data.push(0);
            if kind == 7 { Part::Packed(data) } else { Part::Data(data) }
        }
    })
}

/// A journal that anybody may have written: what is read of it is the same each time, and what is cut
/// off takes only itself along.
pub fn journal(input: &[u8]) {
    let whole = [JOURNAL_MAGIC, input].concat();
    let records = journal_records(&whole);
    assert_eq!(records, journal_records(&whole));
    assert!(records.iter().map(|&length| length as usize).sum::<usize>() <= input.len());
    for cut in [whole.len() / 2, whole.len().saturating_sub(1)] {
        let less = journal_records(&whole[..cut]);
        assert!(records.starts_with(&less), "a cut changes what stood before it");
    }
    journal_records(input);
}

/// As the transfer writes it.
pub fn journal_seeds() -> Vec<Vec<u8>> {
    vec![journal_example()[JOURNAL_MAGIC.len()..].to_vec()]
}

/// One of each, as the transfer writes them.
pub fn stream_seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![hello().to_vec()];
    let path = RelPath::new(b"a/b".to_vec()).expect("a path");
    let attributes = Attributes { mode: 0o644, ..Attributes::default() };
    let terms = Terms::default();
    for message in [
        Message::Get { source: RawBytes(b"/srv/x".to_vec()), terms },
        Message::Totals { files: 3, bytes: 1 << 40, least: 0 },
        Message::Directory { path: path.clone(), attributes: attributes.clone() },
        Message::Link { path: path.clone(), to: path.clone() },
        Message::File { path, size: Some(5), tag: [9; 16], attributes },
        Message::Hole { length: 3 },
        Message::End { hash: [7; 32] },
        Message::fatal("enough"),
    ] {
        let mut seed = Vec::new();
        append_message(&message, &mut seed);
        seed.extend_from_slice(&data_head(5));
        seed.extend_from_slice(b"bytes");
        seeds.push(seed);
    }
    let mut packer = Packer::new().expect("there is memory");
    let packed = packer.pack(&[7; 2000]).expect("it becomes less");
    seeds.push([&packed_head(packed.len())[..], packed].concat());
    seeds
}
