//! The scenarios that come with the project.

use super::{Scenario, ScenarioError};

/// A scenario that is part of the program.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// The file's name without `.toml`.
    pub name: &'static str,
    /// The file.
    pub source: &'static str,
}

impl Preset {
    /// The preset of this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        PRESETS.iter().find(|preset| preset.name == name)
    }

    /// Reads it.
    ///
    /// # Errors
    /// None with the presets of this crate, all of which a test reads.
    pub fn scenario(&self) -> Result<Scenario, ScenarioError> {
        self.source.parse()
    }
}

macro_rules! presets {
    ($($name:literal)*) => {
        &[$(Preset {
            name: $name,
            source: include_str!(concat!("../../../../scenarios/", $name, ".toml")),
        }),*]
    };
}

/// Every file in `scenarios/`.
pub const PRESETS: &[Preset] = presets! {
    "geo-satellite-t1"
    "geo-satellite-250m"
    "leo-handovers"
    "transpacific-ds3"
    "oc3-atm"
    "transoceanic-1g"
    "transoceanic-10g"
    "wifi-edge"
    "mftp-atm"
    "mftp-ethernet"
    "gateway-atm"
    "gateway-ethernet"
    "xftp-t1"
    "udtg-droptail"
    "udtg-red"
    "udtg-red-i"
    "state-exchange"
};
