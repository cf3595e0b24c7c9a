//! Faults that were planted, and what `doctor` says of them; and a host that is set up and left as
//! it was.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;

use gateway::install::{Left, Plan, is_installed, uninstall};
use gateway::{Check, Config, Finding};
use net::{Credentials, SharedKey};

use crate::gateways::{Gateway, Pair};
use crate::world::{FAR, NEAR, PATIENCE, SERVER, SERVERS, World, at};
use crate::{connect, server, with_world};

fn config(peer: &str, intercept: &str) -> Config {
    let text = format!(
        "[trunk]\npeer = \"{peer}\"\nkey = \"-\"\n[intercept]\ninterfaces = [\"lan\"]\n{intercept}"
    );
    text.parse().unwrap()
}

fn examine(world: &World, config: &Config, key: u8) -> Vec<Check> {
    examine_on(world, NEAR, config, key)
}

fn examine_on(world: &World, host: usize, config: &Config, key: u8) -> Vec<Check> {
    world.on(host, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let credentials = Credentials::from(&SharedKey::from_bytes([key; 32]));
        runtime.block_on(gateway::examine(config, &credentials))
    })
}

/// What is wrong, but for a gateway that does not run, and a clock that nobody sets.
fn faults(checks: &[Check]) -> Vec<&Check> {
    let faults = checks.iter().filter(|check| check.finding.is_fault());
    faults.filter(|check| !["gateway", "clock"].contains(&check.name)).collect()
}

/// What is found once the gateways' threads, which have begun just now, do what they are to do.
fn settled(examine: impl Fn() -> Vec<Check>) -> Vec<Check> {
    until(examine, |checks| faults(checks).is_empty())
}

/// What is found once it is as it should be, or at last.
fn until(examine: impl Fn() -> Vec<Check>, done: impl Fn(&[Check]) -> bool) -> Vec<Check> {
    let attempts = (0..50).map(|_| examine());
    let mut last = Vec::new();
    for checks in attempts {
        last = checks;
        if done(&last) {
            break;
        }
    }
    last
}

/// The one fault is this one, and says so in these words.
#[track_caller]
fn one(checks: &[Check], name: &str, words: &str) {
    let faults = faults(checks);
    assert_eq!(faults.iter().map(|check| check.name).collect::<Vec<_>>(), [name], "{faults:#?}");
    assert!(faults[0].to_string().contains(words), "{}", faults[0]);
}

const PEER: &str = "10.77.0.2:7273";

#[test]
fn doctor_finds_what_is_wrong_before_the_gateway_runs() {
    with_world("doctor_finds_what_is_wrong_before_the_gateway_runs", |world| {
        let far =
            world.gateway(crate::world::FAR, "[trunk]\nlisten = \"10.77.0.2:7273\"\nkey = \"-\"\n");
        let good = config(PEER, "");
        let checks = settled(|| examine(world, &good, 7));
        assert!(faults(&checks).is_empty(), "{checks:#?}");
        assert!(checks.iter().any(|check| check.name == "gateway" && check.finding.is_fault()));

        for (file, name, right) in [
            ("ipv4/ip_forward", "forwarding, IPv4", "1"),
            ("ipv6/conf/all/forwarding", "forwarding, IPv6", "1"),
        ] {
            world.set(NEAR, file, "0");
            one(&examine(world, &good, 7), name, "sysctl -w");
            world.set(NEAR, file, right);
        }
        world.set(NEAR, "ipv4/conf/lan/rp_filter", "1");
        one(&examine(world, &good, 7), "reverse path filter", "strict on lan");
        world.set(NEAR, "ipv4/conf/lan/rp_filter", "0");

        one(&examine(world, &good, 8), "trunk", "key");
        world.cut_trunk();
        one(&examine(world, &good, 7), "trunk", "UDP port 7273");
        world.mend_trunk();
        let policer = "{ type filter hook output priority 0; \
                       udp dport 7273 limit rate over 1 mbytes/second burst 100 kbytes drop; }";
        world.nft(NEAR, &format!("add table inet police; add chain inet police out {policer}"));
        let mut fast = good.clone();
        fast.trunk.rate = Some(units::Rate::from_bits_per_sec(100_000_000));
        one(&examine(world, &fast, 7), "throughput", "trunk.rate");
        world.nft(NEAR, "delete table inet police");

        let same_network = config(PEER, "to = [\"10.1.0.0/24\"]");
        one(&examine(world, &same_network, 7), "way to the other side", "on this side");
        let taken = world.on(NEAR, || TcpListener::bind("127.0.0.1:7274").unwrap());
        one(&examine(world, &good, 7), "port", "7274");
        drop(taken);
        let itself = examine(world, &config("10.77.0.1:7273", ""), 7);
        assert!(
            faults(&itself).iter().any(|it| it.to_string().contains("is this host")),
            "{itself:#?}"
        );
        let nowhere = examine(world, &config("192.0.2.1:7273", ""), 7);
        assert!(
            faults(&nowhere).iter().any(|it| it.to_string().contains("ip route add")),
            "{nowhere:#?}"
        );

        drop(far);
        // Its port is closed once its last words are said.
        let mut attempts = (0..50).map(|_| examine(world, &good, 7));
        let gone = attempts.find(|checks| !faults(checks).is_empty()).expect("somebody listens");
        one(&gone, "trunk", "nobody listens");
        let name = world.name(NEAR);
        world.ip(&[format!("-n {name} link set path mtu 1200")]);
        let small = examine(world, &good, 7);
        assert!(faults(&small).iter().any(|it| it.to_string().contains("mtu 1500")), "{small:#?}");
        world.ip(&[format!("-n {name} link set lan down")]);
        let down = examine(world, &good, 7);
        assert!(faults(&down).iter().any(|it| it.to_string().contains("lan is down")), "{down:#?}");
        let misnamed = Config { intercept: config(PEER, "queue = 9").intercept, ..good };
        let mut misnamed = misnamed;
        misnamed.intercept.as_mut().unwrap().interfaces = vec!["lan9".into()];
        let absent = examine(world, &misnamed, 7);
        assert!(faults(&absent).iter().any(|it| it.to_string().contains("no lan9")), "{absent:#?}");
    });
}

