//! `--transport auto` where a firewall drops UDP, from the start or in the middle.

mod support;

use std::fs;

use support::namespace::{Events, Net, carriers};
use support::{Home, bytes, finish, start, text};

const SIZE: usize = 90_000_000;

#[test]
fn blocked_udp_costs_a_second() {
    let Some(net) = Net::new("blocked_udp_costs_a_second") else { return };
    let home = Home::new();
    home.file("file", 1_000_000);
    let server = net.serve(&home);
    net.nft("add rule inet t in meta l4proto udp drop");
    let copy = home.longhaul(&["cp", "--json", "file", &server.url("")]);
    let output = finish(start(&mut net.inside(&copy)));
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(carriers(&text(&output.stdout)), ["tcp"]);
    assert_eq!(fs::read(home.path("root/file")).unwrap(), bytes(1_000_000));
}

#[test]
fn udp_that_is_blocked_in_the_middle_is_left_and_taken_again() {
    let Some(net) = Net::new("udp_that_is_blocked_in_the_middle_is_left_and_taken_again") else {
        return;
    };
    let home = Home::new();
    home.file("file", SIZE);
    let server = net.serve(&home);
    let copy = home.longhaul(&["cp", "--json", "file", &server.url("")]);
    let mut child = start(&mut net.inside(&copy));
    let mut events = Events::of(&mut child);
    events.wait_for_bytes();
    net.nft("add rule inet t in meta l4proto udp drop");
    events.wait_for_carrier("tcp");
    net.clear();
    assert_eq!(events.carriers_to_the_end(), ["udp", "tcp", "udp"]);
    assert!(child.wait().unwrap().success());
    assert!(fs::read(home.path("root/file")).unwrap() == bytes(SIZE));
    support::wait_for_names(&home.path("root"), &["file"]);
}

#[test]
fn udp_that_carries_no_data_is_left_for_good() {
    let Some(net) = Net::new("udp_that_carries_no_data_is_left_for_good") else { return };
    let home = Home::new();
    home.file("file", SIZE);
    let server = net.serve(&home);
    // Handshakes, reports and pings pass; what carries data does not.
    net.nft("add rule inet t in meta l4proto udp @th,64,8 { 16, 25 } drop");
    let copy = home.longhaul(&["cp", "--json", "file", &server.url("")]);
    let output = finish(start(&mut net.inside(&copy)));
    assert!(output.status.success(), "{}", text(&output.stderr));
    // Long enough that UDP is tried again in the meantime.
    assert_eq!(carriers(&text(&output.stdout)), ["udp", "tcp"]);
    assert!(fs::read(home.path("root/file")).unwrap() == bytes(SIZE));
}
