//! Times as FTP writes them: `YYYYMMDDHHMMSS` in UTC (RFC 3659, section 2.3), and the dates of `ls`.

const DAY: i64 = 86_400;

/// Half a year, as `ls` counts it: dates within it show the hour, others the year.
const RECENT: i64 = 182 * DAY;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A date and time of day in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// Of the Gregorian calendar.
    pub year: i64,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
    /// Seconds since midnight.
    pub second: u32,
}

impl Civil {
    /// From seconds since 1970. Years of 400-year eras that begin on 1 March make leap days last
    /// (H. Hinnant, "chrono-compatible low-level date algorithms").
    pub fn from_unix(seconds: i64) -> Self {
        let days = seconds.div_euclid(DAY) + 719_468;
        let era = days.div_euclid(146_097);
        let day_of_era = days.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        Self {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month: month as u32,
            day: (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32,
            second: seconds.rem_euclid(DAY) as u32,
        }
    }

    /// Seconds since 1970.
    pub fn to_unix(self) -> i64 {
        let year = self.year - i64::from(self.month <= 2);
        let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let month_from_march = (i64::from(self.month) + 9) % 12;
        let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(self.day) - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        (era * 146_097 + day_of_era - 719_468) * DAY + i64::from(self.second)
    }

    fn clock(self) -> (u32, u32, u32) {
        (self.second / 3600, self.second / 60 % 60, self.second % 60)
    }
}

/// `YYYYMMDDHHMMSS`; years outside 0 to 9999 are brought inside.
pub fn stamp(seconds: i64) -> String {
    let civil = Civil::from_unix(seconds);
    let (hour, minute, second) = civil.clock();
    let year = civil.year.clamp(0, 9999);
    format!("{year:04}{:02}{:02}{hour:02}{minute:02}{second:02}", civil.month, civil.day)
}

/// Reads `YYYYMMDDHHMMSS`, with or without a fraction of a second, which is dropped.
pub fn read_stamp(text: &str) -> Option<i64> {
    let digits = text.split_once('.').map_or(text, |(whole, _)| whole);
    if digits.len() != 14 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = |from: usize, to: usize| digits[from..to].parse::<u32>().ok();
    let (month, day) = (number(4, 6)?, number(6, 8)?);
    let (hour, minute, second) = (number(8, 10)?, number(10, 12)?, number(12, 14)?);
    let sound = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    let second = hour * 3600 + minute * 60 + second;
    sound.then(|| Civil { year: number(0, 4).unwrap_or(0).into(), month, day, second }.to_unix())
}

/// The date of a line of `ls -l`: `Nov 21 12:30`, or `Nov 21  2024` when that is not recent.
pub fn ls_date(seconds: i64, now: i64) -> String {
    let civil = Civil::from_unix(seconds);
    let month = MONTHS[civil.month as usize - 1];
    let (hour, minute, _) = civil.clock();
    if (now - RECENT..now + DAY).contains(&seconds) {
        format!("{month} {:2} {hour:02}:{minute:02}", civil.day)
    } else {
        format!("{month} {:2} {:>5}", civil.day, civil.year)
    }
}

/// Reads such a date, given as its three words.
pub fn read_ls_date(month: &str, day: &str, clock: &str, now: i64) -> Option<i64> {
    let month = MONTHS.iter().position(|name| name.eq_ignore_ascii_case(month))? as u32 + 1;
    let day = day.parse().ok().filter(|day| (1..=31).contains(day))?;
    let this_year = Civil::from_unix(now).year;
    let Some((hour, minute)) = clock.split_once(':') else {
        let year = clock.parse().ok().filter(|year| (1900..10_000).contains(year))?;
        return Some(Civil { year, month, day, second: 0 }.to_unix());
    };
    let (hour, minute): (u32, u32) = (hour.parse().ok()?, minute.parse().ok()?);
    if hour > 23 || minute > 59 {
        return None;
    }
    let civil = Civil { year: this_year, month, day, second: hour * 3600 + minute * 60 };
    // A date of the next days is one of last year.
    let this = civil.to_unix();
    Some(if this > now + DAY { Civil { year: this_year - 1, ..civil }.to_unix() } else { this })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_what_date_says() {
        assert_eq!(stamp(0), "19700101000000");
        assert_eq!(stamp(1_709_210_096), "20240229123456");
        assert_eq!(stamp(-1), "19691231235959");
        assert_eq!(read_stamp("20240229123456.789"), Some(1_709_210_096));
        for bad in
            ["", "2024", "20241329000000", "2024022912345x", "20240229243456", "+0240229123456"]
        {
            assert_eq!(read_stamp(bad), None, "{bad}");
        }
    }

    #[test]
    fn dates_of_ls_are_read_back() {
        let now = 1_709_210_096;
        assert_eq!(ls_date(now - 60, now), "Feb 29 12:33");
        assert_eq!(ls_date(0, now), "Jan  1  1970");
        assert_eq!(read_ls_date("Feb", "29", "12:33", now), Some(now - 116));
        assert_eq!(read_ls_date("Jan", "1", "1970", now), Some(0));
        let december = Civil { year: 2023, month: 12, day: 31, second: 0 }.to_unix();
        assert_eq!(read_ls_date("Dec", "31", "00:00", now), Some(december));
        assert_eq!(read_ls_date("Foo", "1", "1970", now), None);
    }

    proptest::proptest! {
        #[test]
        fn there_and_back(seconds in -62_000_000_000i64..250_000_000_000) {
            proptest::prop_assert_eq!(Civil::from_unix(seconds).to_unix(), seconds);
        }
    }
}
