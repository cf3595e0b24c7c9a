//! How settings are spelled: `name` or `name:key=value,key=value`.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

/// The longest setting that is read.
const MAX_SPELLING: usize = 1 << 16;

/// A setting that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}': {reason}")]
pub struct ParseConfigError {
    text: String,
    reason: String,
}

impl ParseConfigError {
    pub(crate) fn new(text: &str, reason: impl fmt::Display) -> Self {
        let text = text.chars().take(60).collect();
        Self { text, reason: reason.to_string() }
    }
}

/// Keys with their values.
type KeyValues<'a> = Vec<(&'a str, &'a str)>;

/// The name of a setting, and what is said of it.
pub(crate) fn split(text: &str) -> Result<(&str, KeyValues<'_>), ParseConfigError> {
    if text.len() > MAX_SPELLING {
        return Err(ParseConfigError::new(text, "is too long"));
    }
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    let pairs = rest.split(',').filter(|pair| !pair.trim().is_empty()).map(|pair| {
        let (key, value) = pair.split_once('=').ok_or_else(|| {
            ParseConfigError::new(text, format_args!("write '{}' as key=value", pair.trim()))
        })?;
        Ok((key.trim(), value.trim()))
    });
    Ok((name.trim(), pairs.collect::<Result<_, _>>()?))
}

/// Reads the value of a key into `place`.
pub(crate) fn read<T>(place: &mut T, value: &str) -> Result<(), String>
where
    T: FromStr<Err: fmt::Display>,
{
    *place = value.parse().map_err(|error: T::Err| error.to_string())?;
    Ok(())
}

/// Reads a probability: `0.01` or `1%`.
///
/// # Errors
/// What to write instead.
pub fn share(text: &str) -> Result<f64, String> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    number
        .trim()
        .parse::<f64>()
        .ok()
        .map(|number| number / unit)
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| format!("'{text}' is no probability; write 0.01 or 1%"))
}

/// Reads `yes` or `no`.
pub(crate) fn yes(text: &str) -> Result<bool, String> {
    match text {
        "yes" | "true" | "on" => Ok(true),
        "no" | "false" | "off" => Ok(false),
        _ => Err(format!("'{text}' is neither yes nor no")),
    }
}

/// Reads `50ms`, `1s 500us`; a bare number has no unit and is refused, except zero.
///
/// # Errors
/// What is wrong with it: a time of any length is refused and not computed.
pub fn time(text: &str) -> Result<Duration, String> {
    if text.trim() == "0" {
        return Ok(Duration::ZERO);
    }
    duration(text).map_err(|reason| format!("'{text}' is no time: {reason}"))
}

/// The longest text of a time that is read, and the most digits of its numbers: `humantime` panics
/// where a sum of parts passes the last second that a `Duration` has, and so much cannot reach it.
const MAX_TIME: usize = 64;
const MAX_DIGITS: usize = 11;

/// The longest time that is read, 317 years: what is above may be shown with too many digits.
const LONGEST: Duration = Duration::from_secs(10_000_000_000);

/// Reads `50ms` or `1s 500us`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let too_long = || Err("it is too long".to_owned());
    if text.len() > MAX_TIME {
        return too_long();
    }
    // To `humantime` a number goes on behind a space.
    let dense: String = text.split_whitespace().collect();
    if dense.split(|c: char| !c.is_ascii_digit()).any(|number| number.len() > MAX_DIGITS) {
        return too_long();
    }
    let time = humantime::parse_duration(&dense).map_err(|error| error.to_string())?;
    if time > LONGEST { too_long() } else { Ok(time) }
}

/// Writes the `key=value` that differ from the default, behind a name.
pub(crate) struct Pairs<'a, 'b> {
    f: &'a mut fmt::Formatter<'b>,
    separator: char,
}

impl<'a, 'b> Pairs<'a, 'b> {
    pub(crate) fn new(f: &'a mut fmt::Formatter<'b>, name: &str) -> Result<Self, fmt::Error> {
        f.write_str(name)?;
        Ok(Self { f, separator: ':' })
    }

    pub(crate) fn pair(
        &mut self,
        differs: bool,
        key: &str,
        value: impl fmt::Display,
    ) -> Result<&mut Self, fmt::Error> {
        if differs {
            write!(self.f, "{}{key}={value}", self.separator)?;
            self.separator = ',';
        }
        Ok(self)
    }
}

/// `yes` or `no`.
pub(crate) fn word(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_beyond_all_measure_are_refused() {
        assert_eq!(time("1s 500us"), Ok(Duration::from_micros(1_000_500)));
        assert_eq!(time("10000000000ns"), Ok(Duration::from_secs(10)));
        let spaced = "184467440737 09551615s1.5s";
        let many = ["99999999999y".repeat(6), "1s".repeat(40)];
        for bad in ["18446744073709551615s1.5s", spaced, "318y", &many[0], &many[1]] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }
}
