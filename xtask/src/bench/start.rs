//! How fast a transfer starts, on a path that is new and on one that is remembered; and on one that has
//! become ten times thinner since.
//!
//! Every run is one `longhaul cp` across an emulator of its own; runs that share a LONGHAUL_HOME remember.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::lab::Bed;
use super::{spread, verdict};

/// How much to measure.
#[derive(clap::Args)]
pub struct Args {
    /// Runs of each, each with a seed of its own.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
}

/// Serves, until the emulation ends.
const FAR: &str =
    "mkdir into; exec \"$LONGHAUL\" serve --quiet --no-remember --key \"$KEY\" --root into";
/// Copies, once the far host listens. Standard output is the emulator's.
const NEAR: &str = "exec 1>&2; sleep 1; exec \"$LONGHAUL\" cp --transport udp --quiet --no-compress \
    --key \"$KEY\" \"$SOURCE/$FILE\" lh://$LONGHAUL_FAR/";
/// Seconds before which nothing of the copy can have been sent.
const QUIET: f64 = 0.9;
/// Seconds between two looks at the path.
const PERIOD: f64 = 0.05;
/// For so many seconds the rate must stay that was reached: one burst is none.
const STAYS: f64 = 0.5;

const LONG: Link = Link { rate: 1e9, path: "--rate 1gbit --rtt 200ms --queue 50ms" };
const THIN: Link = Link { rate: 1e8, path: "--rate 100mbit --rtt 200ms --queue 50ms" };
const GEO: Link = Link { rate: 2.5e8, path: "--rate 250mbit --rtt 600ms --queue 600ms" };

struct Link {
    rate: f64,
    path: &'static str,
}

/// A copy over a path that was met before, or not.
struct Case {
    name: &'static str,
    /// What the same user has copied over before.
    before: Option<&'static Link>,
    link: &'static Link,
    file: &'static str,
    figure: fn(&Seen, f64) -> f64,
    unit: &'static str,
    /// The least and the most.
    goal: (f64, f64),
}

const fn at_most(goal: f64) -> (f64, f64) {
    (f64::NEG_INFINITY, goal)
}

const CASES: [Case; 5] = [
    Case {
        name: "1 Gbit/s, 200 ms: 80% of the rate, cold",
        before: None,
        link: &LONG,
        file: "large",
        figure: Seen::reached,
        unit: "s",
        goal: at_most(2.0),
    },
    Case {
        name: "the same, remembered",
        before: Some(&LONG),
        link: &LONG,
        file: "large",
        figure: Seen::reached,
        unit: "s",
        goal: at_most(0.8),
    },
    Case {
        name: "100 MB by GEO, cold",
        before: None,
        link: &GEO,
        file: "small",
        figure: Seen::whole,
        unit: "s",
        goal: at_most(6.7),
    },
    Case {
        name: "the same, remembered",
        before: Some(&GEO),
        link: &GEO,
        file: "small",
        figure: Seen::whole,
        unit: "s",
        goal: at_most(4.8),
    },
    Case {
        name: "100 Mbit/s that were 1 Gbit/s: the link's use from 2 to 5 s",
        before: Some(&LONG),
        link: &THIN,
        file: "small",
        figure: Seen::later,
        unit: "",
        goal: (0.9, f64::INFINITY),
    },
];

/// Prints a row for each case; false when a worst run misses its goal or the emulator did not keep up.
pub fn run(args: &Args) -> Result<bool> {
    let bed = Bed::new()?;
    bed.fill("large", 400_000_000)?;
    bed.fill("small", 100_000_000)?;
    println!("One copy by UDP, no random loss; {} seeds", args.seeds);
    println!("| what | median | least .. most | goal | |");
    println!("|---|---|---|---|---|");
    let mut reached = true;
    for case in &CASES {
        let runs = (1..=args.seeds).map(|seed| case.run(&bed, seed));
        let runs = runs.collect::<Result<Vec<Seen>>>()?;
        let figures: Vec<f64> =
            runs.iter().map(|seen| (case.figure)(seen, case.link.rate)).collect();
        let (median, least, most) = spread(&figures);
        let faithful = runs.iter().all(|seen| seen.faithful);
        let good = least >= case.goal.0 && most <= case.goal.1 && faithful;
        reached &= good;
        println!(
            "| {} | {median:.2} {} | {least:.2} .. {most:.2} | {} | {}{} |",
            case.name,
            case.unit,
            if case.goal.0.is_finite() { case.goal.0 } else { case.goal.1 },
            verdict(good),
            if faithful { "" } else { ", emulator NOT faithful" },
        );
    }
    Ok(reached)
}