#[test]
fn doctor_finds_what_was_done_to_a_gateway_that_runs() {
    with_world("doctor_finds_what_was_done_to_a_gateway_that_runs", |world| {
        let [near, _far] = world.gateways("");
        let good = config(PEER, "");
        let checks = examine(world, &good, 7);
        assert!(faults(&checks).is_empty(), "{checks:#?}");
        assert!(checks.iter().any(|it| it.name == "gateway" && !it.finding.is_fault()));

        let name = world.name(NEAR);
        world.ip(&[format!("-n {name} -6 route flush table 7273")]);
        one(&examine(world, &good, 7), "route, IPv6", "no local route");
        world.ip(&[format!("-n {name} -6 route add local default dev lo table 7273")]);
        world.ip(&[format!("-n {name} rule del priority 7273")]);
        one(&examine(world, &good, 7), "route, IPv4", "no rule");
        world.ip(&[format!("-n {name} rule add fwmark 0x4c480003 lookup 7273 priority 7273")]);
        world.on(NEAR, lose_the_queue);
        one(&examine(world, &good, 7), "rules", "queue");
        world.nft(NEAR, "flush chain inet longhaul divert");
        one(&examine(world, &good, 7), "rules", "divert");
        world.nft(NEAR, "delete table inet longhaul");
        one(&examine(world, &good, 7), "rules", "gone");
        world.cut_trunk();
        near.wait_for_silence();
        let checks = examine(world, &good, 7);
        let silent = checks.iter().find(|check| check.name == "trunk").unwrap();
        assert!(matches!(&silent.finding, Finding::Fault { what, .. } if what.contains("direct")));
    });
}

/// Removes what leads to the netfilter queue, as nftables or iptables do it.
fn lose_the_queue() {
    let run = |line: &str| {
        let (program, arguments) = line.split_once(' ').unwrap();
        Command::new(program)
            .args(arguments.split(' '))
            .output()
            .is_ok_and(|it| it.status.success())
    };
    assert!(run("nft flush chain inet longhaul wait") || run("iptables -t raw -F PREROUTING"));
}

