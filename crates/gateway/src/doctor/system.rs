//! What the kernel and its programs say.

use std::fs;
use std::process::Command;

use serde::de::DeserializeOwned;

/// A setting below `/proc/sys/net`.
pub(super) fn setting(name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/sys/net/{name}")).ok()?;
    Some(text.trim().to_owned())
}

/// A setting's name as sysctl(8) takes it: with dots, unless they belong to an interface.
pub(crate) fn dotted(name: &str) -> String {
    if name.contains('.') { name.to_owned() } else { name.replace('/', ".") }
}

/// What a program writes; its complaint if it fails.
pub(super) fn output(program: &str, arguments: &str) -> Result<String, String> {
    let output = Command::new(program).args(arguments.split(' ')).output();
    let output = output.map_err(|error| format!("cannot run {program}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// What `ip -j` writes.
pub(super) fn ip<T: DeserializeOwned>(arguments: &str) -> Result<Vec<T>, String> {
    let text = output("ip", &format!("-j {arguments}"))?;
    if text.is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str(&text).map_err(|error| format!("`ip -j {arguments}`: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_keep_their_dots() {
        assert_eq!(dotted("net/ipv4/ip_forward"), "net.ipv4.ip_forward");
        assert_eq!(dotted("net/ipv4/conf/lan.7/rp_filter"), "net/ipv4/conf/lan.7/rp_filter");
    }
}
