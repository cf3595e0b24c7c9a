//! Values of a scenario that are set on the command line.

use core::fmt;

use anyhow::{Context, anyhow, bail};
use serde_json::Value;
use sim::Study;
use toml::{Table, Value as Toml};

use crate::scenario::Source;

/// The most combinations of values.
const MAX_POINTS: usize = 10_000;
/// Keys of the file that belong to no direction.
const HEAD: [&str; 5] = ["about", "seed", "duration", "rtt", "repeat"];
/// Those of the path, in the order in which they are read: a later one wins.
const DIRECTIONS: [&str; 3] = ["both", "forward", "back"];
/// Keys that say the same of a link: in one table the last of them wins.
const ALIKE: [&[&str]; 2] =
    [&["rate", "rate-trace", "rate-trace-file"], &["loss", "loss-trace-file"]];
/// Tables of which there may be several.
const LISTS: [&str; 5] = ["flow", "near", "far", "change", "link"];

/// One combination of values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point(Vec<(String, String)>);

/// Every combination of the values that words such as `rtt=10ms` give for their keys.
pub fn points(words: &[String]) -> anyhow::Result<Vec<Point>> {
    let mut keys: Vec<(&str, Vec<&str>)> = Vec::new();
    for word in words {
        let (key, value) = word
            .split_once('=')
            .filter(|(key, _)| !key.is_empty())
            .with_context(|| format!("'{word}': write it as KEY=VALUE, as in rtt=100ms"))?;
        match keys.iter_mut().find(|known| known.0 == key) {
            Some((_, values)) => values.push(value),
            None => keys.push((key, vec![value])),
        }
    }
    if keys.iter().try_fold(1, |all: usize, key| all.checked_mul(key.1.len())) > Some(MAX_POINTS) {
        bail!("these are more than {MAX_POINTS} combinations");
    }
    let with = |points: Vec<Point>, (key, values): (&str, Vec<&str>)| {
        let one = |point: &Point, value: &str| {
            let mut point = point.clone();
            point.0.push((key.to_owned(), value.to_owned()));
            point
        };
        points.iter().flat_map(|point| values.iter().map(move |value| one(point, value))).collect()
    };
    Ok(keys.into_iter().fold(vec![Point::default()], with))
}

impl Point {
    /// The scenario with these values.
    pub fn study(&self, source: &Source) -> anyhow::Result<Study> {
        let load = |file: &str| source.load(file);
        if self.0.is_empty() {
            return Study::read(&source.text, load).with_context(|| source.name.clone());
        }
        let mut table: Table = source.text.parse().with_context(|| source.name.clone())?;
        for (key, value) in &self.0 {
            let set = set(&mut table, key, value);
            set.with_context(|| format!("--set {key}={value}"))?;
        }
        let text = toml::to_string(&table)?;
        // Its lines are not those of the file any more.
        Study::read(&text, load)
            .map_err(|error| anyhow!("{self}: {}", error.message()))
            .with_context(|| source.name.clone())
    }

    /// For a report in JSON.
    pub fn object(&self) -> Value {
        self.0.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect()
    }

    /// What stands before words that are about it.
    pub fn prefix(&self) -> String {
        if self.0.is_empty() { String::new() } else { format!("{self}: ") }
    }

    /// The line above a table.
    pub fn heading(&self) -> String {
        if self.0.is_empty() { String::new() } else { format!("\n{self}\n") }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.0.iter().map(|(key, value)| format!("{key}={value}")).collect();
        f.write_str(&words.join(" "))
    }
}

/// Sets one value. A key without a table is one of both directions, unless it stands at the head.
fn set(table: &mut Table, key: &str, value: &str) -> anyhow::Result<()> {
    let mut parts: Vec<&str> = key.split('.').collect();
    if let [name] = parts[..]
        && !HEAD.contains(&name)
    {
        parts.insert(0, "both");
    }
    if let Some((winner, name)) = winner(table, &parts) {
        bail!("[{winner}] has its own {name}, which would win: set {winner}.{name}");
    }
    // Text, but where TOML asks for a number or a yes or no.
    let value = match (value.parse::<bool>(), value.parse::<i64>()) {
        (Ok(yes), _) => Toml::Boolean(yes),
        (_, Ok(number)) => Toml::Integer(number),
        _ => Toml::String(value.to_owned()),
    };
    let (first, rest) = parts.split_first().expect("a key has a part");
    put(table, first, rest, &value)
}

/// The table, and a key in it, that would win over what is set, in one direction at least.
fn winner<'a>(table: &Table, parts: &[&'a str]) -> Option<(&'a str, &'a str)> {
    // The head is read first, then both directions, then each by itself.
    let (own, later, name) = match *parts {
        ["rtt"] => (None, &DIRECTIONS[..], "delay"),
        ["both", name] => (Some("both"), &DIRECTIONS[1..], name),
        [own @ ("forward" | "back"), name] => (Some(own), &[][..], name),
        _ => return None,
    };
    let alike = ALIKE.into_iter().find(|alike| alike.contains(&name));
    let behind = alike.and_then(|alike| alike.split(|key| *key == name).next_back());
    let here = own.map(|own| behind.unwrap_or_default().iter().map(move |key| (own, *key)));
    let there = later.iter().flat_map(|direction| {
        let keys = alike.map_or_else(|| vec![name], <[_]>::to_vec);
        keys.into_iter().map(move |key| (*direction, key))
    });
    here.into_iter().flatten().chain(there).find(|(direction, key)| {
        table.get(*direction).is_some_and(|direction| direction.get(*key).is_some())
    })
}