#[test]
fn doctor_looks_at_the_gateway_that_is_called() {
    with_world("doctor_looks_at_the_gateway_that_is_called", |world| {
        let called = |listen: &str, deliver: &str| -> Config {
            let text = format!(
                "[trunk]\nlisten = \"{listen}\"\nkey = \"-\"\n[deliver]\nto = [\"{deliver}\"]"
            );
            text.parse().unwrap()
        };
        let look = |config: &Config| examine_on(world, FAR, config, 7);
        let good = called(PEER, "10.2.0.0/24");
        let checks = look(&good);
        assert!(faults(&checks).is_empty(), "{checks:#?}");
        one(&look(&called("192.0.2.7:7273", "10.2.0.0/24")), "own address", "192.0.2.7");
        let lost = called(PEER, "10.9.0.0/24");
        one(&look(&lost), "way to this side", "ip route add 10.9.0.0/24");
        // Only a router beside knows better.
        let doubtful = look(&called(PEER, "10.1.0.0/24"));
        let doubt = doubtful.iter().find(|check| check.name == "way to this side").unwrap();
        assert!(matches!(&doubt.finding, Finding::Unknown(why) if why.contains("path")), "{doubt}");
        let anywhere = called("[::]:7273", "0.0.0.0/0");
        for (config, device) in [(&good, "lan"), (&good, "path"), (&anywhere, "lan")] {
            let file = format!("ipv4/conf/{device}/rp_filter");
            world.set(FAR, &file, "1");
            one(&look(config), "reverse path filter", &format!("strict on {device}"));
            world.set(FAR, &file, "0");
        }

        let _gateways = world.gateways("");
        let to = at(SERVERS[0], 8000);
        let (let_go, wait) = channel::<()>();
        let served = server(world, to, move |stream, _| (wait.recv_timeout(PATIENCE), stream));
        let client = connect(world, to).unwrap();
        let checks = look(&good);
        assert!(faults(&checks).is_empty(), "{checks:#?}");
        let said = |words: &str| checks.iter().any(|check| check.to_string().contains(words));
        assert!(said("10.77.0.1 by path") && said("1 clients now"), "{checks:#?}");
        let name = world.name(FAR);
        world.ip(&[format!("-n {name} route del 10.1.0.0/24")]);
        one(&look(&good), "answers to clients", "ip route add 10.1.0.2");
        let_go.send(()).unwrap();
        drop((client, served.join().unwrap()));
        world.ip(&[format!("-n {name} link set path mtu 1200")]);
        let small = look(&good);
        assert!(faults(&small).iter().any(|it| it.to_string().contains("mtu 1500")), "{small:#?}");
    });
}

#[test]
fn doctor_looks_at_gateways_that_stand_in() {
    with_world("doctor_looks_at_gateways_that_stand_in", |world| {
        let with = |standby: &str| -> Config {
            let mut config = config(PEER, "");
            config.trunk.standby = vec![standby.parse().unwrap()];
            config
        };
        let _far = world.far();
        let good = with("10.2.0.2:7280");
        let alone = settled(|| {
            let mut checks = examine(world, &good, 7);
            checks.retain(|check| check.name != "standby");
            checks
        });
        assert!(faults(&alone).is_empty(), "{alone:#?}");
        one(&examine(world, &good, 7), "standby", "nobody listens at 10.2.0.2:7280");
        let nowhere = examine(world, &with("192.0.2.9:7280"), 7);
        let told = |words: &str| faults(&nowhere).iter().any(|it| it.to_string().contains(words));
        assert!(told("ip route add 192.0.2.9") && told("trunk.standby"), "{nowhere:#?}");

        let standby = "[trunk]\nlisten = \"10.2.0.2:7280\"\nkey = \"-\"\n\
                       [deliver]\nfrom_client = false\n";
        let second = world.gateway(SERVER, standby);
        let checks = settled(|| examine(world, &good, 7));
        assert!(faults(&checks).is_empty(), "{checks:#?}");
        let near = format!(
            "[trunk]\npeer = \"{PEER}\"\nstandby = [\"10.2.0.2:7280\"]\nkey = \"-\"\n\
             [intercept]\ninterfaces = [\"lan\"]\n"
        );
        let near = world.gateway(NEAR, &near);
        (0..2).for_each(|_| near.wait_for_trunk());
        let checks = examine(world, &good, 7);
        assert!(faults(&checks).is_empty(), "{checks:#?}");
        drop(second);
        near.wait_for_silence();
        // One of two connections falls silent before the other.
        let checks = until(|| examine(world, &good, 7), |checks| !faults(checks).is_empty());
        one(&checks, "standby", "10.2.0.2:7280 is not heard");
    });
}