impl Case {
    fn run(&self, bed: &Bed, seed: u64) -> Result<Seen> {
        let home = bed.folder().join("home");
        let _ = fs::remove_dir_all(&home);
        if let Some(before) = self.before {
            before.copy(bed, "large", &home, seed)?;
            ensure!(home.join("paths").exists(), "the first copy has remembered nothing");
        }
        self.link.copy(bed, self.file, &home, seed)
    }
}

impl Link {
    fn copy(&self, bed: &Bed, file: &str, home: &Path, seed: u64) -> Result<Seen> {
        let folder = bed.folder().join("run");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder)?;
        let mut emulate = Command::new(bed.binary());
        emulate.arg("emulate").args(self.path.split(' ')).args(["--loss", "0"]);
        emulate.args(["--json", "--no-verdict"]);
        emulate.args(["--stats", &format!("{}ms", PERIOD * 1e3), "--seed", &seed.to_string()]);
        emulate.args(["--far", FAR, "--", "sh", "-c", NEAR]).current_dir(&folder);
        emulate.env("LONGHAUL", bed.binary()).env("KEY", bed.key()).env("LONGHAUL_HOME", home);
        emulate.env("SOURCE", bed.source()).env("FILE", file);
        let output = emulate.output().context("cannot start `longhaul emulate`")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the copy failed ({}):\n{said}", output.status);
        Seen::of(&String::from_utf8(output.stdout)?).with_context(|| format!("no figures:\n{said}"))
    }
}

/// What crossed the path.
#[derive(Debug, PartialEq)]
struct Seen {
    /// Seconds since the copy's first packet, and bits a second that had arrived in the period before.
    rates: Vec<(f64, f64)>,
    faithful: bool,
}

impl Seen {
    /// From what the emulator says of itself.
    fn of(text: &str) -> Option<Self> {
        let mut events = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        let (mut start, mut rates, mut faithful) = (None, Vec::new(), None);
        while let Some(Ok(event)) = events.next() {
            let lane = &event["near_to_far"];
            if event["event"] == "report" {
                faithful = event["faithful"].as_bool();
            }
            let Some(rate) = lane["out_bps"].as_f64() else { continue };
            let at = event["seconds"].as_f64()?;
            if at >= QUIET && lane["in_bps"].as_f64()? > 0.0 {
                start.get_or_insert(at - PERIOD);
            }
            rates.extend(start.map(|start: f64| (at - start, rate)));
        }
        Some(Self { rates, faithful: faithful? })
    }

    /// When the rate was first 80% of the link's, and so was the mean of what came then.
    fn reached(&self, link: f64) -> f64 {
        let stays = |&&(at, rate): &&(f64, f64)| {
            let then = self.rates.iter().filter(|later| (at..at + STAYS).contains(&later.0));
            let then: Vec<f64> = then.map(|later| later.1).collect();
            rate >= 0.8 * link && then.iter().sum::<f64>() >= 0.8 * link * then.len() as f64
        };
        self.rates.iter().find(stays).map_or(f64::INFINITY, |&(at, _)| at)
    }

    /// When the last data had arrived: more than what goes on when all is done.
    fn whole(&self, link: f64) -> f64 {
        let last = self.rates.iter().rfind(|&&(_, rate)| rate >= 0.01 * link);
        last.map_or(f64::INFINITY, |&(at, _)| at)
    }

    /// The part of the link that was used from the second to the fifth second.
    fn later(&self, link: f64) -> f64 {
        let rates = self.rates.iter().filter(|(at, _)| (2.0..5.0).contains(at));
        let rates: Vec<f64> = rates.map(|&(_, rate)| rate / link).collect();
        rates.iter().sum::<f64>() / rates.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_count_from_the_first_packet_of_the_copy() {
        let stats = |at: f64, sent: f64, arrived: f64| {
            let lane = serde_json::json!({ "in_bps": sent, "out_bps": arrived });
            serde_json::json!({ "event": "stats", "seconds": at, "near_to_far": lane }).to_string()
        };
        let report = r#"{"event":"report","faithful":true,"near_to_far":{"packets":9}}"#;
        let seen = [
            stats(0.5, 7.0, 7.0),
            stats(1.05, 900.0, 0.0),
            stats(1.5, 900.0, 700.0),
            // A burst, and what there is behind it.
            stats(1.55, 900.0, 900.0),
            stats(1.6, 900.0, 600.0),
            stats(2.0, 900.0, 850.0),
            stats(4.0, 500.0, 500.0),
            stats(5.0, 10.0, 400.0),
            stats(6.0, 3.0, 3.0),
            report.to_owned(),
        ];
        let seen = Seen::of(&seen.join("\n")).unwrap();
        assert!(seen.faithful && seen.rates.len() == 8);
        assert_eq!((seen.reached(1000.0), seen.whole(1000.0)), (1.0, 4.0));
        assert_eq!(seen.later(1000.0), 0.45);
        assert!(seen.reached(2000.0).is_infinite() && Seen::of("").is_none());
    }
}
