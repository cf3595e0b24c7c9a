//! Labs and relays with the real kernel. Not the standard harness: an ordinary user's process
//! must move into a user namespace while it has one thread.

mod live;

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use emulator::{Host, Lab, LabOptions, LabReport, LaneReport, Relay};
use libtest_mimic::{Arguments, Failed, Trial};
use path::{DropCause, Limit, PathConfig, QueueConfig};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
use units::{Bytes, Rate};

/// Set for the copy of this program that holds a lab until it is killed.
const HOLD: &str = "LONGHAUL_TEST_HOLD_LAB";

/// Nothing here takes long; a test that waits for this long has lost something.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a socket holds while this program waits for a processor: more than any test sends. What the
/// usual size has no room for is lost behind the path, where no counter of the lab sees it.
const RECEIVE_BUFFER: usize = 16 << 20;

type Outcome = Result<(), Failed>;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    let privilege = emulator::init();
    if std::env::var_os(HOLD).is_some() {
        return hold_a_lab();
    }
    // One at a time, for the machine's sake.
    arguments.test_threads = Some(1);
    let mut trials = vec![
        Trial::test("relay_carries_datagrams_both_ways", relay_carries_datagrams_both_ways),
        Trial::test("relay_loses_what_it_should", relay_loses_what_it_should),
        Trial::test("a_relays_target_may_go_and_come", live::a_relays_target_may_go_and_come),
    ];
    let labs = privilege.and_then(|_| Lab::start(&path(1), &LabOptions::default()).map(drop));
    match labs {
        Ok(()) => {
            trials.extend(live::trials());
            trials.extend([
                Trial::test("round_trips_take_the_configured_time", round_trips),
                Trial::test("tcp_crosses_a_lossy_path_intact", tcp_crosses_a_lossy_path_intact),
                Trial::test("counters_add_up", counters_add_up),
                Trial::test("every_queue_drops_in_its_way", every_queue_drops_in_its_way),
                Trial::test("marks_reach_the_receiver", marks_reach_the_receiver),
                Trial::test("duplicates_arrive_twice", duplicates_arrive_twice),
                Trial::test("checksums_find_silent_damage", checksums_find_silent_damage),
                Trial::test("senders_learn_a_smaller_mtu", senders_learn_a_smaller_mtu),
                Trial::test("a_black_hole_tells_nobody", a_black_hole_tells_nobody),
                Trial::test("commands_run_on_their_host", commands_run_on_their_host),
                Trial::test("labs_live_side_by_side", labs_live_side_by_side),
                Trial::test("names_go_with_the_lab", names_go_with_the_lab),
                Trial::test("nothing_is_left_of_a_killed_lab", nothing_is_left_of_a_killed_lab),
                Trial::test("unknown_congestion_control_is_refused", unknown_congestion_control),
            ])
        }
        Err(error) if error.is_not_permitted() => eprintln!("SKIPPED: tests of labs: {error}"),
        Err(error) => {
            eprintln!("a lab should start here: {error}");
            return ExitCode::FAILURE;
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// 100 Mbit/s with this round-trip time.
fn path(rtt_ms: u64) -> PathConfig {
    PathConfig::new(Rate::from_bits_per_sec(100_000_000), Duration::from_millis(rtt_ms))
}

fn lab(path: &PathConfig) -> Result<Lab, Failed> {
    Ok(Lab::start(path, &LabOptions::default())?)
}

fn udp(lab: &Lab, host: Host, v6: bool) -> Result<UdpSocket, Failed> {
    let address = if v6 { lab.address6(host) } else { lab.address(host) };
    let socket = lab.enter(host, || UdpSocket::bind((address, 0)))??;
    socket.set_read_timeout(Some(PATIENCE))?;
    // In a user namespace only as much as the host allows everybody.
    set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER)
        .or_else(|_| set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER))?;
    Ok(socket)
}

/// How long the action takes by the lab's own clock; fine for a lower bound.
fn time(
    report: impl Fn() -> LabReport,
    action: impl FnOnce() -> Outcome,
) -> Result<Duration, Failed> {
    let start = report().elapsed;
    action().map(|()| report().elapsed - start)
}

/// Everything offered was delivered, dropped for a reason, or is still under way.
fn adds_up(lane: &LaneReport) -> bool {
    let dropped: u64 = DropCause::ALL.iter().map(|&c| lane.counters.dropped(c).packets).sum();
    lane.counters.offered.packets >= lane.counters.delivered.packets + dropped
        && lane.outside.total() == 0
}

