//! The words of scenario files one by one, as `rate=10mbit` on a command line.

use core::str::FromStr;
use core::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::text::time;
use super::{Direction, HostGroup, MAX_SCENARIO, resolve, stated};
use crate::Change;

/// A change of both directions of a path, for [`Link::set`](crate::Link::set) of each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Adjustment {
    /// Near to far.
    pub forward: Change,
    /// Far to near.
    pub back: Change,
}

/// As a `[[change]]` of a scenario, without its time.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Tables {
    #[serde(deserialize_with = "time")]
    rtt: Option<Duration>,
    both: Change,
    forward: Change,
    back: Change,
}

impl Adjustment {
    /// Reads words such as `rate=10mbit`, for both directions, `forward.loss=2%` or `rtt=80ms`.
    /// Of two that contradict each other the later counts. `load` returns the text of a file that
    /// a word names, or why it cannot.
    ///
    /// # Errors
    /// The word that is wrong, and why.
    pub fn read<'a>(
        words: impl IntoIterator<Item = &'a str>,
        mut load: impl FnMut(&str) -> Result<String, String>,
    ) -> Result<Self, String> {
        let mut all = Self::default();
        for word in words {
            let tables: Tables = table([word], |key| match key {
                "rtt" => key.to_owned(),
                _ if key.contains('.') => key.to_owned(),
                _ => format!("both.{key}"),
            })?;
            for (direction, own, change) in [
                (Direction::Forward, &tables.forward, &mut all.forward),
                (Direction::Back, &tables.back, &mut all.back),
            ] {
                let mut stated = stated(tables.rtt, direction, [&tables.both, own]);
                resolve("", &mut load, None, &mut stated).map_err(|e| e.message)?;
                change.merge(&stated);
            }
        }
        Ok(all)
    }
}

/// Reads words such as `count=2 delay=10ms rate=1gbit`: the keys of a `[[near]]` table. Whether
/// the link is possible shows on a path, from whose round-trip time RED's thresholds come.
impl FromStr for HostGroup {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let group: Self = table(text.split_whitespace(), str::to_owned)?;
        group.check_words().map(|()| group)
    }
}

/// Reads `key=value` words as a TOML table, each key under the name that `place` gives it.
fn table<'a, T: DeserializeOwned>(
    words: impl IntoIterator<Item = &'a str>,
    place: impl Fn(&str) -> String,
) -> Result<T, String> {
    let (mut source, mut shown) = (String::new(), Vec::new());
    for word in words {
        let pair = word.split_once('=').map(|(key, value)| (key.trim(), value.trim()));
        let (key, value) = pair
            .filter(|(key, _)| !key.is_empty() && key.chars().all(is_of_key))
            .ok_or_else(|| format!("'{word}': write it as KEY=VALUE, as in rate=10mbit"))?;
        // Text, but where TOML asks for a number or a yes or no.
        let bare = value.parse::<bool>().is_ok() || value.parse::<u32>().is_ok();
        let value = if bare { value.into() } else { toml::Value::from(value).to_string() };
        source.push_str(&format!("{} = {value}\n", place(key)));
        shown.push(word);
        if source.len() > MAX_SCENARIO {
            return Err("these are too many words".to_owned());
        }
    }
    toml::from_str(&source).map_err(|error| format!("'{}': {}", shown.join(" "), error.message()))
}

fn is_of_key(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '.')
}

#[cfg(test)]
mod tests {
    use units::{Bytes, Rate};

    use super::*;
    use crate::{LossConfig, PathConfig, PathError, QueueConfig, Schedule};

    fn read(words: &[&str]) -> Result<Adjustment, String> {
        Adjustment::read(words.iter().copied(), |name| match name {
            "losses" => Ok("0 1".to_owned()),
            _ => Err(format!("no file {name}")),
        })
    }

