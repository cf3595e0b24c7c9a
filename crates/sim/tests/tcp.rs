//! The TCP models against closed forms, and against ns-2.

use std::time::Duration;

use sim::{Outcome, Study};

/// Runs a path with TCP flows, and measures from a time on.
fn run(path: &str, flow: &str, times: (u64, u64)) -> Outcome {
    run_with(path, flow, times, 1)
}

/// The same with a seed.
fn run_with(path: &str, flow: &str, (from, seconds): (u64, u64), seed: u64) -> Outcome {
    let text = format!(
        "about = \"a test\"\nduration = \"{seconds}s\"\n{path}\n[[flow]]\ntransport = \"tcp\"\n{flow}"
    );
    let mut study: Study = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
    study.measure_from = Duration::from_secs(from);
    study.path.seed = seed;
    study.trace = Some(Duration::from_millis(100));
    study.run()
}

/// A flow that acknowledges every segment, without options.
fn plain(recovery: &str, cc: &str) -> String {
    format!(
        "recovery = \"{recovery}\"\ncc = \"{cc}\"\nmss = 1460\ntimestamps = false\n\
         delayed-ack = \"none\"\nbyte-counting = false\n"
    )
}

#[track_caller]
fn assert_near(found: f64, expected: f64, share: f64) {
    let ratio = found / expected;
    assert!((ratio - 1.0).abs() <= share, "{found} instead of {expected}: {ratio:.3}");
}

#[test]
fn a_window_over_the_round_trip_time() {
    let path = "rtt = \"200ms\"\nboth = { rate = \"1gbit\" }";
    // Whole segments only: 16 of the 24 KiB.
    let found = run(path, &(plain("sack", "reno") + "window = \"24KiB\""), (2, 22)).goodput("");
    assert_near(found, 16.0 * 1460.0 * 8.0 / 0.2, 0.01);
    // Without scaling no more than 65,535 bytes can be told: 44 segments.
    let found = run(path, &(plain("sack", "reno") + "scaling = false"), (2, 22)).goodput("");
    assert_near(found, 44.0 * 1460.0 * 8.0 / 0.2, 0.01);
    // The sender's buffer limits alike.
    let buffer = "send-buffer = \"14600\"\nnagle = false";
    let found = run(path, &(plain("sack", "reno") + buffer), (2, 22)).goodput("");
    assert_near(found, 10.0 * 1460.0 * 8.0 / 0.2, 0.01);
}

#[test]
fn slow_start_doubles_each_round_trip() {
    let path = "rtt = \"100ms\"\nboth = { rate = \"10gbit\" }";
    let windows = |flow: &str| -> Vec<u64> {
        let outcome = run(path, &(plain("sack", "reno") + flow), (0, 1));
        outcome.samples.iter().map(|sample| sample.window_bytes / 1460).collect()
    };
    assert_eq!(windows("initial-window = 2")[1..9], [2, 4, 8, 16, 32, 64, 128, 256]);
    let end = "initial-window = 2\nssthresh = 46720";
    assert_eq!(windows(end)[1..9], [2, 4, 8, 16, 32, 32, 33, 34]);
}

/// Segments in flight on average over 100 ms at this loss: the mean of some seeds, for one may meet a tenth more
/// losses than another.
fn response(flow: &str, loss: f64) -> f64 {
    let path =
        format!("rtt = \"100ms\"\nboth = {{ rate = \"1gbit\" }}\nforward = {{ loss = {loss} }}");
    const SEEDS: u64 = 5;
    let goodputs = (1..=SEEDS).map(|seed| run_with(&path, flow, (20, 420), seed).goodput(""));
    goodputs.sum::<f64>() / SEEDS as f64 * 0.1 / 8.0 / 1460.0
}

#[test]
fn aimd_follows_mathis() {
    for loss in [0.001, 0.01] {
        for recovery in ["sack", "newreno"] {
            assert_near(response(&plain(recovery, "reno"), loss), (1.5 / loss).sqrt(), 0.12);
        }
        // An acknowledgement for two segments halves the increase, unless bytes are counted.
        let delayed = plain("sack", "reno").replace("none", "40ms");
        assert_near(response(&delayed, loss), (0.75 / loss).sqrt(), 0.12);
        let counted = delayed.replace("counting = false", "counting = true");
        assert_near(response(&counted, loss), (1.5 / loss).sqrt(), 0.12);
    }
}