fn round_trips() -> Outcome {
    let rtt = Duration::from_millis(80);
    let lab = lab(&path(80))?;
    for v6 in [false, true] {
        let (near, far) = (udp(&lab, Host::Near, v6)?, udp(&lab, Host::Far, v6)?);
        let to = far.local_addr()?;
        let mut buffer = [0; 100];
        for _ in 0..3 {
            let took = time(
                || lab.stats(),
                || {
                    near.send_to(b"there", to)?;
                    let (n, from) = far.recv_from(&mut buffer)?;
                    far.send_to(&buffer[..n], from)?;
                    let n = near.recv(&mut buffer)?;
                    assert_eq!(&buffer[..n], b"there");
                    Ok(())
                },
            )?;
            assert!(took >= rtt, "{took:?}");
        }
    }
    let LabReport { forward, back, .. } = lab.stop();
    assert_eq!((forward.counters.delivered.packets, back.counters.delivered.packets), (6, 6));
    Ok(())
}

/// Sends from near to an address of far by TCP, and gives what arrived.
fn transfer(lab: &Lab, address: IpAddr, bytes: &[u8]) -> Result<Vec<u8>, Failed> {
    let listener = lab.enter(Host::Far, || TcpListener::bind((address, 0)))??;
    let to = listener.local_addr()?;
    let mut near = lab.enter(Host::Near, || TcpStream::connect(to))??;
    let (mut far, _) = listener.accept()?;
    // A transfer that stands still has failed.
    near.set_write_timeout(Some(PATIENCE))?;
    far.set_read_timeout(Some(PATIENCE))?;
    let received = thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut received = Vec::new();
            far.read_to_end(&mut received).map(|_| received)
        });
        near.write_all(bytes)?;
        drop(near);
        reader.join().expect("the reader does not panic")
    })?;
    Ok(received)
}

fn tcp_crosses_a_lossy_path_intact() -> Outcome {
    let lab = lab(&path(4).with_loss(0.02).with_loss_back(0.01))?;
    let bytes: Vec<u8> = (0u32..500_000).flat_map(|i| i.to_le_bytes()).collect();
    for address in [lab.address(Host::Far), lab.address6(Host::Far)] {
        assert!(transfer(&lab, address, &bytes)? == bytes, "what arrived is what was sent");
    }
    let report = lab.stop();
    assert!(report.forward.counters.dropped(DropCause::Loss).packets > 0);
    assert!(adds_up(&report.forward) && adds_up(&report.back), "{report}");
    Ok(())
}

/// A burst into a queue of ten packets: the kernel's counts and the model's agree.
fn counters_add_up() -> Outcome {
    let queue = QueueConfig::DropTail(Limit::Packets(10));
    let slow = PathConfig::new(Rate::from_bits_per_sec(1_000_000), Duration::from_millis(20));
    let lab = lab(&slow.with_queue(queue))?;
    let (near, far) = (udp(&lab, Host::Near, false)?, udp(&lab, Host::Far, false)?);
    let to = far.local_addr()?;
    for i in 0u32..200 {
        near.send_to(&[i as u8; 972], to)?;
    }
    far.set_read_timeout(Some(Duration::from_millis(500)))?;
    let mut buffer = [0; 1000];
    let mut arrived = 0;
    while far.recv(&mut buffer).is_ok() {
        arrived += 1;
    }
    let forward = lab.stop().forward;
    let dropped = forward.counters.dropped(DropCause::Queue);
    assert_eq!(forward.counters.offered.packets, 200);
    assert_eq!(forward.counters.delivered.packets, arrived);
    assert_eq!(dropped.packets, 200 - arrived);
    assert_eq!(dropped.bytes, Bytes(dropped.packets * 1000));
    assert!(arrived >= 11 && dropped.packets > 0, "{arrived} arrived");
    assert!(adds_up(&forward), "{forward}");
    Ok(())
}

