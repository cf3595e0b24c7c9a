//! Ports as they are written in the configuration.

use std::str::FromStr;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

/// A port, or a range of them: `80`, `"8000-8099"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ports {
    /// The first.
    pub first: u16,
    /// The last, itself included.
    pub last: u16,
}

impl Ports {
    /// Whether this port is among them.
    pub fn contain(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.trim().parse(), last.trim().parse()) {
            (Ok(first), Ok(last)) if 0 < first && first <= last => Ok(Self { first, last }),
            _ => Err(format!("{text:?} is no port: write 443 or \"8000-8099\"")),
        }
    }
}

impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Spelling {
            Number(u16),
            Text(String),
        }
        let text = match Spelling::deserialize(from)? {
            Spelling::Number(port) => port.to_string(),
            Spelling::Text(text) => text,
        };
        text.parse().map_err(D::Error::custom)
    }
}
