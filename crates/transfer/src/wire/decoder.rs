//! Takes a stream of frames apart.

use super::{CONTROL_HEAD, DATA_HEAD, Head, Message, WireError, parse_message};

/// One thing out of the stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A whole message.
    Message(Message),
    /// Bytes of the current file: a data frame, or the part of it that is here.
    Data(&'a [u8]),
    /// Packed bytes of it: a whole frame.
    Packed(Vec<u8>),
}

/// Takes the stream apart, in whatever pieces it comes. Plain data passes through without a copy; of
/// anything else that is not whole yet, at most one frame is kept.
#[derive(Debug, Default)]
pub struct Decoder {
    /// Bytes of the data frame that are still to come.
    data_left: usize,
    /// The beginning of a control frame whose end has not come.
    pub(super) partial: Vec<u8>,
}

impl Decoder {
    /// Takes the next item off the front of `input`; `None` when all of it is used up.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Item<'a>>, WireError> {
        loop {
            if input.is_empty() {
                return Ok(None);
            }
            if self.data_left > 0 {
                let data = take(input, self.data_left);
                self.data_left -= data.len();
                return Ok(Some(Item::Data(data)));
            }
            if !self.gather(DATA_HEAD, input) {
                return Ok(None);
            }
            match Head::parse(*self.partial.first_chunk().expect("gathered"))? {
                Head::Data(length) => {
                    self.data_left = length;
                    self.partial.clear();
                }
                Head::Packed(length) => {
                    if !self.gather(DATA_HEAD + length, input) {
                        return Ok(None);
                    }
                    let packed = self.partial.split_off(DATA_HEAD);
                    self.partial.clear();
                    return Ok(Some(Item::Packed(packed)));
                }
                Head::Control(length) => {
                    if !self.gather(CONTROL_HEAD + length, input) {
                        return Ok(None);
                    }
                    let (head, body) = self.partial.split_first_chunk().expect("gathered");
                    let message = parse_message(head, body);
                    self.partial.clear();
                    return message.map(|message| Some(Item::Message(message)));
                }
            }
        }
    }

    /// Whether the stream may end here: not within a frame.
    pub fn is_between_frames(&self) -> bool {
        self.data_left == 0 && self.partial.is_empty()
    }

    /// Fills `partial` up to `length` bytes; false when the input ends before.
    fn gather(&mut self, length: usize, input: &mut &[u8]) -> bool {
        let missing = length.saturating_sub(self.partial.len());
        self.partial.extend_from_slice(take(input, missing));
        self.partial.len() >= length
    }
}

pub(super) fn take<'a>(input: &mut &'a [u8], most: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(most.min(input.len()));
    *input = rest;
    taken
}