#[test]
fn cubic_follows_its_response_function() {
    // RFC 9438, figure 5, which is for evenly spaced losses: random ones do a little better.
    let loss = 1e-4;
    let expected = (0.4f64 * 3.7 / 1.2).powf(0.25) * (0.1f64 / loss).powf(0.75);
    assert_near(response(&plain("sack", "cubic"), loss), expected * 1.1, 0.12);
    // At much loss it is Reno's.
    assert_near(response(&plain("sack", "cubic"), 0.01), (1.5f64 / 0.01).sqrt(), 0.15);
}

/// What ns-2 2.35 carried over 10 Mbit/s, 50 ms each way and 250 packets between the 20th second and the
/// 400th, what share of the packets it dropped, and how many waited: `xtask/src/bench/simulator/dumbbell.tcl`.
#[test]
fn as_ns2() {
    for (flows, recovery, queue, mbps, dropped, waiting) in [
        (1, "sack", "250packets", 9.73, 2.21e-5, 176.1),
        (1, "newreno", "250packets", 9.73, 2.21e-5, 176.0),
        (1, "reno", "250packets", 9.73, 2.21e-5, 176.0),
        (4, "sack", "250packets", 9.74, 3.44e-4, 179.8),
        (4, "sack", "red:min=50packets,max=150packets,limit=250packets", 9.70, 2.08e-3, 40.2),
        (
            4,
            "sack",
            "red:min=50packets,max=150packets,limit=250packets,wait=yes",
            9.73,
            1.465e-3,
            49.6,
        ),
        (
            4,
            "newreno",
            "red:min=50packets,max=150packets,limit=250packets,wait=yes",
            9.73,
            1.50e-3,
            49.4,
        ),
        (
            4,
            "sack",
            "red-i:min=50packets,max=150packets,limit=250packets,wait=yes",
            9.73,
            1.57e-3,
            47.3,
        ),
    ] {
        let path = format!(
            "rtt = \"100ms\"\nback = {{ rate = \"10mbit\", queue = \"100000packets\" }}\n\
             forward = {{ rate = \"10mbit\", queue = \"{queue}\" }}"
        );
        let plain = plain(recovery, "reno");
        let flow = format!("{plain}every = \"100ms\"\nmin-rto = \"1s\"\ncount = {flows}");
        let outcome = run(&path, &flow, (20, 400));
        assert_near(outcome.goodput("") / 1e6, mbps, 0.01);
        let lost = outcome.queue.dropped as f64 / outcome.queue.offered as f64;
        assert_near(lost, dropped, 0.1);
        assert_near(outcome.queue.mean_packets, waiting, 0.1);
    }
}

#[test]
fn documents_come_on_connections_of_their_own() {
    let path = "rtt = \"100ms\"\nboth = { rate = \"1gbit\" }";
    let http = "nagle = false\nsource = \"http:mean=2kB,shape=2.5,think=400ms\"";
    let outcome = run(path, &(plain("sack", "reno") + http), (0, 300));
    let documents = outcome.flows[0].documents;
    // A handshake and half a round trip, and hardly ever more: the first window has 14,600 bytes.
    assert_near(documents.mean_seconds(), 0.15, 0.03);
    assert_near(documents.count as f64, 300.0 / (0.15 + 0.4), 0.1);
    assert_near(outcome.flows[0].delivered_bytes as f64, documents.count as f64 * 2000.0, 0.15);
}

/// What is written while nothing is under way goes at once; what comes later waits for the acknowledgement, and goes together.
#[test]
fn nagle_gathers_messages_for_a_round_trip() {
    let path = "rtt = \"100ms\"\nboth = { rate = \"10mbit\" }\n";
    let messages = "delayed-ack = \"none\"\nsource = \"messages:size=100,every=10ms\"\n";
    let [usual, quiet] = ["", "nagle = false"]
        .map(|keys| run(path, &format!("{messages}{keys}"), (2, 62)).flows[0].clone());
    for flow in [&usual, &quiet] {
        assert_near(flow.documents.count as f64, 6000.0, 0.01);
    }
    // Half a round trip; and besides up to a whole one until the acknowledgement, half of one on average.
    assert_near(quiet.documents.mean_seconds(), 0.05, 0.01);
    assert_near(usual.documents.mean_seconds(), 0.05 + 0.045, 0.1);
    assert_near(quiet.sent as f64, 6000.0, 0.01);
    assert_near(usual.sent as f64, 600.0, 0.03);
    assert!(usual.documents.unfinished <= 15, "{usual:?}");
}