    #[test]
    fn words_change_one_direction_or_both() {
        let words = [
            "rate=10mbit",
            "forward.loss=2%",
            "rtt=81ms",
            "back.delay=30ms",
            "queue=red-i:max_p=0.2,ecn=yes",
            "atm=true",
            "mtu=1400",
            "back.rate=1mbit",
            "back.loss-trace-file=losses",
            "blackout=1s 500ms",
        ];
        let Adjustment { forward, back } = read(&words).expect("all are known");
        let mbit = |n: u64| Some(Rate::from_bits_per_sec(n * 1_000_000));
        assert_eq!((forward.rate, back.rate), (mbit(10), mbit(1)));
        assert_eq!(forward.loss, Some(LossConfig::Bernoulli(0.02)));
        assert!(matches!(back.loss, Some(LossConfig::Trace(_))), "{:?}", back.loss);
        let half = Duration::from_micros(40_500);
        assert_eq!((forward.delay, back.delay), (Some(half), Some(Duration::from_millis(30))));
        for change in [&forward, &back] {
            assert!(matches!(change.queue, Some(QueueConfig::RedI(red)) if red.ecn));
            assert_eq!((change.atm, change.mtu), (Some(true), Some(Bytes(1400))));
            assert_eq!(change.blackout, Some(Duration::from_millis(1500)));
        }
    }

    #[test]
    fn wrong_words_are_named() {
        let cases = [
            ("rate", "KEY=VALUE"),
            ("=3", "KEY=VALUE"),
            ("a\nb=1", "KEY=VALUE"),
            ("speed=3", "unknown field `speed`"),
            ("sideways.rate=1mbit", "unknown field `sideways`"),
            ("rate=fast", "'fast' does not begin with a number"),
            ("loss=200%", "is no loss"),
            ("rtt=9", "no time"),
            ("queue=rde", "no queue"),
            ("loss-trace-file=nowhere", "no file nowhere"),
            ("rate=\"1mbit\"", "number"),
        ];
        for (word, why) in cases {
            let error = read(&["loss=0", word]).expect_err(word);
            assert!(error.contains(why), "{word}: {error}");
        }
    }

    #[test]
    fn red_does_not_take_its_thresholds_from_an_old_delay() {
        let mut path = PathConfig::new(Rate::from_bits_per_sec(10_000_000), Duration::ZERO);
        path.forward.delay = Duration::from_millis(100);
        let (link, _) = path.links::<()>().expect("a path");
        let mut after = |words: &[&str]| {
            let change = read(words).expect("all are known").forward;
            path.forward.schedule = Schedule::new(vec![(Duration::ZERO, change.clone())], None);
            let of_schedule = path.links::<()>().err();
            assert_eq!(link.after(&change).err(), of_schedule);
            of_schedule
        };
        let given = "queue=red-i:min=10packets,max=20packets";
        assert_eq!(after(&["rtt=600ms", "queue=red"]), Some(PathError::OldRtt));
        assert_eq!(after(&["rtt=600ms", given]), None);
        assert_eq!(after(&["rtt=200ms", "queue=red"]), None);
        // The way back is a half of the round trip as well.
        let back = read(&["delay=90ms"]).expect("known").back;
        path.back.schedule = Schedule::new(vec![(Duration::ZERO, back)], None);
        let red = read(&["queue=red"]).expect("known").forward;
        path.forward.schedule = Schedule::new(vec![(Duration::ZERO, red)], None);
        assert_eq!(path.links::<()>().err(), Some(PathError::OldRtt));
    }

    #[test]
    fn hosts_are_spelled_as_in_scenarios() {
        let group: HostGroup = "count=2 delay=10ms".parse().expect("known keys");
        assert_eq!((group.count, group.delay), (2, Some(Duration::from_millis(10))));
        assert_eq!(group.link().map(|link| link.rate), Some(crate::ACCESS_RATE));
        let red: HostGroup = "rate=10mbit queue=red".parse().expect("the path's RTT is to come");
        assert!(red.check(Duration::ZERO).is_err() && red.check(Duration::from_millis(9)).is_ok());
        assert_eq!("".parse(), Ok(HostGroup::default()));
        for (text, why) in [("count=0", "1 to 1024"), ("queue=5ms", "rate"), ("rtt=1ms", "field")] {
            let error = text.parse::<HostGroup>().expect_err(text);
            assert!(error.contains(why), "{error}");
        }
    }
}
