//! What the kernel lets this process do, and how a gateway gets on with less.

use rustix::thread::{CapabilitySet, capabilities};

use crate::config::Config;

/// Whether it may administer the network. Who has that right in a user namespace of his own has it
/// not over a network of others: there the kernel refuses sockets at others' addresses.
pub(crate) fn may_administer() -> bool {
    let sets = capabilities(None);
    let capable = sets.is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN));
    capable && net::transparent::is_allowed()
}

/// How this process keeps to the settings if that is without a right that it lacks.
pub(crate) fn rootless(config: &Config) -> Option<Config> {
    if may_administer() { None } else { config.rootless() }
}
