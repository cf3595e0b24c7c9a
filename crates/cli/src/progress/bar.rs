//! The bar: two lines on a terminal, of which the narrower shows less.

use std::fmt::Write;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use rustix::termios::tcgetwinsize;
use units::Bytes;

use super::Now;

/// Where nobody says how wide the terminal is.
const COLUMNS: usize = 80;
/// A narrower bar, with its frame, shows nothing.
const BAR_MIN: usize = 10;
/// The part of a path that says which file it is.
const NAME_MIN: usize = 10;
/// Between two pieces of a line.
const GAP: &str = "  ";
/// From here on, characters may take two columns.
const WIDE: char = '\u{1100}';

/// The bar; gone when dropped.
pub struct Bar(ProgressBar);

impl Bar {
    /// Draws nothing before the first [`Bar::draw`], and never but on a terminal.
    pub fn new() -> Self {
        Self(ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()))
    }

    /// Draws it as it is now.
    pub fn draw(&self, now: &Now<'_>) {
        if self.0.is_hidden() {
            self.0.set_draw_target(ProgressDrawTarget::stderr());
        }
        let size = tcgetwinsize(std::io::stderr()).ok();
        let columns = size.map_or(0, |size| usize::from(size.ws_col));
        self.draw_on(if columns > 0 { columns } else { COLUMNS }, now);
    }

    fn draw_on(&self, columns: usize, now: &Now<'_>) {
        let Lines { has_bar, whole, path } = Lines::of(now, columns);
        let template = match (now.sample.bytes_total, has_bar) {
            (Some(_), true) => "{percent:>3}%  [{wide_bar}]  {whole}",
            (Some(_), false) => "{percent:>3}%  {whole}",
            (None, _) => "{spinner}  {whole}",
        };
        let template = match path.is_empty() {
            true => template.to_owned(),
            false => format!("{template}\n{{path}}"),
        };
        let style = ProgressStyle::with_template(&template).expect("one of a few templates");
        let text = |text: String| {
            move |_: &ProgressState, line: &mut dyn Write| {
                let _ = line.write_str(&text);
            }
        };
        let style = style.with_key("whole", text(whole)).with_key("path", text(path));
        self.0.set_style(style.progress_chars("=> "));
        self.0.update(|state| {
            if let Some(total) = now.sample.bytes_total {
                state.set_len(total);
            }
            state.set_pos(now.sample.done_bytes());
        });
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// What stands on the two lines, beside the share and the bar.
struct Lines {
    has_bar: bool,
    whole: String,
    path: String,
}

impl Lines {
    fn of(now: &Now<'_>, columns: usize) -> Self {
        // "100%" or the spinner.
        let head = "100%".len() + GAP.len();
        let (whole, left) = chosen(&whole(now), columns.saturating_sub(head));
        let has_bar = left >= GAP.len() + BAR_MIN;
        let (mut path, mut left) = chosen(&path(now), columns);
        if !path.is_empty() {
            left = left.saturating_sub(GAP.len());
        }
        if let Some(file) = file(now, left) {
            if !path.is_empty() {
                path += GAP;
            }
            path += &file;
        }
        Self { has_bar, whole, path }
    }
}

/// A piece of a line, and how soon it is chosen.
type Piece = (u8, String);

/// The pieces that fit, the most important chosen first, in their order; and the columns that are left.
fn chosen(pieces: &[Piece], columns: usize) -> (String, usize) {
    let mut by_rank: Vec<usize> = (0..pieces.len()).collect();
    by_rank.sort_by_key(|&index| pieces[index].0);
    let (mut fits, mut used) = (vec![false; pieces.len()], 0);
    for index in by_rank {
        let gap = if used > 0 { GAP.len() } else { 0 };
        let wanted = used + gap + width(&pieces[index].1);
        if wanted <= columns {
            (fits[index], used) = (true, wanted);
        }
    }
    let chosen = pieces.iter().zip(fits).filter(|(_, fits)| *fits);
    let line = chosen.map(|((_, text), _)| &text[..]).collect::<Vec<_>>().join(GAP);
    (line, columns - used)
}

/// Of all that is copied.
fn whole(now: &Now<'_>) -> Vec<Piece> {
    let sample = now.sample;
    let files = sample.done_files();
    let bytes = of(sample.done_bytes(), sample.bytes_total);
    let mut pieces = vec![(2, bytes), (0, now.rate.to_string())];
    if let Some(left) = now.left() {
        pieces.push((1, format!("{} left", rough(left))));
    }
    match sample.files_total {
        Some(1) => {}
        Some(total) => pieces.push((3, format!("{files}/{total} files"))),
        None if files > 0 => pieces.push((3, format!("{files} files"))),
        None => {}
    }
    pieces
}

/// Of the way that the data goes.
fn path(now: &Now<'_>) -> Vec<Piece> {
    let figures = now.figures;
    let mut pieces = Vec::new();
    match (figures.carrier, figures.streams) {
        (Some("tcp"), Some(streams)) => pieces.push((0, format!("{streams} x TCP"))),
        (Some("ssh"), _) => pieces.push((0, "ssh".to_owned())),
        (Some(carrier), _) => pieces.push((0, carrier.to_uppercase())),
        (None, _) => {}
    }
    if let Some(rtt) = figures.rtt {
        pieces.push((2, format!("RTT {rtt:.0?}")));
    }
    if let Some(loss) = figures.loss {
        pieces.push((3, format!("{:.2}% lost", loss * 100.0)));
    }
    if let Some(limit) = now.limit() {
        pieces.push((1, format!("limit: {limit}")));
    }
    pieces
}

/// The file at work in so many columns, if it is worth showing.
fn file(now: &Now<'_>, columns: usize) -> Option<String> {
    let sample = now.sample;
    if sample.current.is_empty() {
        return None;
    }
    // What is told of a single file is told of the whole already.
    let is_told = sample.files_total == Some(1) || sample.current_bytes == 0;
    let own = (!is_told).then(|| of(sample.current_bytes, sample.current_total));
    let rest = |own: &String| columns.checked_sub(width(own) + 1).filter(|&rest| rest >= NAME_MIN);
    match own.as_ref().and_then(|own| Some((own, rest(own)?))) {
        Some((own, rest)) => Some(format!("{own} {}", tail(&sample.current, rest))),
        None if columns >= NAME_MIN => Some(tail(&sample.current, columns)),
        None => None,
    }
}

/// So many bytes of so many, in the unit of all.
fn of(bytes: u64, total: Option<u64>) -> String {
    let Some(total) = total.filter(|&total| total > 0) else { return Bytes(bytes).to_string() };
    let text = Bytes(total).to_string();
    let Some((value, unit)) = text.split_once(' ') else { return text };
    let digits = if unit == "B" { 0 } else { 2 };
    let share = bytes as f64 / total as f64;
    let part = value.parse::<f64>().map_or(0.0, |value| value * share);
    format!("{part:.digits$}/{text}")
}

/// A time as people say it, by its two largest units: `7s`, `2m 3s`, `1h 2m`.
fn rough(time: Duration) -> String {
    let exact = humantime::format_duration(Duration::from_secs(time.as_secs())).to_string();
    exact.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// Columns that a text takes, at most.
fn width(text: &str) -> usize {
    text.chars().map(columns_of).sum()
}

fn columns_of(character: char) -> usize {
    if character >= WIDE && character != '\u{2026}' { 2 } else { 1 }
}

/// The end of a path, which says more than its beginning.
fn tail(path: &str, columns: usize) -> String {
    if width(path) <= columns {
        return path.to_owned();
    }
    let (mut kept, mut used) = (Vec::new(), 1);
    for character in path.chars().rev() {
        used += columns_of(character);
        if used > columns {
            break;
        }
        kept.push(character);
    }
    kept.push('\u{2026}');
    kept.into_iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use indicatif::TermLike;
    use transfer::Sample;
    use units::Rate;

    use super::*;
    use crate::summary::Figures;
    use crate::verdict::Held;

    /// A terminal of so many columns that keeps each text that was written to it.
    #[derive(Clone, Debug)]
    struct Screen(u16, Arc<Mutex<Vec<String>>>);

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            self.0
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, line: &str) -> io::Result<()> {
            self.write_str(line)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.1.lock().unwrap().push(text.to_owned());
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The lines as a terminal of so many columns gets them.
    fn drawn(columns: u16, now: &Now<'_>) -> Vec<String> {
        let screen = Screen(columns, Arc::default());
        let bar = Bar::new();
        bar.0.set_draw_target(ProgressDrawTarget::term_like(Box::new(screen.clone())));
        bar.draw_on(usize::from(columns), now);
        let texts = screen.1.lock().unwrap().clone();
        // It clears what was there with blanks.
        let lines = texts.iter().map(|text| text.trim_end().to_owned());
        let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
        assert!(lines.len() <= 2, "{lines:#?}");
        for line in &lines {
            assert!(width(line) <= usize::from(columns), "{} columns: {line:?}", width(line));
        }
        lines
    }

    fn sample() -> Sample {
        Sample {
            bytes: 2 << 30,
            kept_bytes: 1 << 30,
            bytes_total: Some(10 << 30),
            files: 10,
            kept_files: 2,
            files_total: Some(340),
            current: "results/2026/run-17/events.parquet".to_owned(),
            current_bytes: 12 << 20,
            current_total: Some(40 << 20),
            ..Sample::default()
        }
    }

    fn figures() -> Figures {
        Figures {
            carrier: Some("udp"),
            rtt: Some(Duration::from_millis(202)),
            least_rtt: Some(Duration::from_millis(200)),
            loss: Some(0.0102),
            pacing: Some(Rate::from_bits_per_sec(960_000_000)),
            capacity: Some(Rate::from_bits_per_sec(1_000_000_000)),
            held: Some((Held::Path, 0.9)),
            ..Figures::default()
        }
    }

    fn shown(columns: u16, sample: &Sample, figures: &Figures) -> Vec<String> {
        let rate = Rate::from_bits_per_sec(941_200_000);
        drawn(columns, &Now { sample, figures, rate })
    }

    #[test]
    fn eighty_columns_have_room_for_all() {
        let lines = shown(80, &sample(), &figures());
        assert_eq!(
            lines,
            [
                " 30%  [====>           ]  3.00/10.00 GiB  941.2 Mbit/s  1m 3s left  12/340 files",
                "UDP  RTT 202ms  1.02% lost  limit: path capacity  12.00/40.00 MiB …vents.parquet",
            ]
        );
    }

    #[test]
    fn more_columns_show_more_of_the_file_and_fewer_what_matters_most() {
        let wide = shown(120, &sample(), &figures());
        assert!(
            wide[1].ends_with("  12.00/40.00 MiB results/2026/run-17/events.parquet"),
            "{wide:?}"
        );
        let narrow = shown(40, &sample(), &figures());
        assert_eq!(narrow[0], " 30%  941.2 Mbit/s  1m 3s left");
        assert_eq!(narrow[1], "UDP  RTT 202ms  limit: path capacity");
        for columns in 6..200 {
            shown(columns, &sample(), &figures());
        }
    }

    #[test]
    fn a_single_file_is_named_and_its_bytes_are_those_of_the_whole() {
        let one = Sample { files: 0, files_total: Some(1), ..sample() };
        let lines =
            shown(80, &one, &Figures { streams: Some(8), carrier: Some("tcp"), ..figures() });
        assert!(!lines[0].contains("files"), "{lines:?}");
        assert!(lines[1].starts_with("8 x TCP  "), "{lines:?}");
        assert!(lines[1].ends_with("  …026/run-17/events.parquet"), "{lines:?}");
    }

    #[test]
    fn what_is_not_known_is_not_shown() {
        let unknown = Sample { bytes: 5 << 20, ..Sample::default() };
        let lines = shown(80, &unknown, &Figures::default());
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].ends_with("  5.00 MiB  941.2 Mbit/s"), "{lines:?}");
        let nothing =
            shown(80, &Sample::default(), &Figures { carrier: Some("ssh"), ..Figures::default() });
        assert_eq!(nothing[1], "ssh");
    }

    #[test]
    fn names_of_wide_characters_do_not_overflow() {
        let current = "\u{6570}\u{636e}/\u{1f4e6}".repeat(30);
        let named = Sample { current, ..sample() };
        for columns in [40, 80, 81, 120] {
            shown(columns, &named, &figures());
        }
    }

    #[test]
    fn times_are_told_by_two_units() {
        let rough = |seconds| rough(Duration::from_secs(seconds));
        assert_eq!([rough(7), rough(63), rough(3723)], ["7s", "1m 3s", "1h 2m"]);
    }
}
