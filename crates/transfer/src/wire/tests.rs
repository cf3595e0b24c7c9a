use proptest::collection::vec;
use proptest::prelude::*;

use super::decoder::take;
use super::*;
use crate::notes::NoteKind;

fn any_path() -> impl Strategy<Value = RelPath> {
    vec(vec(any::<u8>(), 1..20), 0..6)
        .prop_filter_map("unclean", |names| RelPath::new(names.join(&b'/')).ok())
}

fn any_attributes() -> impl Strategy<Value = Attributes> + Clone {
    let raw = vec(any::<u8>(), 0..20).prop_map(RawBytes);
    let times = (any::<i64>(), 0..1_000_000_000_u32);
    (any::<(u32, Option<(u32, u32)>)>(), times, vec((raw.clone(), raw), 0..3)).prop_map(
        |((mode, owner), (seconds, nanos), extended)| Attributes {
            mode,
            modified: Modified { seconds, nanos },
            owner,
            extended,
        },
    )
}

fn any_message() -> impl Strategy<Value = Message> {
    let attributes = any_attributes();
    let raw = vec(any::<u8>(), 0..200).prop_map(RawBytes);
    let occupancy =
        any::<[u64; 3]>().prop_map(|[blocks, full, empty]| Occupancy { blocks, full, empty });
    prop_oneof![
        (raw.clone(), any::<(bool, Option<u64>)>()).prop_map(
            |(destination, (into_directory, id))| {
                let id = id.map(|id| TransferId::of([&id.to_le_bytes()[..]]));
                let (rehearses, patterns) = (into_directory, vec!["*.o".into()]);
                Message::Put { destination, into_directory, id, rehearses, patterns }
            }
        ),
        vec(any::<Tag>(), 0..HAS_TAGS).prop_map(|tags| Message::Has { tags }),
        (any::<Tag>(), 0..1_000_000_u64).prop_map(|(tag, blocks)| {
            let subtrees = vec![[7_u8; 32]; blocks.count_ones() as usize];
            let state = postcard::to_stdvec(&(blocks, subtrees)).unwrap();
            Message::HasPart { tag, state: postcard::from_bytes(&state).unwrap() }
        }),
        Just(Message::HadAll),
        any::<u64>().prop_map(|offset| Message::From { offset }),
        (raw.clone(), any::<bool>()).prop_map(|(source, owner)| {
            let terms = Terms {
                owner,
                compare: owner.then_some(Compare::Content),
                patterns: vec!["*.o".into()],
                rate: owner.then_some(u64::MAX),
                ..Terms::default()
            };
            Message::Get { source, terms }
        }),
        any_syncing(),
        (any_path(), any_path()).prop_map(|(path, to)| Message::Link { path, to }),
        (0..=HOLE_MAX).prop_map(|length| Message::Hole { length }),
        any::<(u64, u64, u64)>().prop_map(|(files, bytes, least)| Message::Totals {
            files,
            bytes,
            least
        }),
        (any_path(), attributes.clone())
            .prop_map(|(path, attributes)| Message::Directory { path, attributes }),
        (any_path(), raw.clone(), attributes.clone())
            .prop_map(|(path, target, attributes)| Message::Symlink { path, target, attributes }),
        (any_path(), any::<(Option<u64>, Tag)>(), attributes).prop_map(
            |(path, (size, tag), attributes)| Message::File { path, size, tag, attributes }
        ),
        any::<[u8; 32]>().prop_map(|hash| Message::End { hash }),
        Just(Message::Abandon),
        any::<u64>().prop_map(|bytes| Message::Probe { bytes }),
        (raw, any::<String>()).prop_map(|(path, why)| Message::Note(Note::new(
            NoteKind::Failed,
            &path.0,
            &why
        ))),
        (occupancy.clone(), any::<[u64; 3]>()).prop_map(|(occupancy, [files, bytes, begun])| {
            Message::Finish { occupancy, kept: Kept { files, bytes, begun } }
        }),
        any::<(u64, u64)>().prop_map(|(files, bytes)| Message::Progress { files, bytes }),
        (any::<[u64; 4]>(), occupancy).prop_map(
            |([files, directories, symlinks, bytes], occupancy)| {
                let counts = Counts { files, directories, symlinks, bytes, removed: files };
                Message::Done { counts, occupancy }
            }
        ),
        any::<String>().prop_map(|why| Message::fatal(&why)),
    ]
}

