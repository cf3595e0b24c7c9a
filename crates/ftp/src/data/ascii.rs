//! TYPE A: lines end with CR LF on the way, and with LF on the disk (RFC 959, section 3.1.1.1).

/// Translates piece by piece; remembers what the last piece ended with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ascii {
    after_cr: bool,
}

impl Ascii {
    /// From the disk to the way. A line that ends with CR LF on the disk already stays as it is.
    pub fn encode(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for &byte in bytes {
            if byte == b'\n' && !self.after_cr {
                out.push(b'\r');
            }
            self.after_cr = byte == b'\r';
            out.push(byte);
        }
    }

    /// From the way to the disk; an empty piece says that nothing more comes.
    pub fn decode(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for &byte in bytes {
            if std::mem::take(&mut self.after_cr) && byte != b'\n' {
                out.push(b'\r');
            }
            match byte {
                b'\r' => self.after_cr = true,
                byte => out.push(byte),
            }
        }
        if bytes.is_empty() && std::mem::take(&mut self.after_cr) {
            out.push(b'\r');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(pieces: &[&[u8]], step: impl Fn(&mut Ascii, &[u8], &mut Vec<u8>)) -> Vec<u8> {
        let (mut ascii, mut out) = (Ascii::default(), Vec::new());
        for piece in pieces.iter().chain([&&b""[..]]) {
            step(&mut ascii, piece, &mut out);
        }
        out
    }

    #[test]
    fn line_ends_become_cr_lf_and_back_wherever_pieces_end() {
        assert_eq!(run(&[b"a\nb\r", b"\nc"], Ascii::encode), b"a\r\nb\r\nc");
        assert_eq!(run(&[b"a\r\nb\r", b"\nc\r", b"d\r"], Ascii::decode), b"a\nb\nc\rd\r");
    }

    proptest::proptest! {
        #[test]
        fn text_survives(text in "[a-z\n]{0,40}", cut in 0usize..40) {
            let cut = cut.min(text.len());
            let way = run(&[&text.as_bytes()[..cut], &text.as_bytes()[cut..]], Ascii::encode);
            let cut = cut.min(way.len());
            let back = run(&[&way[..cut], &way[cut..]], Ascii::decode);
            proptest::prop_assert_eq!(back, text.as_bytes());
        }
    }
}