/// The last segment of a document bears the FIN and does not wait.
#[test]
fn nagle_holds_no_document_back() {
    let path = "rtt = \"100ms\"\nboth = { rate = \"10mbit\" }\n";
    let http = "source = \"http:mean=2kB,shape=2.5,think=400ms\"\n";
    let [usual, quiet] = ["", "nagle = false"]
        .map(|keys| run(path, &format!("{http}{keys}"), (0, 60)).flows[0].documents);
    assert!(usual.count > 50, "{usual:?}");
    assert_eq!(usual, quiet);
}

/// What arrived before the measured time is not counted in it.
#[test]
fn documents_of_before_the_measured_time_are_not_counted() {
    let path = "rtt = \"100ms\"\nboth = { rate = \"1gbit\" }";
    let http =
        plain("sack", "reno") + "nagle = false\nsource = \"http:mean=2kB,shape=2.5,think=400ms\"";
    let [all, late] = [0, 200].map(|from| run(path, &http, (from, 300)).flows[0].documents);
    assert_near(late.count as f64, all.count as f64 / 3.0, 0.15);
    assert_near(late.mean_seconds(), all.mean_seconds(), 0.05);
    assert!(late.unfinished == all.unfinished && late.unfinished <= 1);
}

#[test]
fn a_file_arrives_and_ends_its_flow() {
    let path = "rtt = \"100ms\"\nboth = { rate = \"10mbit\" }\nback = { loss = 0.05 }";
    let file = "[[flow]]\nsource = \"3MB\"\nfrom = \"far\"\nstart = \"1s\"\ncc = \"cubic\"";
    let outcome = run(path, &format!("source = \"1MB\"\n{file}"), (0, 60));
    let [tcp, ours] = &outcome.flows[..] else { panic!("two flows") };
    assert_eq!((tcp.delivered_bytes, ours.delivered_bytes), (1_000_000, 3_000_000));
    assert!(tcp.finished.is_some_and(|end| (0.8..3.0).contains(&end)), "{tcp:?}");
    assert!(ours.finished.is_some_and(|end| end > 3.4) && ours.line_losses > 20, "{ours:?}");
}

/// A parking lot: one flow over two bottlenecks, and one over each of them.
#[test]
fn flows_cross_several_links() {
    let path = "rtt = \"20ms\"\nboth = { rate = \"10mbit\" }\n[[link]]\nbetween = [\"far\", \"rome\"]\n\
                rate = \"10mbit\"\ndelay = \"30ms\"";
    let over = |from: &str, to: &str| {
        let flow = plain("sack", "reno");
        format!("between = [\"{from}\", \"{to}\"]\nname = \"{from}\"\n{flow}")
    };
    let long = run(path, &over("near", "rome"), (10, 60));
    // 20 ms of the path and 60 ms of the link, and nobody else.
    assert!(long.flows[0].rtt_least.is_some_and(|rtt| (0.08..0.1).contains(&rtt)), "{long:?}");
    assert_near(long.goodput(""), 10e6 * 1460.0 / 1500.0, 0.05);
    let one = format!("[[flow]]\ntransport = \"tcp\"\n{}", over("near", "far"));
    let other = format!("[[flow]]\ntransport = \"tcp\"\n{}", over("rome", "far"));
    let all = run(path, &format!("{}{one}{other}", over("near", "rome")), (10, 60));
    let [long, one, other] = &all.flows[..] else { panic!("three flows") };
    // Data of the last meets only acknowledgements on its link.
    assert_near(other.goodput_bps, 10e6 * 1460.0 / 1500.0, 0.06);
    assert!(long.goodput_bps < one.goodput_bps, "{all:?}");
    assert_near(long.goodput_bps + one.goodput_bps, 10e6 * 1460.0 / 1500.0, 0.06);
}

