//! When a copy may move, by the clock on the wall.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

const MINUTE: u64 = 60;
const DAY: u64 = 24 * 60 * MINUTE;

/// The clock on the wall may be set, and changes twice a year: it is looked at so often.
const GLANCE: Duration = Duration::from_secs(60);

/// A part of each day, local time, from one second to another; it may go on past midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Seconds of the day.
    from: u64,
    until: u64,
}

impl Schedule {
    /// Waits until copies may move.
    pub async fn opened(self) {
        while let Some(wait) = self.until_open(second_of_day()) {
            tokio::time::sleep(wait.min(GLANCE)).await;
        }
    }

    /// Waits until copies may not move any more.
    pub async fn closed(self) {
        while self.is_open() {
            let left = (self.until + DAY - second_of_day() % DAY) % DAY;
            tokio::time::sleep(Duration::from_secs(left).min(GLANCE)).await;
        }
    }

    /// Whether copies may move now.
    pub fn is_open(self) -> bool {
        self.until_open(second_of_day()).is_none()
    }

    /// How long it is until copies may move; `None` when they may.
    fn until_open(self, second: u64) -> Option<Duration> {
        let since = |mark: u64| (second + DAY - mark) % DAY;
        let length = (self.until + DAY - self.from) % DAY;
        let closed = since(self.from) >= length;
        closed.then(|| Duration::from_secs(DAY - since(self.from)))
    }
}

/// How far the day has come here.
fn second_of_day() -> u64 {
    let wall = SignedDuration::try_from(net::clock::wall()).unwrap_or_default();
    let now = Timestamp::from_duration(wall).unwrap_or_default();
    let time = now.to_zoned(TimeZone::system()).time();
    (time.hour() as u64 * 60 + time.minute() as u64) * MINUTE + time.second() as u64
}

/// `22:00-06:00`, and with seconds `22:00:30-06:00`.
impl FromStr for Schedule {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let second = |text: &str| {
            let (hour, rest) = text.split_once(':')?;
            let (minute, second) = rest.split_once(':').unwrap_or((rest, "0"));
            let number = |text: &str| text.parse::<u64>().ok().filter(|&number| number < MINUTE);
            let second = (number(hour)? * 60 + number(minute)?) * MINUTE + number(second)?;
            (second <= DAY).then_some(second % DAY)
        };
        let both = text.split_once('-').and_then(|(from, until)| second(from).zip(second(until)));
        match both {
            Some((from, until)) if from != until => Ok(Self { from, until }),
            _ => Err("write two different times of the day, as in 22:00-06:00".to_owned()),
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |second: u64| {
            let minutes = format!("{:02}:{:02}", second / MINUTE / 60, second / MINUTE % 60);
            match second % MINUTE {
                0 => minutes,
                seconds => format!("{minutes}:{seconds:02}"),
            }
        };
        write!(f, "{}-{}", time(self.from), time(self.until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(schedule: &str, time: &str) -> Option<u64> {
        let schedule: Schedule = schedule.parse().unwrap();
        let (hour, minute) = time.split_once(':').unwrap();
        let second = (hour.parse::<u64>().unwrap() * 60 + minute.parse::<u64>().unwrap()) * MINUTE;
        schedule.until_open(second).map(|wait| wait.as_secs() / MINUTE)
    }

    #[test]
    fn a_part_of_the_day_may_go_on_past_midnight() {
        for (time, expected) in [
            ("21:59", Some(1)),
            ("22:00", None),
            ("00:00", None),
            ("05:59", None),
            ("06:00", Some(960)),
        ] {
            assert_eq!(wait("22:00-06:00", time), expected, "{time}");
        }
        for (time, expected) in
            [("08:59", Some(1)), ("09:00", None), ("16:59", None), ("17:00", Some(960))]
        {
            assert_eq!(wait("9:00-17:00", time), expected, "{time}");
        }
        assert_eq!(wait("18:00-24:00", "23:59"), None);
        assert_eq!(wait("18:00-24:00", "00:00"), Some(18 * 60));
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        assert_eq!("9:05-17:00".parse::<Schedule>().unwrap().to_string(), "09:05-17:00");
        assert_eq!("9:05:07-17:00".parse::<Schedule>().unwrap().to_string(), "09:05:07-17:00");
        let seconds: Schedule = "00:00:03-23:59:58".parse().unwrap();
        assert_eq!(seconds.until_open(DAY - 2), Some(Duration::from_secs(5)));
        assert_eq!((seconds.until_open(3), seconds.until_open(DAY - 3)), (None, None));
        const BEYOND: &str = "18446744073709551615:00-06:00";
        for wrong in [
            "1:2:3:4-6:00",
            "1:2:60-6:00",
            "24:00:01-6:00",
            "",
            "22:00",
            "22:00-22:00",
            "25:00-06:00",
            "22:60-06:00",
            "22-6",
            "a:b-c:d",
            BEYOND,
        ] {
            assert!(wrong.parse::<Schedule>().unwrap_err().contains("22:00-06:00"), "{wrong}");
        }
    }
}
