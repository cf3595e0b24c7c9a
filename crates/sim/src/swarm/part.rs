//! The parts of a plan that can be left out, to find out which of them a failure needs.

use core::fmt;
use core::str::FromStr;

use path::{LossConfig, QueueConfig};
use transport::Config;
use transport::cc::Algorithm;
use units::Bytes;

use super::plan::{End, Plan, Reader};

/// A part of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part(&'static str);

impl Part {
    /// Every part, the most telling first.
    pub const ALL: [Self; 20] = [
        Self("kill"),
        Self("restart"),
        Self("blackout"),
        Self("narrow"),
        Self("rebind"),
        Self("jump"),
        Self("freeze"),
        Self("ahead"),
        Self("loss"),
        Self("loss-back"),
        Self("duplicate"),
        Self("corrupt"),
        Self("reorder"),
        Self("thin"),
        Self("queue"),
        Self("controller"),
        Self("memory"),
        Self("ends"),
        Self("readers"),
        Self("streams"),
    ];

    /// Takes this part out of a plan.
    pub(super) fn take_from(self, plan: &mut Plan) {
        let Plan { path, faults, kill, streams, config, .. } = plan;
        match self.0 {
            "kill" => *kill = None,
            "restart" => kill.iter_mut().for_each(|kill| kill.restart = None),
            "blackout" => faults.blackout = None,
            "narrow" => faults.narrow = None,
            "rebind" => faults.rebind = None,
            "jump" => faults.jump = None,
            "freeze" => faults.freeze = None,
            "ahead" => faults.ahead = Default::default(),
            "loss" => path.forward.loss = LossConfig::None,
            "loss-back" => path.back.loss = LossConfig::None,
            "duplicate" => faults.duplicate = 0.0,
            "corrupt" => faults.corrupt = 0.0,
            "reorder" => faults.reorder = 0.0,
            "thin" => path.back.rate = path.forward.rate,
            "queue" => path.forward.queue = QueueConfig::default(),
            "controller" => config.congestion = Algorithm::default(),
            "memory" => config.receive_memory = Config::default().receive_memory.max(Bytes(1)),
            "ends" => {
                for stream in streams {
                    (stream.end, stream.reply) = (End::Finish, 0);
                }
            }
            "readers" => streams.iter_mut().for_each(|stream| stream.reader = Reader::AtOnce),
            // The last one carries what makes the run long enough.
            _ => drop(streams.drain(..streams.len() - 1)),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl FromStr for Part {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        let all = || Self::ALL.map(|part| part.0).join(", ");
        Self::ALL
            .into_iter()
            .find(|part| part.0 == name)
            .ok_or_else(|| format!("a plan has no part '{name}'; there are {}", all()))
    }
}