/// A burst into a slow link behind each queue: all that did not arrive was dropped for the
/// reasons that this queue has.
fn every_queue_drops_in_its_way() -> Outcome {
    let cases = [
        ("20packets", DropCause::Queue),
        ("red:min=5packets,max=20packets,weight=0.2", DropCause::Early),
        ("red-i:min=5packets,max=20packets", DropCause::Early),
        ("codel:target=1ms,interval=10ms", DropCause::Early),
        ("fq-codel:limit=20packets", DropCause::Queue),
    ];
    for (queue, cause) in cases {
        let slow = PathConfig::new(Rate::from_bits_per_sec(10_000_000), Duration::from_millis(4));
        let lab = lab(&slow.with_queue(queue.parse()?))?;
        let (near, far) = (udp(&lab, Host::Near, false)?, udp(&lab, Host::Far, false)?);
        let to = far.local_addr()?;
        for i in 0u32..300 {
            near.send_to(&[i as u8; 972], to)?;
        }
        far.set_read_timeout(Some(Duration::from_millis(500)))?;
        let mut arrived = 0;
        while far.recv(&mut [0; 1000]).is_ok() {
            arrived += 1;
        }
        let report = lab.stop();
        let dropped = report.forward.counters.dropped(cause).packets;
        assert_eq!(report.forward.counters.offered.packets, 300);
        assert_eq!(report.forward.counters.delivered.packets, arrived, "{queue}: {report}");
        assert!(dropped > 0 && adds_up(&report.forward), "{queue}: {report}");
        assert!(report.to_string().contains(cause.name()), "{queue}: {report}");
    }
    Ok(())
}

/// The kernel's TCP negotiates ECN, the queue marks, and the far host counts the marks.
fn marks_reach_the_receiver() -> Outcome {
    let queue = "red-i:min=5packets,max=500packets,ecn=yes".parse()?;
    let lab = lab(&path(10).with_queue(queue))?;
    for host in Host::BOTH {
        lab.enter(host, || fs::write("/proc/sys/net/ipv4/tcp_ecn", "1"))??;
    }
    let bytes = vec![7; 4_000_000];
    for address in [lab.address(Host::Far), lab.address6(Host::Far)] {
        assert!(transfer(&lab, address, &bytes)? == bytes, "what arrived is what was sent");
    }
    let seen = lab.command(Host::Far, "cat").arg("/proc/net/netstat").output()?.stdout;
    let seen6 = lab.command(Host::Far, "cat").arg("/proc/net/snmp6").output()?.stdout;
    let report = lab.stop();
    let (v4, v6) = (counter(&seen, "IpExt:", "InCEPkts"), in6_ce_packets(&seen6));
    let marked = report.forward.counters.marked.packets;
    assert!(
        v4.is_some_and(|count| count > 0) && v6.is_some_and(|count| count > 0),
        "{v4:?} {v6:?}"
    );
    assert!(v4.zip(v6).is_some_and(|(v4, v6)| v4 + v6 <= marked), "{v4:?} {v6:?} of {marked}");
    assert!(report.to_string().contains("marked"), "{report}");
    assert!(adds_up(&report.forward), "{report}");
    Ok(())
}

fn duplicates_arrive_twice() -> Outcome {
    let mut path = path(4);
    path.forward.impairments.duplicate = 0.3;
    let lab = lab(&path)?;
    let (near, far) = (udp(&lab, Host::Near, false)?, udp(&lab, Host::Far, false)?);
    let to = far.local_addr()?;
    for i in 0u8..200 {
        near.send_to(&[i; 100], to)?;
    }
    far.set_read_timeout(Some(Duration::from_millis(500)))?;
    let (mut seen, mut buffer) = (Vec::new(), [0; 100]);
    while far.recv(&mut buffer).is_ok() {
        seen.push(buffer[0]);
    }
    // TCP is not confused by copies of segments that left the host as super-packets.
    let bytes: Vec<u8> = (0u32..500_000).flat_map(|i| i.to_le_bytes()).collect();
    let duplicated = lab.stats().forward.counters.duplicated.packets;
    assert!(transfer(&lab, lab.address(Host::Far), &bytes)? == bytes, "as it was sent");
    assert!(duplicated > 0 && seen.len() as u64 == 200 + duplicated, "{duplicated}: {seen:?}");
    assert!(seen.is_sorted(), "a copy follows at once: {seen:?}");
    let report = lab.stop();
    assert!(adds_up(&report.forward), "{report}");
    assert!(report.to_string().contains("sent twice"), "{report}");
    Ok(())
}

/// What is damaged behind every checksum of the line is found by TCP's own.
fn checksums_find_silent_damage() -> Outcome {
    let mut path = path(4);
    (path.forward.impairments.corrupt, path.forward.impairments.silent) = (0.03, true);
    let lab = lab(&path)?;
    let bytes: Vec<u8> = (0u32..500_000).flat_map(|i| i.to_le_bytes()).collect();
    for address in [lab.address(Host::Far), lab.address6(Host::Far)] {
        assert!(transfer(&lab, address, &bytes)? == bytes, "what arrived is what was sent");
    }
    let snmp = lab.command(Host::Far, "cat").arg("/proc/net/snmp").output()?.stdout;
    let report = lab.stop();
    let found = counter(&snmp, "Tcp:", "InCsumErrors");
    let damaged = report.forward.counters.damaged.packets;
    // A few are found elsewhere: by IP, or because they seem to be for somebody else.
    let expected = damaged / 2..=damaged;
    assert!(
        damaged > 10 && found.is_some_and(|found| expected.contains(&found)),
        "{found:?} {report}"
    );
    assert!(adds_up(&report.forward), "{report}");
    Ok(())
}