#[test]
fn wrong_flows_are_named_by_their_line() {
    let head = "about = \"x\"\nrtt = \"1ms\"\nboth = { rate = \"1mbit\", mtu = 1500 }\n";
    let error = |flow: &str| format!("{head}[[flow]]\n{flow}").parse::<Study>().unwrap_err();
    for (flow, part) in [
        ("transport = \"tcp\"\nmss = 1460", "mss = 1448"),
        ("transport = \"tcp\"\ncc = \"bbr\"", "reno, cubic"),
        ("window = 1", "transport = \"tcp\""),
        ("source = \"http\"", "transport = \"tcp\""),
        ("speed = 1", "speed"),
        ("start = \"2s\"\nstop = \"1s\"", "stops"),
        ("count = 0", "20000"),
        ("between = [\"near\", \"rome\"]", "rome"),
        ("between = [\"near\", \"near\"]", "no way"),
    ] {
        let error = error(flow);
        assert!(error.line >= 4 && error.to_string().contains(part), "{flow}: {error}");
    }
    // Without any flow there is one of ours.
    assert_eq!(head.parse::<Study>().unwrap().flows.len(), 1);
}

/// By the clock of the run.
#[test]
fn a_change_comes_at_its_time() {
    let change = "[[change]]\nat = \"5s\"\nboth = { blackout = \"2s\" }\n\
                  [[change]]\nat = \"20s\"\nforward = { rate = \"5mbit\" }\n";
    let path =
        "rtt = \"20ms\"\nboth = { rate = \"10mbit\", queue = \"20ms\" }\n".to_owned() + change;
    let outcome = run(&path, &plain("sack", "reno"), (0, 30));
    let rate = |from: f64, to: f64| {
        let within = |seconds: f64| seconds > from + 0.05 && seconds < to + 0.05;
        let samples = outcome.samples.iter().filter(|sample| within(sample.seconds));
        let rates: Vec<_> = samples.map(|sample| sample.goodput_bps / 1e6).collect();
        rates.iter().sum::<f64>() / rates.len() as f64
    };
    assert!(rate(4.0, 5.0) > 8.0, "{}", rate(4.0, 5.0));
    assert!(rate(5.1, 7.0) == 0.0, "{}", rate(5.1, 7.0));
    assert!(rate(19.0, 20.0) > 8.0, "{}", rate(19.0, 20.0));
    assert!((4.0..5.0).contains(&rate(21.0, 29.0)), "{}", rate(21.0, 29.0));
}

#[test]
fn duplicates_and_damage_reach_the_ends() {
    let path = "rtt = \"20ms\"\nboth = { rate = \"10mbit\", queue = \"100packets\" }\n";
    let sent_twice = format!("{path}forward = {{ duplicate = 0.5 }}");
    let outcome = run(&sent_twice, &(plain("sack", "reno") + "window = \"20KiB\""), (0, 20));
    // Each that arrives is acknowledged, the second time too.
    assert_near(outcome.packets as f64, 2.5 * outcome.flows[0].sent as f64, 0.03);
    // The damaged go all the way, and cost the far host time, but nothing answers them.
    let busy = format!(
        "{path}forward = {{ corrupt = 0.2, silent = true }}\n[[far]]\nper-packet = \"1us\""
    );
    let outcome = run(&busy, &plain("sack", "reno"), (0, 20));
    let (sent, damaged) = (outcome.flows[0].sent as f64, outcome.flows[0].line_losses as f64);
    assert_near(damaged, 0.2 * sent, 0.3);
    assert_near(outcome.packets as f64, 2.0 * sent + 2.0 * (sent - damaged), 0.02);
    let damaged = format!("{path}forward = {{ corrupt = 0.01, silent = true }}");
    let tcp = format!("transport = \"tcp\"\n{}", plain("sack", "reno"));
    for flow in [tcp, "transport = \"longhaul\"\n".to_owned()] {
        let text = format!("about = \"a test\"\nduration = \"20s\"\n{damaged}\n[[flow]]\n{flow}");
        let study: Study = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
        let flow = &study.run().flows[0];
        assert!(flow.delivered_bytes > 1_000_000);
        assert_near(flow.line_losses as f64, 0.01 * flow.sent as f64, 0.3);
    }
}