fn any_syncing() -> impl Strategy<Value = Message> {
    let standing = any::<([u8; 12], u32)>().prop_map(|(key, rest)| Standing { key, rest });
    let piece = any::<(u32, [u8; 16])>().prop_map(|(length, hash)| Piece { length, hash });
    let name = vec(any::<u8>(), 0..NAME_MAX).prop_map(RawBytes);
    prop_oneof![
        (any_path(), any::<bool>())
            .prop_map(|(path, owner)| { Message::Compare { path, by: Compare::Time, owner } }),
        vec(standing, 0..600).prop_map(|standing| Message::Stands { standing }),
        Just(Message::Told),
        (any_path(), any_attributes())
            .prop_map(|(path, attributes)| Message::Mend { path, attributes }),
        (any_path(), vec(name, 0..20), any::<bool>())
            .prop_map(|(path, names, is_last)| Message::Names { path, names, is_last }),
        any_path().prop_map(|path| Message::Ask { path }),
        any_path().prop_map(|path| Message::Stays { path }),
        (any_path(), any::<u32>(), vec(piece, 0..513), any::<bool>()).prop_map(
            |(path, average, pieces, is_last)| Message::Pieces { path, average, pieces, is_last }
        ),
        (any::<u64>(), 0..=COPY_MAX).prop_map(|(offset, length)| Message::Copy { offset, length }),
    ]
}

#[derive(Clone, Debug)]
enum Frame {
    Message(Message),
    Data(Vec<u8>),
}

fn any_frames() -> impl Strategy<Value = Vec<Frame>> {
    let data = vec(any::<u8>(), 1..500).prop_map(Frame::Data);
    vec(prop_oneof![any_message().prop_map(Frame::Message), data], 0..20)
}

fn encode(frames: &[Frame]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for frame in frames {
        match frame {
            Frame::Message(message) => append_message(message, &mut bytes),
            Frame::Data(data) => {
                bytes.extend_from_slice(&data_head(data.len()));
                bytes.extend_from_slice(data);
            }
        }
    }
    bytes
}