/// TCP finds out that the link takes 1400 bytes, by both versions of IP.
fn senders_learn_a_smaller_mtu() -> Outcome {
    let mut path = path(4);
    path.forward.mtu = Some(Bytes(1400));
    let lab = lab(&path)?;
    let bytes: Vec<u8> = (0u32..500_000).flat_map(|i| i.to_le_bytes()).collect();
    for address in [lab.address(Host::Far), lab.address6(Host::Far)] {
        let before = lab.stats().forward.counters.dropped(DropCause::TooBig).packets;
        assert!(transfer(&lab, address, &bytes)? == bytes, "what arrived is what was sent");
        let refused = lab.stats().forward.counters.dropped(DropCause::TooBig).packets - before;
        // The first flight and no more.
        assert!((1..100).contains(&refused), "{refused}");
    }
    let report = lab.stop();
    assert!(adds_up(&report.forward), "{report}");
    Ok(())
}

/// Without ICMP, large packets vanish and small ones pass.
fn a_black_hole_tells_nobody() -> Outcome {
    let mut path = path(4);
    path.forward.mtu = Some(Bytes(1400));
    path.forward.icmp = false;
    let lab = lab(&path)?;
    let (near, far) = (udp(&lab, Host::Near, false)?, udp(&lab, Host::Far, false)?);
    let to = far.local_addr()?;
    // With ICMP the third would not have left in this size.
    for size in [1400, 1372, 1400, 1372] {
        near.send_to(&vec![1; size], to)?;
    }
    for _ in 0..2 {
        assert_eq!(far.recv(&mut [0; 1500])?, 1372);
    }
    let report = lab.stop();
    assert_eq!(report.forward.counters.dropped(DropCause::TooBig).packets, 2);
    assert_eq!(report.forward.counters.delivered.packets, 2);
    Ok(())
}

/// A counter in one of the files of a host's `/proc/net` that have, for each protocol, a line of
/// names and one of values.
fn counter(file: &[u8], protocol: &str, name: &str) -> Option<u64> {
    let text = String::from_utf8_lossy(file);
    let mut lines = text.lines().filter(|line| line.starts_with(protocol));
    let (names, values) = (lines.next()?.split(' '), lines.next()?.split(' '));
    names.zip(values).find(|(found, _)| *found == name)?.1.parse().ok()
}

/// IPv6 packets that came with CE, by `/proc/net/snmp6`: a name and its value on each line.
fn in6_ce_packets(snmp6: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(snmp6);
    let mut words = text.lines().map(str::split_whitespace);
    words.find_map(|mut line| (line.next()? == "Ip6InCEPkts").then(|| line.next())?)?.parse().ok()
}

fn commands_run_on_their_host() -> Outcome {
    let lab = lab(&path(1))?;
    for host in Host::BOTH {
        let output = lab.command(host, "cat").arg("/proc/net/fib_trie").output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(&lab.address(host).to_string()), "{host}: {text}");
        assert!(!text.contains(&format!("{}/32", lab.address(host.peer()))), "{host}: {text}");
    }
    let status = lab.command(Host::Near, "sh").args(["-c", "exit 7"]).status()?;
    assert_eq!(status.code(), Some(7));
    // From inside, the other forms of the prefix would enter the user namespace we are in.
    let prefix = lab.shell_prefix(Host::Far);
    let found = Command::new("ip").arg("-V").output().is_ok();
    if prefix.starts_with("ip ") && found {
        let status = Command::new("sh").args(["-c", &format!("{prefix} true")]).status()?;
        assert!(status.success(), "{prefix}");
    } else {
        eprintln!("SKIPPED: entering by name, which needs root and iproute2");
    }
    Ok(())
}

fn labs_live_side_by_side() -> Outcome {
    let labs = (1..=10).map(|rtt| lab(&path(rtt))).collect::<Result<Vec<_>, _>>()?;
    for lab in &labs {
        let (near, far) = (udp(lab, Host::Near, false)?, udp(lab, Host::Far, false)?);
        near.send_to(b"hello", far.local_addr()?)?;
        far.recv(&mut [0; 10])?;
    }
    for lab in labs {
        assert_eq!(lab.stop().forward.counters.offered.packets, 1);
    }
    Ok(())
}

