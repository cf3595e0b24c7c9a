//! The parts of a plan that can be left out, to find out which of them a failure needs.

use core::fmt;
use core::str::FromStr;

use path::{LossConfig, QueueConfig};
use transport::cc::Algorithm;
use transport::{Config, Priority};

use super::plan::{End, Plan, Reader};

/// A part of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part(&'static str);

impl Part {
    /// Every part, the most telling first.
    pub const ALL: [Self; 29] = [
        Self("kill"),
        Self("restart"),
        Self("blackout"),
        Self("narrow"),
        Self("rebind"),
        Self("moves"),
        Self("replay"),
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
        Self("feedback"),
        Self("remembered"),
        Self("keys"),
        Self("identities"),
        Self("rate-limit"),
        Self("admission"),
        Self("memory"),
        Self("ends"),
        Self("readers"),
        Self("priorities"),
        Self("streams"),
    ];

    /// Takes this part out of a plan.
    pub(super) fn take_from(self, plan: &mut Plan) {
        let Plan { path, faults, kill, streams, config, identities, .. } = plan;
        let usual = Config::default();
        match self.0 {
            "kill" => *kill = None,
            "restart" => kill.iter_mut().for_each(|kill| kill.restart = None),
            "blackout" => faults.blackout = None,
            "narrow" => faults.narrow = None,
            "rebind" => faults.rebind = None,
            "moves" => faults.moves = None,
            "replay" => faults.replay = 0.0,
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
            "feedback" => config.feedback = usual.feedback,
            "remembered" => config.remembered = None,
            "keys" => config.key_packets = usual.key_packets,
            "identities" => *identities = false,
            "rate-limit" => config.rate_limit = None,
            "admission" => {
                (config.admission, config.max_streams) = (usual.admission, usual.max_streams);
            }
            "memory" => {
                config.receive_memory = usual.receive_memory;
                config.send_memory = usual.send_memory;
            }
            "ends" => {
                for stream in streams {
                    (stream.end, stream.reply) = (End::Finish, 0);
                }
            }
            "readers" => streams.iter_mut().for_each(|stream| stream.reader = Reader::AtOnce),
            "priorities" => {
                streams.iter_mut().for_each(|stream| stream.priority = Priority::default());
            }
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
