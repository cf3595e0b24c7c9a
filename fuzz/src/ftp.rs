//! What comes to an end of FTP beside the commands that a server's session hears: replies, listings and
//! addresses, to a client, and data, to either.

use ::ftp::address::{
    read_eprt, read_epsv_reply, read_mprt, read_pasv_reply, read_port, write_eprt,
    write_epsv_reply, write_mprt, write_port,
};
use ::ftp::client::{ClientError, Control, Stop, unquoted};
use ::ftp::data::{Ascii, Channel, Moved, RECORD_LEN, receive};
use ::ftp::entry::{Entry, Facts, Kind, ls_line, read_facts, read_ls_line};
use ::ftp::names::{quoted, seen};
use ::ftp::reply::{REPLY_LINES_MAX, Reply, ReplyReader};
use ::ftp::session::{Encoding, Framing};
use arbitrary::{Result, Unstructured};
use stripe::xftp::{closing, number};
use tokio::io::AsyncWriteExt;
use transfer::RelPath;

use crate::memory::{settle, settled};

/// When listings are read: on 29 February 2024.
const NOW: i64 = 1_709_210_096;
/// No stamp can say this, or what is later.
const YEAR_10000: i64 = 253_402_300_800;
/// Ports that are asked for.
const PORTS: usize = 3;

/// A connection over which this comes, and then its end.
fn channel(said: &[u8]) -> Channel {
    let (mut near, far) = tokio::io::duplex(said.len().max(1));
    settled(near.write_all(said)).expect("there is room");
    Box::new(far)
}

/// What a server says, as replies and as lines of listings.
pub fn client(input: &[u8]) {
    replies(input);
    addresses(&String::from_utf8_lossy(input));
    for line in input.split(|&byte| byte == b'\n') {
        facts(line);
        listed(line);
        let Ok(path) = RelPath::new(line.to_vec()) else { continue };
        assert_eq!(unquoted(&quoted(&path, " is the \"current\" directory")), seen(&path));
    }
}

/// Replies end, and are written again with the same code in as many lines.
fn replies(said: &[u8]) {
    let mut control = Control::new(channel(said), Stop::default());
    let (replies, error) = settled(async {
        let mut replies = Vec::new();
        loop {
            match control.reply().await {
                Ok(reply) => replies.push(reply),
                Err(error) => return (replies, error),
            }
        }
    });
    assert!(matches!(error, ClientError::Connection(_) | ClientError::Nonsense(_)), "{error}");
    for Reply { code, lines } in replies {
        assert!((100..600).contains(&code) && (1..=REPLY_LINES_MAX).contains(&lines.len()));
        let count = lines.len();
        let again = Reply { code, lines }.encode();
        let mut reader = ReplyReader::default();
        let again = again.split(|&byte| byte == b'\n').find_map(|line| {
            reader.line(line.strip_suffix(b"\r").unwrap_or(line)).expect("it was just written")
        });
        let again = again.expect("it was whole");
        assert_eq!((again.code, again.lines.len()), (code, count));
    }
}

/// Ports are some, and not more than were asked for; what is read is written again and read as the same.
fn addresses(text: &str) {
    if let Some(ports) = read_epsv_reply(text, PORTS) {
        assert!((1..=PORTS).contains(&ports.len()) && !ports.contains(&0));
        assert_eq!(read_epsv_reply(&write_epsv_reply(&ports), PORTS), Some(ports));
    }
    assert_ne!(read_pasv_reply(text), Some(0));
    if let Some(ends) = read_port(text) {
        let written = ends.sockets().next().and_then(write_port).expect("an address of IPv4");
        assert_eq!(read_port(&written), Some(ends));
    }
    for ends in [read_eprt(text, PORTS), read_mprt(text, PORTS)].into_iter().flatten() {
        assert!((1..=PORTS).contains(&ends.ports.len()) && !ends.ports.contains(&0));
        assert_eq!(read_eprt(&write_eprt(&ends), PORTS).as_ref(), Some(&ends));
        assert_eq!(read_mprt(&write_mprt(&ends), PORTS), Some(ends));
    }
}

/// What a line of MLSD says is read as the same from the line that our server would write.
fn facts(line: &[u8]) {
    let Ok(Some(read)) = read_facts(line) else { return };
    let size = if read.kind == Kind::File { read.size } else { 0 };
    let modified = read.modified.filter(|&at| at < YEAR_10000);
    let entry = Entry { size, modified, mode: read.mode.or(Some(0)), ..read };
    let again = [Facts::default().of(&entry, true).as_bytes(), &entry.name].concat();
    assert_eq!(read_facts(&again), Ok(Some(entry)));
}

/// So does one of LIST, but for the time of day, which it only has of late.
fn listed(line: &[u8]) {
    let Ok(Some(read)) = read_ls_line(line, NOW) else { return };
    assert!(!read.name.is_empty());
    // Ours has no others.
    if read.kind == Kind::Other || matches!(&read.name[..], b"." | b"..") {
        return;
    }
    let again = |entry: &Entry| {
        let line = [ls_line(entry, NOW).as_bytes(), &entry.name].concat();
        read_ls_line(&line, NOW).ok().flatten().expect("it was just written")
    };
    let entry = again(&read);
    assert_eq!((&entry.name, entry.kind, entry.size), (&read.name, read.kind, read.size));
    assert_eq!(again(&entry), entry);
}