/// Messages and data bytes in their order; the pieces in which data came do not matter.
fn flatten<'a>(items: impl Iterator<Item = Item<'a>>) -> Vec<Result<Message, u8>> {
    items
        .flat_map(|item| match item {
            Item::Message(message) => vec![Ok(message)],
            Item::Data(data) => data.iter().map(|&byte| Err(byte)).collect(),
            Item::Packed(_) => panic!("nothing was packed"),
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn what_was_encoded_is_decoded_in_any_pieces(
        frames in any_frames(),
        pieces in vec(1..700_usize, 1..50),
    ) {
        let bytes = encode(&frames);
        let mut decoder = Decoder::default();
        let mut decoded = Vec::new();
        let mut left = &bytes[..];
        for length in pieces.iter().cycle() {
            let mut piece = take(&mut left, *length);
            if piece.is_empty() {
                break;
            }
            while let Some(item) = decoder.next(&mut piece).unwrap() {
                decoded.extend(flatten(std::iter::once(item)));
            }
        }
        prop_assert!(decoder.is_between_frames());
        let sent = frames.iter().map(|frame| match frame {
            Frame::Message(message) => Item::Message(message.clone()),
            Frame::Data(data) => Item::Data(data),
        });
        prop_assert_eq!(decoded, flatten(sent));
    }

    #[test]
    fn arbitrary_bytes_neither_panic_nor_pile_up(
        pieces in vec(vec(any::<u8>(), 0..300), 0..20),
    ) {
        let mut decoder = Decoder::default();
        for piece in &pieces {
            let mut input = &piece[..];
            while let Ok(Some(_)) = decoder.next(&mut input) {}
            prop_assert!(decoder.partial.len() <= CONTROL_HEAD + CONTROL_MAX);
        }
    }

    /// The check is right, so that postcard meets the bytes.
    #[test]
    fn arbitrary_messages_are_bounded_by_their_frame(body in vec(any::<u8>(), 1..300)) {
        let mut head = [0; CONTROL_HEAD];
        head[DATA_HEAD..].copy_from_slice(&check(&body));
        if let Ok(message) = parse_message(&head, &body) {
            let mut again = Vec::new();
            append_message(&message, &mut again);
            prop_assert!(again.len() <= CONTROL_HEAD + CONTROL_MAX);
        }
    }

    #[test]
    fn a_damaged_message_is_found(
        message in any_message(), place in any::<prop::sample::Index>(), flip in 1..=255_u8,
    ) {
        let mut bytes = Vec::new();
        append_message(&message, &mut bytes);
        let place = place.index(bytes.len());
        bytes[place] ^= flip;
        let mut decoder = Decoder::default();
        let mut input = &bytes[..];
        while let Ok(Some(item)) = decoder.next(&mut input) {
            // A head that was hit may say that bytes of a file follow: their hash finds that.
            prop_assert!(!matches!(item, Item::Message(_)), "{item:?}");
        }
    }
}

#[test]
fn a_length_that_no_frame_has_is_refused_at_once() {
    for word in [0, CONTROL_MAX as u32 + 1, DATA_BIT, DATA_BIT | (DATA_MAX as u32 + 1), u32::MAX] {
        let bytes = word.to_le_bytes();
        assert_eq!(Decoder::default().next(&mut &bytes[..]), Err(WireError::Length), "{word:x}");
    }
}

#[test]
fn the_largest_messages_fit_their_frame() {
    let name = vec![b'a'; 255];
    let longest = [&name[..]; 16].join(&b'/');
    let path = RelPath::new(longest.clone()).unwrap();
    let target = RawBytes(longest.clone());
    let note = Note::new(NoteKind::Failed, &longest, &"x".repeat(5000));
    let mut bytes = Vec::new();
    let modified = Modified { seconds: i64::MIN, nanos: u32::MAX };
    let extended = vec![(RawBytes(vec![b'x'; 256]), RawBytes(vec![7; (8 << 10) - 256]))];
    let owner = Some((u32::MAX, u32::MAX));
    let attributes = Attributes { mode: u32::MAX, modified, owner, extended };
    let (size, tag) = (Some(u64::MAX), Tag::default());
    append_message(&Message::Link { path: path.clone(), to: path.clone() }, &mut bytes);
    let link = Message::Symlink { path: path.clone(), target, attributes: Attributes::default() };
    append_message(&link, &mut bytes);
    let file = Message::File { path: path.clone(), size, tag, attributes };
    append_message(&file, &mut bytes);
    append_message(&Message::Note(note), &mut bytes);
    let pieces = vec![Piece { length: u32::MAX, hash: [0xff; 16] }; 512];
    let average = u32::MAX;
    append_message(
        &Message::Pieces { path: path.clone(), average, pieces, is_last: true },
        &mut bytes,
    );
    let standing = vec![Standing { key: [0xff; 12], rest: u32::MAX }; 512];
    append_message(&Message::Stands { standing }, &mut bytes);
    let names = vec![RawBytes(vec![b'x'; 1]); NAMES_BYTES / 3 + 1];
    append_message(&Message::Names { path, names, is_last: false }, &mut bytes);
}

#[test]
fn packed_frames_come_whole() {
    let mut bytes = packed_head(5).to_vec();
    bytes.extend_from_slice(b"bytes");
    bytes.extend_from_slice(&data_head(1));
    bytes.push(7);
    let mut decoder = Decoder::default();
    let mut came = Vec::new();
    for byte in bytes {
        came.extend(decoder.next(&mut &[byte][..]).unwrap().map(|item| match item {
            Item::Packed(packed) => packed,
            Item::Data(data) => data.to_vec(),
            Item::Message(message) => panic!("{message:?}"),
        }));
    }
    assert_eq!(came, [b"bytes".to_vec(), vec![7]]);
}

#[test]
fn a_path_that_leads_out_is_no_message() {
    let path = RelPath::new(b"aa/x".to_vec()).unwrap();
    let (attributes, tag) = (Attributes::default(), Tag::default());
    let message = Message::File { path, size: Some(0), tag, attributes };
    let mut body = postcard::to_stdvec(&message).unwrap();
    let at = body.windows(2).position(|two| two == b"aa").unwrap();
    body[at..at + 2].copy_from_slice(b"..");
    let mut head = [0; CONTROL_HEAD];
    head[DATA_HEAD..].copy_from_slice(&check(&body));
    assert_eq!(parse_message(&head, &body), Err(WireError::Message));
}

#[test]
fn a_message_may_have_more_fields_than_are_known() {
    let (source, terms) = (RawBytes(b"x".to_vec()), Terms { rate: Some(9), ..Terms::default() });
    let message = Message::Get { source, terms };
    let mut body = postcard::to_stdvec(&message).unwrap();
    body.extend_from_slice(b"of a later release");
    let mut head = [0; CONTROL_HEAD];
    head[..DATA_HEAD].copy_from_slice(&(body.len() as u32).to_le_bytes());
    head[DATA_HEAD..].copy_from_slice(&check(&body));
    assert_eq!(parse_message(&head, &body), Ok(message));
    // What this program writes for itself alone is as it was written.
    assert_eq!(parse_frame::<u8>(&head, &body), Err(WireError::Message));
}