#[test]
fn a_trunk_that_a_wrong_key_keeps_down_says_so() {
    with_world("a_trunk_that_a_wrong_key_keeps_down_says_so", |world| {
        let _far = world.far();
        let near = format!(
            "[trunk]\npeer = \"{PEER}\"\nkey = \"-\"\n[intercept]\ninterfaces = [\"lan\"]\n"
        );
        let near = world.stranger(NEAR, &near, 8);
        let status = || world.on(NEAR, gateway::status);
        let told = |words: &str| status().is_ok_and(|status| status.to_string().contains(words));
        // The far gateway's thread may not listen yet when it is called first.
        while !told("different key") {
            near.wait_for_silence();
        }
        assert!(told("trunk.key"), "{:?}", status());
        one(&examine(world, &config(PEER, ""), 8), "trunk", "holds a different key");
        let called: Config = format!("[trunk]\nlisten = \"{PEER}\"\nkey = \"-\"").parse().unwrap();
        let checks = examine_on(world, FAR, &called, 7);
        one(&checks, "trunk", "a gateway with a different key has called");
        drop(near);
        let near = world.near("");
        near.wait_for_trunk();
        assert_eq!(status().unwrap().trunk.cause, None);
    });
}

#[test]
fn what_install_does_uninstall_undoes() {
    with_world("what_install_does_uninstall_undoes", |world| {
        let root = tempfile::tempdir().unwrap();
        let [file, program, home] = ["/etc/g.toml", "/usr/bin/longhaul", "/root/x"].map(Path::new);
        let plan = || Plan::new(&config(PEER, ""), file, program, home);
        let forward = || world.on(NEAR, || std::fs::read("/proc/sys/net/ipv4/ip_forward").unwrap());
        let learns = || {
            let file = "/proc/sys/net/ipv6/conf/path/accept_ra";
            world.on(NEAR, || std::fs::read(file).unwrap())
        };
        let unit = root.path().join("etc/systemd/system/longhaul-gateway.service");
        world.set(NEAR, "ipv4/ip_forward", "0");
        world.set(NEAR, "ipv6/conf/all/forwarding", "0");
        world.set(NEAR, "ipv6/conf/path/accept_ra", "1");
        // Installed for something else before, which set less.
        let proxy = Plan::new(
            &"[trunk]\nlisten = \"[::]:7273\"\nkey = \"-\"\n[deliver]\nfrom_client = false"
                .parse()
                .unwrap(),
            file,
            program,
            home,
        );
        world.on(NEAR, || proxy.apply(root.path())).unwrap();
        assert_eq!(forward(), b"0\n");
        for _ in 0..2 {
            world.on(NEAR, || plan().apply(root.path())).unwrap();
            assert_eq!((forward(), learns()), (b"1\n".to_vec(), b"2\n".to_vec()));
            let text = std::fs::read_to_string(&unit).unwrap();
            assert!(
                text.contains(
                    "ExecStart=\"/usr/bin/longhaul\" gateway run --config \"/etc/g.toml\""
                )
            );
        }
        let plan = world.on(NEAR, plan);
        let shown = plan.to_string();
        let [listens, forwards] =
            ["path.accept_ra = 2", "all.forwarding = 1"].map(|it| shown.find(it));
        assert!(listens.is_some() && listens < forwards, "{shown}");
        assert_eq!(world.on(NEAR, || uninstall(root.path())).unwrap(), Left::Nothing);
        assert_eq!((forward(), unit.exists()), (b"0\n".to_vec(), false));
        assert_eq!(learns(), b"1\n");
        assert!(!is_installed(root.path()));
        assert!(world.on(NEAR, || uninstall(root.path())).is_err());
    });
}

#[test]
fn uninstall_leaves_what_is_not_its_own() {
    with_world("uninstall_leaves_what_is_not_its_own", |world| {
        let root = tempfile::tempdir().unwrap();
        let [file, program, home] = ["/etc/g.toml", "/usr/bin/longhaul", "/root/x"].map(Path::new);
        let plan = world.on(NEAR, || Plan::new(&config(PEER, ""), file, program, home));
        let name = world.name(NEAR);
        world.ip(&[
            format!("-n {name} rule add from 192.0.2.9 lookup 9 priority 7273"),
            format!("-n {name} route add 192.0.2.0/24 dev path table 7273"),
        ]);
        let gateways = world.gateways("");
        world.on(NEAR, || plan.apply(root.path())).unwrap();
        // One that was started by hand.
        assert_eq!(world.on(NEAR, || uninstall(root.path())).unwrap(), Left::Running);
        let checks = examine(world, &config(PEER, ""), 7);
        assert!(faults(&checks).is_empty(), "{checks:#?}");

        drop(gateways);
        let said = |words: &str| {
            let output = std::process::Command::new("ip").args(words.split(' ')).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let rules = said(&format!("-n {name} rule show priority 7273"));
        assert!(rules.contains("192.0.2.9") && !rules.contains("fwmark"), "{rules}");
        let routes = said(&format!("-n {name} route show table 7273"));
        assert!(routes.contains("192.0.2.0/24") && !routes.contains("default"), "{routes}");
    });
}

/// Says to the copy of this program that is started here that it is to run the near gateway.
const KILLED: &str = "LONGHAUL_GATEWAY_TO_BE_KILLED";

#[test]
#[ignore = "only another test runs it, in a process that it kills"]
fn a_gateway_runs_until_it_is_killed() {
    if std::env::var_os(KILLED).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let key = Credentials::from(&SharedKey::from_bytes([7; 32]));
        let config = config(PEER, "");
        let run = gateway::run(&config, key, std::future::pending(), |_| ());
        runtime.block_on(run).unwrap();
    }
}