/// Lines as servers write them.
pub fn client_seeds() -> Vec<Vec<u8>> {
    [
        &b"220-Welcome\r\n220-to this\r\n220 server\r\n331 Password?\r\n"[..],
        b"211-Features:\r\n MLST type*;size*;\r\n211 is no end\r\n UTF8\r\n211 End\r\n421 Bye\r\n",
        b"257 \"/a\"\"\xff\xffb\" is it\r\n",
        b"227 Entering Passive Mode (192,0,2,1,19,137).\r\n",
        b"229 Entering Extended Passive Mode (|||5001,5002|)\r\n",
        b"192,0,2,1,19,137",
        b"|2|2001:db8::1|5001|",
        b"192,0,2,1,5001,5002",
        b"type=file;size=42;modify=20240229123456.5;perm=r;unique=1g2;UNIX.mode=0644; a; b\r\n\
        type=cdir; .\r\nType=OS.unix=symlink; c\r\n",
        b"total 3\r\n-rw-r--r-- 1 ftp ftp 42 Feb 29 11:30 a  b\r\ndrwxr-x--- 2 root 4096 Jan  1  1970 d\
        \r\nlrwxrwxrwx 1 0 0 7 Nov 21 00:00 l -> d\r\n",
        b"11-21-26  12:30PM       <DIR>          d\r\n11-21-26  12:30PM       1234 a file.txt\r\n",
    ]
    .map(<[u8]>::to_vec)
    .into()
}

/// The first byte names how the end of the data is marked, the rest is what comes.
pub fn data(input: &[u8]) {
    let Some((framing, bytes)) = input.split_first() else { return };
    match framing % 3 {
        0 => lines(bytes),
        1 => blocks(bytes),
        _ => {
            let _ = records(&mut Unstructured::new(bytes));
        }
    }
}

/// What arrived over these connections, and whether it was all.
fn received(wires: &[Vec<u8>], ascii: bool, framing: Framing) -> (Vec<u8>, bool) {
    let channels = wires.iter().map(|wire| channel(wire)).collect();
    let (mut sink, moved) = (Vec::new(), Moved::default());
    let encoding = Encoding { ascii, framing };
    // One that is held back for a record which never comes is given up after a while.
    let done = settle(receive(channels, &mut sink, encoding, &moved));
    assert_eq!(moved.bytes(), sink.len() as u64);
    (sink, matches!(done, Some(Ok(()))))
}

/// Of lines that end with CR LF the CR goes, and no other; wherever pieces end.
fn lines(bytes: &[u8]) {
    let after = bytes.iter().skip(1).map(Some).chain([None]);
    let pairs = bytes.iter().zip(after);
    let kept = pairs.filter(|&pair| pair != (&b'\r', Some(&b'\n')));
    let expected = Vec::from_iter(kept.map(|(&byte, _)| byte));
    let (mut ascii, mut cut) = (Ascii::default(), Vec::new());
    bytes.chunks(1).for_each(|piece| ascii.decode(piece, &mut cut));
    ascii.decode(&[], &mut cut);
    assert_eq!(cut, expected);
    assert_eq!(received(&[bytes.to_vec()], true, Framing::Stream), (expected, true));
}

/// Blocks are those that a plain walk finds.
fn blocks(bytes: &[u8]) {
    let (mut rest, mut expected, mut is_whole) = (bytes, Vec::new(), false);
    while let Some(([descriptor, high, low], behind)) = rest.split_first_chunk::<3>() {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (block, behind) = behind.split_at(length.min(behind.len()));
        // A restart marker is no data.
        if descriptor & 16 == 0 {
            expected.extend_from_slice(block);
        }
        is_whole = descriptor & 64 != 0 && block.len() == length;
        if is_whole || block.len() < length {
            break;
        }
        rest = behind;
    }
    assert_eq!(received(&[bytes.to_vec()], false, Framing::Block), (expected, is_whole));
}

/// Records over several connections, nearly all of them right: if all are, everything arrives.
fn records(input: &mut Unstructured<'_>) -> Result<()> {
    let (mut expected, mut is_right) = (Vec::new(), true);
    let mut wires = vec![Vec::new(); input.int_in_range(1..=3)?];
    for next in 0..input.int_in_range(0..=12)? {
        let record: u32 = if input.ratio(31, 32)? { next } else { input.arbitrary()? };
        is_right &= record == next;
        let (wire, fill) = (input.choose_index(wires.len())?, input.arbitrary()?);
        wires[wire].extend_from_slice(&number(record.into()));
        wires[wire].extend_from_slice(&[fill; RECORD_LEN]);
        expected.extend_from_slice(&[fill; RECORD_LEN]);
    }
    // The last one is filled up.
    let unused = if expected.is_empty() { 0 } else { input.int_in_range(0..=RECORD_LEN - 1)? };
    expected.truncate(expected.len() - unused);
    let whole = expected.len() as u64;
    for wire in &mut wires {
        let size = if input.ratio(31, 32)? { whole } else { input.arbitrary()? };
        wire.extend_from_slice(&closing(size));
        let cut = if input.ratio(31, 32)? { 0 } else { input.int_in_range(1..=20)? };
        wire.truncate(wire.len().saturating_sub(cut));
        is_right &= size == whole && cut == 0;
    }
    let (came, is_whole) = received(&wires, false, Framing::Striped);
    assert!(!is_right || is_whole && came == expected, "{} of {whole} bytes came", came.len());
    Ok(())
}

/// One of each.
pub fn data_seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![
        b"\0one\r\ntwo\rthree\r".to_vec(),
        b"\x01\0\0\x02ab\x10\0\x03999\x40\0\x01c".to_vec(),
        b"\x01\0\0\x02ab\x40\0\0".to_vec(),
    ];
    seeds.extend(crate::link::seeds().iter().map(|choices| [&[2_u8][..], choices].concat()));
    seeds
}