/// Names of labs of this process number.
fn names_of(pid: u32) -> Vec<String> {
    let entries = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(&format!("longhaul-{pid}"))).collect()
}

fn names_go_with_the_lab() -> Outcome {
    let lab = lab(&path(1))?;
    let named = lab.shell_prefix(Host::Near).starts_with("ip ");
    assert_eq!(names_of(std::process::id()).len(), if named { 2 } else { 0 });
    drop(lab);
    assert_eq!(names_of(std::process::id()), Vec::<String>::new());
    Ok(())
}

fn hold_a_lab() -> ExitCode {
    let _lab = Lab::start(&path(1), &LabOptions::default()).expect("the parent has started one");
    println!("ready");
    thread::sleep(PATIENCE);
    ExitCode::FAILURE
}

fn nothing_is_left_of_a_killed_lab() -> Outcome {
    let mut holder =
        Command::new(std::env::current_exe()?).env(HOLD, "1").stdout(Stdio::piped()).spawn()?;
    let mut ready = [0; 5];
    holder.stdout.take().expect("piped").read_exact(&mut ready)?;
    let pid = holder.id();
    holder.kill()?;
    holder.wait()?;
    drop(lab(&path(1))?);
    assert_eq!(names_of(pid), Vec::<String>::new());
    Ok(())
}

fn unknown_congestion_control() -> Outcome {
    let congestion_control = "no-such-thing".to_owned();
    let options = LabOptions { congestion_control, ..LabOptions::default() };
    let error = Lab::start(&path(1), &options).err().expect("refused").to_string();
    assert!(error.contains("no-such-thing"), "{error}");
    Ok(())
}

fn loopback() -> Result<UdpSocket, Failed> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

fn relay_carries_datagrams_both_ways() -> Outcome {
    let target = loopback()?;
    let relay = Relay::start(&path(40), target.local_addr()?)?;
    let clients = [loopback()?, loopback()?];
    let mut buffer = [0; 2000];
    for size in [0, 1, 1200] {
        let mut seen: Vec<SocketAddr> = Vec::new();
        for (i, client) in clients.iter().enumerate() {
            let payload = vec![i as u8; size];
            client.send_to(&[9; 1473], relay.address())?; // too long for the path: vanishes
            let took = time(
                || relay.stats(),
                || {
                    client.send_to(&payload, relay.address())?;
                    let (n, from) = target.recv_from(&mut buffer)?;
                    assert_eq!(buffer[..n], payload);
                    seen.push(from);
                    target.send_to(&buffer[..n], from)?;
                    let (n, from) = client.recv_from(&mut buffer)?;
                    assert_eq!((&buffer[..n], from), (&payload[..], relay.address()));
                    Ok(())
                },
            )?;
            assert!(took >= Duration::from_millis(40), "{took:?}");
        }
        assert_ne!(seen[0], seen[1], "the target tells clients apart");
    }
    let report = relay.stop();
    assert_eq!(report.forward.counters.delivered.packets, 6);
    assert_eq!(report.back.counters.offered.bytes, Bytes(2 * (1201 + 3 * 28)));
    Ok(())
}

fn relay_loses_what_it_should() -> Outcome {
    let (target, client) = (loopback()?, loopback()?);
    let relay = Relay::start(&path(2).with_loss(0.5), target.local_addr()?)?;
    target.set_read_timeout(Some(Duration::from_millis(500)))?;
    let mut arrived = 0;
    for _ in 0..20 {
        for _ in 0..20 {
            client.send_to(&[7; 100], relay.address())?;
        }
        // Read now: a socket's buffer holds no more than a few hundred.
        while arrived < relay.stats().forward.counters.delivered.packets {
            target.recv(&mut [0; 200])?;
            arrived += 1;
        }
    }
    while target.recv(&mut [0; 200]).is_ok() {
        arrived += 1;
    }
    let forward = relay.stop().forward;
    assert_eq!(forward.counters.offered.packets, 400);
    assert_eq!(forward.counters.delivered.packets, arrived);
    let lost = forward.counters.dropped(DropCause::Loss).packets;
    assert_eq!(lost, 400 - arrived);
    // The 99.9% binomial interval.
    assert!((167..=233).contains(&lost), "{lost}");
    assert!(adds_up(&forward), "{forward}");
    Ok(())
}