fn put(table: &mut Table, name: &str, rest: &[&str], value: &Toml) -> anyhow::Result<()> {
    let Some((next, others)) = rest.split_first() else {
        table.insert(name.to_owned(), value.clone());
        return Ok(());
    };
    let empty = || match LISTS.contains(&name) {
        true => Toml::Array(vec![Table::new().into()]),
        false => Table::new().into(),
    };
    match table.entry(name).or_insert_with(empty) {
        Toml::Table(inner) => put(inner, next, others, value),
        // All tables of that name, or one by its number.
        Toml::Array(tables) => match (next.parse::<usize>(), others.split_first()) {
            (Ok(number), Some((next, others))) => {
                let count = tables.len();
                let one = number.checked_sub(1).and_then(|index| tables.get_mut(index));
                let one = one.and_then(Toml::as_table_mut);
                let one = one.with_context(|| format!("there are {count} tables [[{name}]]"))?;
                put(one, next, others, value)
            }
            _ => {
                let mut all = tables.iter_mut().filter_map(Toml::as_table_mut);
                all.try_for_each(|one| put(one, next, others, value))
            }
        },
        _ => bail!("'{name}' is no table"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_given_again_are_swept() {
        let words = ["rtt=1ms", "queue=red", "rtt=2ms"].map(str::to_owned);
        let shown: Vec<_> = points(&words).unwrap().iter().map(Point::to_string).collect();
        assert_eq!(shown, ["rtt=1ms queue=red", "rtt=2ms queue=red"]);
        assert_eq!(points(&[]).unwrap(), [Point::default()]);
        assert!(points(&["=3".to_owned()]).is_err());
        let many: Vec<_> = (0..20_000).map(|n| format!("rtt={n}ms")).collect();
        assert!(points(&many).is_err());
    }

    #[test]
    fn values_reach_their_tables() {
        let mut table: Table = "rtt = \"1ms\"\n[[flow]]\n[[flow]]\ncount = 2".parse().unwrap();
        for (key, value) in [
            ("rtt", "9ms"),
            ("rate", "1mbit"),
            ("back.loss", "1%"),
            ("flow.window", "64KiB"),
            ("flow.2.count", "3"),
            ("flow.1.nagle", "false"),
        ] {
            set(&mut table, key, value).unwrap();
        }
        let expected: Table = "rtt = \"9ms\"\n[both]\nrate = \"1mbit\"\n[back]\nloss = \"1%\"\n\
            [[flow]]\nwindow = \"64KiB\"\nnagle = false\n\
            [[flow]]\nwindow = \"64KiB\"\ncount = 3"
            .parse()
            .unwrap();
        assert_eq!(table, expected);
        // Tables that the file has not are one of their kind.
        for list in LISTS {
            let mut none = Table::new();
            set(&mut none, &format!("{list}.rate"), "9mbit").unwrap();
            assert_eq!(none, format!("[[{list}]]\nrate = \"9mbit\"").parse().unwrap());
        }
        assert!(set(&mut table, "flow.3.count", "1").is_err());
        assert!(set(&mut table, "rtt.x", "1").is_err());
        // [back] has its own: for both it would say nothing, so it has to be set there.
        for key in ["loss", "both.loss"] {
            let error = set(&mut table, key, "2%").unwrap_err().to_string();
            assert_eq!(error, "[back] has its own loss, which would win: set back.loss");
        }
        assert_eq!(table, expected);
    }

    #[test]
    fn what_would_say_nothing_is_refused() {
        let refused = |file: &str, key: &str| {
            let mut table: Table = file.parse().unwrap();
            set(&mut table, key, "2ms").err().map(|error| error.to_string())
        };
        let says = |winner: &str| {
            let (table, key) = winner.split_once('.').unwrap();
            Some(format!("[{table}] has its own {key}, which would win: set {winner}"))
        };
        for table in DIRECTIONS {
            let delay = format!("{table} = {{ delay = \"1ms\" }}");
            assert_eq!(refused(&delay, "rtt"), says(&format!("{table}.delay")));
            let trace = format!("{table} = {{ rate-trace-file = \"x\" }}");
            assert_eq!(refused(&trace, "rate"), says(&format!("{table}.rate-trace-file")));
            let trace = format!("{table} = {{ loss-trace-file = \"x\" }}");
            let key = format!("{table}.loss");
            assert_eq!(refused(&trace, &key), says(&format!("{table}.loss-trace-file")));
        }
        // What a later table says of the rate ends what an earlier one plays.
        let own = "forward = { rate = \"1mbit\", loss = \"1%\" }";
        assert_eq!(refused(own, "rate-trace-file"), says("forward.rate"));
        assert_eq!(refused(own, "rate-trace"), says("forward.rate"));
        assert_eq!(refused(own, "loss-trace-file"), says("forward.loss"));
        assert_eq!(refused(own, "forward.rate-trace"), None);
        let file = "both = { rate-trace-file = \"x\" }";
        assert_eq!(refused(file, "rate-trace"), says("both.rate-trace-file"));
        let trace = "both = { rate-trace = \"x\" }";
        assert_eq!(refused(trace, "rate"), says("both.rate-trace"));
        // What one direction says ends what both do, and says nothing of the other direction.
        assert_eq!(refused(trace, "back.rate"), None);
        assert_eq!(refused("back = { delay = \"1ms\" }", "forward.delay"), None);
        assert_eq!(refused("both = { delay = \"1ms\" }", "rate"), None);
    }
}
