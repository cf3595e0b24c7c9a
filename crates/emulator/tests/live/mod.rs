//! Labs of several hosts, and labs that are changed, looked at and recorded while they run.

mod offload;

use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use emulator::{
    Fault, Host, Lab, LabError, LabOptions, Limits, LossPlace, Machine, Relay, end_with_this_thread,
};
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use libtest_mimic::{Failed, Trial};
use path::{Adjustment, Change, DropCause, HostGroup, LossConfig, PathConfig, Schedule};
use pcap_file::pcapng::{Block, PcapNgReader};
use units::{Bytes, Rate};

use crate::{Outcome, PATIENCE, adds_up, lab, loopback, path, time, transfer, udp};

pub fn trials() -> Vec<Trial> {
    vec![
        Trial::test("hosts_share_the_path", hosts_share_the_path),
        Trial::test("each_host_has_a_delay_of_its_own", each_host_has_a_delay_of_its_own),
        Trial::test("a_hosts_own_link_drops_too", a_hosts_own_link_drops_too),
        Trial::test("a_duplicate_takes_its_time_on_a_hosts_own_link", a_duplicate_takes_its_time),
        Trial::test("tcp_crosses_three_links_intact", tcp_crosses_three_links_intact),
        Trial::test("impossible_hosts_are_refused", impossible_hosts_are_refused),
        Trial::test("jumbo_frames_cross", jumbo_frames_cross),
        Trial::test("the_path_changes_while_it_runs", the_path_changes_while_it_runs),
        Trial::test("a_schedule_counts_when_nothing_is_sent", a_schedule_counts),
        Trial::test("a_larger_path_gets_more_memory", a_larger_path_gets_more_memory),
        Trial::test("samples_show_the_queue", samples_show_the_queue),
        Trial::test("captures_hold_real_packets", captures_hold_real_packets),
        Trial::test("traces_hold_every_drop", traces_hold_every_drop),
        Trial::test("losses_outside_the_model_are_judged", losses_outside_the_model_are_judged),
        Trial::test("commands_end_with_their_thread", commands_end_with_their_thread),
        Trial::test("super_packets_meet_the_fates_of_plain_ones", offload::same_fates),
    ]
}

fn options(near: &str, far: &str) -> Result<LabOptions, Failed> {
    let (near, far) = (vec![near.parse::<HostGroup>()?], vec![far.parse::<HostGroup>()?]);
    Ok(LabOptions { near, far, ..LabOptions::default() })
}