/// Runs the near gateway in a process of its own, and kills it once it has a trunk to this far one.
fn run_and_kill(world: &World, far: &Gateway) {
    let mut gateway = world.on(NEAR, || {
        let mut copy = Command::new(std::env::current_exe().unwrap());
        copy.args(["--ignored", "--exact", "faults::a_gateway_runs_until_it_is_killed"]);
        copy.env(KILLED, "1").stdout(Stdio::null()).spawn().unwrap()
    });
    far.wait_for_trunk();
    gateway.kill().unwrap();
    gateway.wait().unwrap();
}

/// What of the gateway's rules is there: of nftables, of routes, and of iptables' two families.
fn rules(world: &World) -> [usize; 4] {
    let count = |line: &str, ours: &str| {
        let (program, arguments) = line.split_once(' ').unwrap();
        let said = Command::new(program).args(arguments.split(' ')).output();
        let said = said.map(|output| output.stdout).unwrap_or_default();
        String::from_utf8(said).unwrap().matches(ours).count()
    };
    world.on(NEAR, || {
        [
            count("nft list tables", "inet longhaul"),
            count("ip rule show priority 7273", "fwmark"),
            count("iptables -t raw -S", "0x4c480001"),
            count("ip6tables -t raw -S", "0x4c480001"),
        ]
    })
}

#[test]
fn nothing_is_left_of_a_gateway_that_was_killed() {
    with_world("nothing_is_left_of_a_gateway_that_was_killed", |world| {
        let far = world.far();
        let kill = || {
            run_and_kill(world, &far);
            rules(world)
        };
        let left = kill();
        assert_eq!(left[..2], [1, 1]);
        assert_eq!(kill(), left, "each start adds to what is left");
        let near = world.near("");
        [&near, &far].into_iter().for_each(Gateway::wait_for_trunk);
        assert_eq!(rules(world), left);
        drop(near);
        assert_eq!(rules(world), [0; 4]);

        let root = tempfile::tempdir().unwrap();
        let [file, program, home] = ["/etc/g.toml", "/usr/bin/longhaul", "/root/x"].map(Path::new);
        world
            .on(NEAR, || Plan::new(&config(PEER, ""), file, program, home).apply(root.path()))
            .unwrap();
        assert_eq!(kill(), left);
        assert_eq!(world.on(NEAR, || uninstall(root.path())).unwrap(), Left::Nothing);
        assert_eq!(rules(world), [0; 4]);
    });
}

#[test]
fn a_setting_of_the_kernels_is_as_before_whoever_was_killed_and_uninstalled() {
    let name = "a_setting_of_the_kernels_is_as_before_whoever_was_killed_and_uninstalled";
    with_world(name, |world| {
        let far = world.far();
        let kill = || run_and_kill(world, &far);
        let root = tempfile::tempdir().unwrap();
        let [file, program, home] = ["/etc/g.toml", "/usr/bin/longhaul", "/root/x"].map(Path::new);
        let install = || {
            let plan = || Plan::new(&config(PEER, ""), file, program, home).apply(root.path());
            world.on(NEAR, plan).unwrap();
        };
        let uninstall = || world.on(NEAR, || uninstall(root.path())).unwrap();
        let setting = || {
            world.on(NEAR, || std::fs::read_to_string("/proc/sys/net/ipv4/tcp_tw_reuse").unwrap())
        };
        world.set(NEAR, "ipv4/tcp_tw_reuse", "2");
        // Killed, and then installed.
        kill();
        assert_eq!(setting(), "1\n");
        install();
        assert_eq!((uninstall(), setting()), (Left::Nothing, "2\n".into()));
        // Killed as a service, and then run by hand.
        install();
        kill();
        uninstall();
        let near = world.near("");
        near.wait_for_trunk();
        drop(near);
        assert_eq!(setting(), "2\n");
    });
}
