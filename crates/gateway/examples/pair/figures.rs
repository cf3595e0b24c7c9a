//! The figures of one contender, and what ours must reach.

use crate::bench::Options;
use crate::load::Many;
use crate::rates::Rates;

/// What was measured.
#[derive(Default)]
pub struct Figures {
    pub one: Option<Rates>,
    pub download: Option<Rates>,
    pub eight: Option<Rates>,
    pub weights: Option<Rates>,
    pub stalled: Option<Rates>,
    pub crowd: Option<Rates>,
    /// With the gateways' memory while all were open, in MiB, and whether all were carried.
    pub many: Option<([Many; 2], Vec<f64>, Option<bool>)>,
    /// The most memory that each gateway ever had, in MiB.
    pub memory: Vec<f64>,
}

/// What ours must reach, at the path that is the default.
pub struct Goal {
    pub what: &'static str,
    pub holds: bool,
}

impl Goal {
    /// Says whether it was reached.
    pub fn tell(&self) -> bool {
        println!("  {}: {}", self.what, if self.holds { "reached" } else { "MISSED" });
        self.holds
    }
}

fn list(figures: &[f64]) -> String {
    figures.iter().map(|figure| format!("{figure:.2}")).collect::<Vec<_>>().join(" + ")
}

impl Figures {
    /// Prints a line for each.
    pub fn print(&self, options: &Options) {
        let limit = options.limit();
        for (name, rates) in self.rates() {
            println!(
                "  {name}: {:.0} Mbit/s ({:.1}% of the limit), from the start {:.0}; \
                 deviation {:.1}%, in any second {} scheduled, over any ten {} delivered, Jain {:.3}; \
                 {:.2}% dropped by the queue; carried: {}; s of CPU a Gbit, far + near: {}",
                rates.late() / 1e6,
                rates.late() / limit * 100.0,
                rates.whole() / 1e6,
                rates.deviation() * 100.0,
                percent(rates.scheduled()),
                percent(rates.delivered()),
                rates.jain(),
                rates.dropped * 100.0,
                told(rates.carried),
                list(&rates.cpu()),
            );
        }
        if let Some((many, memory, carried)) = &self.many {
            for (what, many) in ["that stay open", "that come and go"].into_iter().zip(many) {
                println!(
                    "  {} a second {what}: {} made, failed {:?}, the slowest {:.1} s",
                    options.new,
                    many.made,
                    many.failed,
                    many.slowest.as_secs_f64(),
                );
            }
            println!("  MiB while open: {}; carried: {}", list(memory), told(*carried));
        }
        println!("  most memory ever, MiB: {}", list(&self.memory));
    }

    /// Those that were measured.
    fn rates(&self) -> impl Iterator<Item = (&'static str, &Rates)> {
        let rates = [
            ("one connection", &self.one),
            ("one that is downloaded", &self.download),
            ("eight", &self.eight),
            ("three with weights 1, 2, 4", &self.weights),
            ("eight beside 100 stalled readers", &self.stalled),
            ("1,000", &self.crowd),
        ];
        rates.into_iter().filter_map(|(name, rates)| Some((name, rates.as_ref()?)))
    }

    /// What ours must reach of them.
    pub fn goals(&self, options: &Options) -> Vec<Goal> {
        let limit = options.limit();
        let mut goals = Vec::new();
        let mut goal = |what, holds| goals.push(Goal { what, holds });
        if let Some(one) = &self.one {
            goal("one connection at least 88%", one.late() >= 0.88 * limit);
        }
        if let Some(download) = &self.download {
            goal("one that is downloaded at least 88%", download.late() >= 0.88 * limit);
        }
        if let Some(eight) = &self.eight {
            goal("eight at least 93%", eight.late() >= 0.93 * limit);
            let (scheduled, delivered) = (eight.scheduled(), eight.delivered());
            goal("eight: scheduled within 2% of their mean in any second", scheduled <= 0.02);
            goal(
                "eight: delivered within 3% of their mean over any 10 s, the late one too",
                delivered <= 0.03,
            );
        }
        if self.rates().next().is_some() {
            let all = |holds: fn(&Rates) -> bool| self.rates().all(|(_, rates)| holds(rates));
            goal("less than 0.5% dropped by the queue, always", all(|it| it.dropped < 0.005));
            goal("every connection was carried", all(|it| it.carried == Some(true)));
        }
        if let Some(weights) = &self.weights {
            goal("weights within 5%", weights.unweighted() <= 0.05);
        }
        if let (Some(eight), Some(stalled)) = (&self.eight, &self.stalled) {
            goal("stalled readers cost others less than 2%", stalled.late() >= 0.98 * eight.late());
        }
        if let Some(crowd) = &self.crowd {
            goal("1,000: Jain at least 0.95", crowd.jain() >= 0.95);
        }
        if let Some((many, memory, carried)) = &self.many {
            goal("every new connection was made", many.iter().all(|many| many.failed.is_empty()));
            goal("and carried", *carried == Some(true));
            goal("10,000 were open", many[0].made >= 10_000);
            goal(
                "all of them open in less than 1 GiB",
                memory.iter().all(|memory| *memory < 1024.0),
            );
        }
        goals
    }
}

/// A share, where it is known.
fn percent(share: f64) -> String {
    if share.is_nan() { "?".to_owned() } else { format!("{:.1}%", share * 100.0) }
}

fn told(carried: Option<bool>) -> &'static str {
    match carried {
        Some(true) => "all",
        Some(false) => "not all",
        None => "not told",
    }
}