fn socket(machine: &Machine, v6: bool) -> Result<UdpSocket, Failed> {
    let address = if v6 { machine.address6() } else { machine.address() };
    let socket = machine.enter(|| UdpSocket::bind((address, 0)))??;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// Everybody talks to everybody on the other side, and hears from those who answer.
fn hosts_share_the_path() -> Outcome {
    let lab = Lab::start(&path(2), &LabOptions::default().with_hosts(3))?;
    assert_eq!(lab.machines(Host::Far)[2].name(), "far3");
    for v6 in [false, true] {
        for near in lab.machines(Host::Near) {
            let from = socket(near, v6)?;
            for far in lab.machines(Host::Far) {
                let to = socket(far, v6)?;
                from.send_to(far.name().as_bytes(), to.local_addr()?)?;
                let mut buffer = [0; 10];
                let (n, sender) = to.recv_from(&mut buffer)?;
                assert_eq!((&buffer[..n], sender), (far.name().as_bytes(), from.local_addr()?));
                to.send_to(near.name().as_bytes(), sender)?;
                assert_eq!(from.recv(&mut buffer)?, near.name().len());
            }
        }
    }
    let report = lab.stop();
    for lane in [report.forward, report.back] {
        assert_eq!(lane.counters.delivered.packets, 18, "{report}");
        assert!(adds_up(&lane), "{report}");
    }
    Ok(())
}

fn each_host_has_a_delay_of_its_own() -> Outcome {
    let mut options = options("delay=1ms", "count=1")?;
    options.near.push("delay=40ms".parse()?);
    let lab = Lab::start(&path(2), &options)?;
    let far = socket(&lab.machines(Host::Far)[0], false)?;
    for (near, least) in lab.machines(Host::Near).iter().zip([4, 82]) {
        let near = socket(near, false)?;
        let took = time(
            || lab.stats(),
            || {
                near.send_to(b"there", far.local_addr()?)?;
                let (n, from) = far.recv_from(&mut [0; 10])?;
                far.send_to(&[0; 10][..n], from)?;
                near.recv(&mut [0; 10])?;
                Ok(())
            },
        )?;
        assert!(took >= Duration::from_millis(least), "{took:?}");
    }
    Ok(())
}

/// A burst through a slow link of the sender's own, or of the receiver's.
fn a_hosts_own_link_drops_too() -> Outcome {
    let slow = "rate=1mbit queue=5packets";
    for (near, far) in [(slow, "count=1"), ("count=1", slow)] {
        let lab = Lab::start(&path(2), &options(near, far)?)?;
        let file = Scratch::new("host.csv");
        let trace = lab.trace(File::create(&file.0)?, PATIENCE)?;
        let (from, to) = (udp(&lab, Host::Near, false)?, udp(&lab, Host::Far, false)?);
        for _ in 0..50 {
            from.send_to(&[7; 972], to.local_addr()?)?;
        }
        to.set_read_timeout(Some(Duration::from_millis(500)))?;
        let mut arrived = 0;
        while to.recv(&mut [0; 1000]).is_ok() {
            arrived += 1;
        }
        let report = lab.stop();
        let dropped = report.forward.access_drops;
        assert!(dropped > 0 && arrived + dropped == 50, "{arrived}, {report}");
        assert_eq!(trace.finish()?, 0);
        let text = fs::read_to_string(&file.0)?;
        let noted = |what| text.lines().filter(|line| line.contains(what)).count() as u64;
        assert_eq!((noted(",forward,drop:host,1,"), noted("drop:")), (dropped, dropped));
        assert!(report.to_string().contains("dropped by the hosts' own links"), "{report}");
        assert!(
            adds_up(&report.forward)
                && report.forward.counters.dropped(DropCause::Queue).packets == 0
        );
    }
    Ok(())
}

/// Two packets of a kilobyte take 8 ms each on the receiver's own link, and then so does the copy of each that
/// finds room there.
fn a_duplicate_takes_its_time() -> Outcome {
    let mut path = path(2);
    path.forward.impairments.duplicate = 1.0;
    let lab = Lab::start(&path, &options("count=1", "rate=1mbit queue=2packets")?)?;
    let (from, to) = (udp(&lab, Host::Near, false)?, udp(&lab, Host::Far, false)?);
    let took = time(
        || lab.stats(),
        || {
            // They reach that link together.
            set(&lab, &["forward.hold=300ms"])?;
            for _ in 0..2 {
                from.send_to(&[7; 972], to.local_addr()?)?;
            }
            (0..3).try_for_each(|_| to.recv(&mut [0; 1000]).map(drop))?;
            Ok(())
        },
    )?;
    assert!(took >= Duration::from_millis(301 + 3 * 8), "{took:?}");
    let forward = lab.stop().forward;
    assert_eq!((forward.counters.duplicated.packets, forward.access_drops), (2, 1), "{forward}");
    assert!(adds_up(&forward), "{forward}");
    Ok(())
}

fn tcp_crosses_three_links_intact() -> Outcome {
    let path = path(4).with_loss(0.01).with_queue("fq-codel".parse()?);
    let options =
        options("rate=200mbit delay=2ms queue=red-i:min=5packets,max=50packets", "delay=3ms")?;
    let lab = Lab::start(&path, &options)?;
    let bytes: Vec<u8> = (0u32..300_000).flat_map(|i| i.to_le_bytes()).collect();
    for address in [lab.address(Host::Far), lab.address6(Host::Far)] {
        assert!(transfer(&lab, address, &bytes)? == bytes, "what arrived is what was sent");
    }
    let report = lab.stop();
    assert!(report.forward.counters.dropped(DropCause::Loss).packets > 0, "{report}");
    assert!(adds_up(&report.forward) && adds_up(&report.back), "{report}");
    Ok(())
}

fn impossible_hosts_are_refused() -> Outcome {
    let refused = |options: &LabOptions| match Lab::start(&path(1), options) {
        Err(LabError::Options(message)) => message,
        Err(error) => error.to_string(),
        Ok(_) => String::new(),
    };
    assert!(refused(&LabOptions::default().with_hosts(65)).contains("1 to 64 near hosts"));
    let none = LabOptions { far: vec![], ..LabOptions::default() };
    assert!(refused(&none).contains("far hosts"));
    let tiny = LabOptions { mtu: 1000, ..LabOptions::default() };
    assert!(refused(&tiny).contains("not 1000"));
    let slow = LabOptions { far: vec!["per-packet=80us".parse()?], ..LabOptions::default() };
    assert!(refused(&slow).contains("longhaul simulate alone"));
    Ok(())
}

fn jumbo_frames_cross() -> Outcome {
    for mtu in [9216, emulator::MAX_MTU] {
        let lab = Lab::start(&path(4), &LabOptions { mtu, ..LabOptions::default() })?;
        let (from, to) = (udp(&lab, Host::Near, false)?, udp(&lab, Host::Far, false)?);
        let size = mtu as usize - 28;
        from.send_to(&vec![7; size], to.local_addr()?)?;
        assert_eq!(to.recv(&mut vec![0; size + 1])?, size);
        let report = lab.stop();
        assert_eq!(report.forward.counters.delivered.bytes, Bytes(mtu.into()), "{report}");
    }
    // TCP fills them: the papers' MSS of 9148 is that of 9188 bytes.
    let lab = Lab::start(&path(4), &LabOptions { mtu: 9188, ..LabOptions::default() })?;
    let bytes = vec![7; 4_000_000];
    assert!(transfer(&lab, lab.address(Host::Far), &bytes)? == bytes, "as it was sent");
    let sent = lab.stop().forward.counters.offered;
    assert!(sent.bytes.0 / sent.packets > 8000, "{sent:?}");
    Ok(())
}

fn set(lab: &Lab, words: &[&str]) -> Result<(), Failed> {
    let change = Adjustment::read(words.iter().copied(), |_| Err("no files here".into()))?;
    Ok(lab.set(&change)?)
}

fn the_path_changes_while_it_runs() -> Outcome {
    let lab = lab(&path(2))?;
    let (near, far) = (udp(&lab, Host::Near, false)?, udp(&lab, Host::Far, false)?);
    let to = far.local_addr()?;
    let echo = || -> Outcome {
        near.send_to(b"there", to)?;
        let (_, from) = far.recv_from(&mut [0; 10])?;
        far.send_to(b"back", from)?;
        near.recv(&mut [0; 10])?;
        Ok(())
    };
    echo()?;
    set(&lab, &["rtt=600ms"])?;
    set(&lab, &["rtt=80ms"])?;
    assert_eq!(lab.limits(), Limits::of(&path(2)), "of the least round-trip time there was");
    assert!(time(|| lab.stats(), echo)? >= Duration::from_millis(80));
    set(&lab, &["rtt=2ms", "forward.loss=100%"])?;
    near.send_to(b"lost", to)?;
    let lost = || lab.stats().forward.counters.dropped(DropCause::Loss).packets;
    while lost() == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    // What is wrong changes nothing: neither direction.
    assert!(set(&lab, &["forward.loss=0", "back.mtu=9"]).is_err());
    assert!(set(&lab, &["back.delay=9ms", "forward.loss=0", "forward.queue=red"]).is_err());
    let [forward, back] = lab.links();
    assert_eq!((forward.loss, back.mtu), (LossConfig::Bernoulli(1.0), None));
    set(&lab, &["loss=none"])?;
    echo()?;
    assert_eq!(lab.stop().forward.counters.delivered.packets, 3);
    Ok(())
}

/// A path whose delay has changed by its schedule, while it was idle.
fn a_schedule_counts() -> Outcome {
    let mut path = path(4);
    let at = Duration::from_millis(20);
    let delay = Some(Duration::from_millis(9));
    let longer = Change { delay, ..Change::default() };
    path.back.schedule = Schedule::new(vec![(at, longer)], None);
    let lab = lab(&path)?;
    while lab.stats().elapsed <= at {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(lab.links()[1].delay, Duration::from_millis(9));
    // RED would take a round-trip time that is no longer the path's, so that neither direction is changed.
    assert!(set(&lab, &["forward.loss=50%", "back.queue=red"]).is_err());
    assert_eq!(lab.links()[0].loss, LossConfig::None);
    Ok(())
}

/// A path that holds far more than it was made for, with a frame in it at the change.
fn a_larger_path_gets_more_memory() -> Outcome {
    let lab = lab(&path(100))?;
    let (near, far) = (udp(&lab, Host::Near, false)?, udp(&lab, Host::Far, false)?);
    near.send_to(b"before", far.local_addr()?)?;
    set(&lab, &["rate=10gbit", "rtt=400ms"])?;
    let too_much =
        set(&lab, &["rtt=1h"]).expect_err("more than all memory").message().map(String::from);
    assert!(too_much.is_some_and(|message| message.contains("GiB")));
    for _ in 0..40 {
        near.send_to(&[7; 1000], far.local_addr()?)?;
    }
    let mut buffer = [0; 1000];
    assert_eq!(far.recv(&mut buffer)?, 6);
    assert_eq!(&buffer[..6], b"before");
    for _ in 0..40 {
        assert_eq!(far.recv(&mut buffer)?, 1000);
    }
    let report = lab.stop();
    assert!(adds_up(&report.forward), "{report}");
    Ok(())
}

fn samples_show_the_queue() -> Outcome {
    let slow = PathConfig::new(Rate::from_bits_per_sec(80_000), Duration::from_millis(2));
    let lab = lab(&slow.with_queue("20packets".parse()?))?;
    let (near, far) = (udp(&lab, Host::Near, false)?, udp(&lab, Host::Far, false)?);
    for _ in 0..30 {
        near.send_to(&[7; 972], far.local_addr()?)?;
    }
    while lab.stats().forward.counters.offered.packets < 30 {
        thread::sleep(Duration::from_millis(1));
    }
    let sample = lab.sample().forward;
    // A packet takes 100 ms, so that little has left of the 20 that wait.
    assert_eq!((sample.peak.packets, sample.peak.bytes), (20, Bytes(20_000)));
    assert_eq!(sample.queue_time[1], Duration::from_secs(2));
    assert!((1..=20).contains(&sample.queue.packets), "{sample:?}");
    let dropped = sample.report.counters.dropped(DropCause::Queue).packets;
    assert!((8..=9).contains(&dropped), "{sample:?}");
    let next = lab.sample().forward;
    assert!(next.peak.packets <= sample.queue.packets, "since the last sample: {next:?}");
    far.recv(&mut [0; 1000])?;
    Ok(())
}

/// A file that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("longhaul-test-{}-{name}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Packets, their bytes, and the times at which the first and the last crossed, of one way.
#[derive(Default)]
struct Seen {
    packets: u64,
    bytes: u64,
    times: Vec<Duration>,
}

/// What a capture says was sent and delivered; every packet of it has correct checksums.
fn read_capture(file: &Scratch) -> Result<[Seen; 2], Failed> {
    let mut reader = PcapNgReader::new(File::open(&file.0)?)?;
    let mut seen = [Seen::default(), Seen::default()];
    while let Some(block) = reader.next_block() {
        let Block::EnhancedPacket(packet) = block? else { continue };
        let sliced = SlicedPacket::from_ip(&packet.data)?;
        assert_eq!(packet.original_len as usize, packet.data.len());
        let Some(TransportSlice::Tcp(tcp)) = sliced.transport else { continue };
        let expected = match sliced.net {
            Some(NetSlice::Ipv4(ip)) => {
                let ip = ip.header();
                tcp.calc_checksum_ipv4(ip.source(), ip.destination())
            }?,
            Some(NetSlice::Ipv6(ip)) => {
                let ip = ip.header();
                tcp.calc_checksum_ipv6(ip.source(), ip.destination())
            }?,
            _ => return Err("no IP".into()),
        };
        assert_eq!(tcp.checksum(), expected);
        let sent = format!("{:?}", packet.options).contains("Flags(2)");
        let seen = &mut seen[usize::from(!sent)];
        seen.packets += 1;
        seen.bytes += packet.data.len() as u64;
        seen.times.push(packet.timestamp);
    }
    Ok(seen)
}

/// TCP over a lossy path: what is in the files is what the path's own counters say.
fn captures_hold_real_packets() -> Outcome {
    let (near_file, far_file) = (Scratch::new("near.pcapng"), Scratch::new("far.pcapng"));
    let lab = lab(&path(6).with_loss(0.01))?;
    let near = lab.capture(Host::Near, File::create(&near_file.0)?, 65_535)?;
    let far = lab.capture(Host::Far, File::create(&far_file.0)?, 65_535)?;
    let bytes = vec![7; 3_000_000];
    for address in [lab.address(Host::Far), lab.address6(Host::Far)] {
        assert!(transfer(&lab, address, &bytes)? == bytes, "as it was sent");
    }
    // A packet is captured before it is counted: none should be in between when all stops.
    thread::sleep(Duration::from_millis(100));
    let report = lab.stop();
    assert_eq!((near.finish()?, far.finish()?), (0, 0));
    let ([sent, back], [answers, arrived]) = (read_capture(&near_file)?, read_capture(&far_file)?);
    let [forward, backward] = [report.forward.counters, report.back.counters];
    // What is under way at the end has been sent and not delivered.
    for (seen, counted) in [
        (&sent, forward.offered),
        (&arrived, forward.delivered),
        (&answers, backward.offered),
        (&back, backward.delivered),
    ] {
        assert_eq!((seen.packets, seen.bytes), (counted.packets, counted.bytes.0), "{report}");
        assert!(seen.times.is_sorted());
    }
    assert!(forward.dropped(DropCause::Loss).packets > 0 && sent.packets > arrived.packets);
    // One clock for both sides: nothing arrives before the path's delay is over.
    assert!(arrived.times[0] >= sent.times[0] + Duration::from_millis(3));
    shark_agrees(&near_file, sent.packets + back.packets)
}

/// Wireshark's own reader finds as many packets, and no checksum wrong.
fn shark_agrees(file: &Scratch, packets: u64) -> Outcome {
    let checks = ["-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE"];
    let shark = Command::new("tshark")
        .args(["-r"])
        .arg(&file.0)
        .args(checks)
        .args(["-T", "fields", "-e", "frame.len", "-e", "_ws.expert.message"])
        .output();
    let output = match shark {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("SKIPPED: reading a capture with tshark, which is not installed");
            return Ok(());
        }
        output => output?,
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.lines().count() as u64, packets, "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!text.contains("hecksum"), "{text}");
    Ok(())
}

fn traces_hold_every_drop() -> Outcome {
    let file = Scratch::new("trace.csv");
    let lab = lab(&path(4).with_loss(0.05).with_queue("20packets".parse()?))?;
    let trace = lab.trace(File::create(&file.0)?, Duration::from_millis(5))?;
    let bytes = vec![7; 2_000_000];
    assert!(transfer(&lab, lab.address(Host::Far), &bytes)? == bytes, "as it was sent");
    let report = lab.stop();
    assert_eq!(trace.finish()?, 0);
    let text = fs::read_to_string(&file.0)?;
    let lines = |start: &str| text.lines().filter(|line| line.contains(start)).count() as u64;
    for cause in [DropCause::Loss, DropCause::Queue] {
        let dropped = report.forward.counters.dropped(cause).packets;
        assert_eq!(lines(&format!(",forward,drop:{},1,", cause.name())), dropped, "{cause:?}");
    }
    assert!(lines(",forward,drop:loss") > 0);
    let looks = report.elapsed.as_millis() as u64 / 5;
    assert!((1..=looks + 1).contains(&lines(",back,queue,")), "{looks}");
    assert!(lines(",forward,queue,") == lines(",back,queue,"));
    Ok(())
}

/// A host whose device is down takes nothing: the run is not faithful.
fn losses_outside_the_model_are_judged() -> Outcome {
    let lab = lab(&path(1))?;
    let (near, far) = (udp(&lab, Host::Near, false)?, udp(&lab, Host::Far, false)?);
    assert!(lab.verdict().is_faithful(), "{}", lab.verdict());
    match lab.command(Host::Far, "ip").args(["link", "set", "path", "down"]).status() {
        Ok(status) => assert!(status.success()),
        Err(_) => {
            eprintln!("SKIPPED: setting a device down, which needs iproute2");
            return Ok(());
        }
    }
    near.send_to(b"hello", far.local_addr()?)?;
    while lab.stats().forward.counters.delivered.packets == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    let lost = Fault::Lost { forward: true, packets: 1, place: LossPlace::Host };
    assert!(lab.verdict().faults.contains(&lost), "{}", lab.verdict());
    // A device that cannot be asked for its losses may have lost anything.
    let rename = ["link", "set", "path", "name", "gone"];
    assert!(lab.command(Host::Far, "ip").args(rename).status()?.success());
    let uncounted = Fault::Uncounted { forward: false };
    assert!(lab.verdict().faults.contains(&uncounted), "{}", lab.verdict());
    Ok(())
}

fn commands_end_with_their_thread() -> Outcome {
    let lab = lab(&path(1))?;
    let mut command = lab.command(Host::Near, "sleep");
    end_with_this_thread(command.arg("1000"));
    let mut child =
        thread::scope(|scope| scope.spawn(|| command.spawn()).join().expect("no panic"))?;
    assert_eq!(child.wait()?.signal(), Some(libc::SIGKILL));
    Ok(())
}

/// Nobody listens at the target: that is no loss outside of the model, and what comes later,
/// when somebody does, arrives.
pub fn a_relays_target_may_go_and_come() -> Outcome {
    let (target, client) = (loopback()?, loopback()?);
    let address = target.local_addr()?;
    let relay = Relay::start(&path(2), address)?;
    drop(target);
    for sent in 1..=5 {
        client.send_to(b"nobody", relay.address())?;
        while relay.stats().forward.counters.delivered.packets < sent {
            thread::sleep(Duration::from_millis(1));
        }
    }
    let target = UdpSocket::bind(address)?;
    target.set_read_timeout(Some(PATIENCE))?;
    client.send_to(b"somebody", relay.address())?;
    let (n, from) = target.recv_from(&mut [0; 20])?;
    target.send_to(&[0; 20][..n], from)?;
    assert_eq!(client.recv(&mut [0; 20])?, 8);
    let report = relay.stop();
    assert_eq!((report.forward.outside.total(), report.back.outside.total()), (0, 0), "{report}");
    Ok(())
}
