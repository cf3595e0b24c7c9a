//! Scenario files: the presets, what is read, and what is refused with its line.

use std::collections::BTreeSet;
use std::time::Duration;

use path::{Fate, Jitter, Limit, LossConfig, MAX_HOSTS, PRESETS, Preset, QueueConfig, Scenario};
use proptest::prelude::*;
use units::{Bytes, Instant, Rate};

#[test]
fn every_preset_loads_and_carries_packets() {
    for preset in PRESETS {
        let scenario = preset.scenario().unwrap_or_else(|error| panic!("{}: {error}", preset.name));
        assert!(scenario.about.len() <= 100 && !scenario.about.contains('\n'), "{}", preset.name);
        let (forward, back) = scenario.path.links::<u32>().expect("a preset is a path");
        for mut link in [forward, back] {
            let mut delivered = 0;
            for i in 0..1000 {
                let now = Instant::ZERO + Duration::from_millis(20) * i;
                link.send(now, Bytes(1000), i).expect("there is room for one packet in 20 ms");
                let due = link.next_exit().expect("it is under way");
                assert!(due <= now + Duration::from_secs(1));
                while let Some(exit) = link.poll(now) {
                    delivered += u32::from(exit.fate == Fate::Delivered);
                }
            }
            assert!(delivered > 800, "{}: {delivered}", preset.name);
        }
    }
}

#[test]
fn presets_are_the_files_in_the_folder() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let files: BTreeSet<String> = std::fs::read_dir(folder)
        .expect("the folder is part of the project")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    let listed = PRESETS.iter().map(|preset| preset.name.to_owned()).collect();
    assert_eq!(files, listed);
    assert!(Preset::find("wifi-edge").is_some() && Preset::find("wifi").is_none());
}

/// Figures that the presets are named after, worked out by hand.
#[test]
fn presets_have_their_figures() {
    let path = |name| Preset::find(name).expect("listed").scenario().expect("valid").path;
    // A trunk of 30 Mbit/s of cells carries 27.1 Mbit/s of payload (paper 2): 8192-byte segments
    // with 40 bytes of headers, 8 of LLC and SNAP and AAL5's 8 are 172 cells of 53 bytes.
    let trunk = path("gateway-atm").forward;
    assert_eq!(trunk.line_size(Bytes(8232)), Bytes(172 * 53));
    assert_eq!(path("xftp-t1").forward.rate.bytes_in(Duration::from_secs(1)), Bytes(192_000));
    assert_eq!(path("xftp-t1").rtt(), Duration::from_millis(560));
    assert_eq!(path("udtg-red-i").forward.queue.to_string(), "red-i:wait=yes");
    let handovers = path("leo-handovers");
    assert_eq!(handovers.forward.schedule.steps().len(), 4);
    assert_eq!(handovers.forward.schedule.steps()[0].0, Duration::ZERO);
}

#[test]
fn all_keys_are_understood() {
    let text = r#"
        about = "everything"
        seed = 7
        duration = "60s"
        rtt = "200ms"
        repeat = "1m"

        [both]
        rate = "1gbit"
        queue = "red-i:max_p=0.2,ecn=yes"
        framing = "38B"
        mtu = 1500
        icmp = false
        cell-loss = "1e-6"
        bit-error = 1e-9
        corrupt = "0.1%"
        silent = true
        duplicate = 0.01
        reorder = 0.02
        reorder-by = "3ms"
        jitter = "2ms"
        keep-order = false
        atm = true

        [back]
        loss = "gilbert-elliott:to_bad=0.01,to_good=0.3"
        delay = "30ms"
        rate-trace = """
        1
        2
        """

        [[near]]
        count = 3
        rate = "100mbit"
        delay = "1ms"
        queue = "100packets"

        [[change]]
        at = "10s"
        rtt = "100ms"
        forward = { rate = "500mbit", blackout = "1s", hold = "10ms" }
    "#;
    let scenario: Scenario = text.parse().expect("all keys are known");
    let Scenario { path, near, far, duration, .. } = &scenario;
    assert_eq!((path.seed, *duration), (7, Some(Duration::from_secs(60))));
    assert_eq!(path.forward.delay, Duration::from_millis(100));
    assert_eq!(path.back.delay, Duration::from_millis(30), "a direction's own delay counts");
    assert_eq!(path.back.rate, Rate::from_bits_per_sec(12_000_000));
    assert!(matches!(path.back.loss, LossConfig::GilbertElliott(_)));
    assert!(matches!(path.forward.queue, QueueConfig::RedI(red) if red.ecn && red.max_p == 0.2));
    let impairments = path.forward.impairments;
    assert_eq!((impairments.cell_loss, impairments.bit_error), (1e-6, 1e-9));
    assert_eq!(
        (impairments.corrupt, impairments.duplicate, impairments.reorder),
        (0.001, 0.01, 0.02)
    );
    assert_eq!(impairments.jitter, Jitter::Uniform(Duration::from_millis(2)));
    assert!(impairments.silent && !impairments.keep_order && path.forward.atm);
    assert_eq!((path.forward.mtu, path.forward.icmp), (Some(Bytes(1500)), false));
    assert_eq!(Scenario::hosts(near).count(), 3);
    assert_eq!(Scenario::hosts(far).count(), 1);
    let access = near[0].link().expect("it has a rate");
    assert_eq!(access.queue, QueueConfig::DropTail(Limit::Packets(100)));
    let (at, change) = &path.forward.schedule.steps()[0];
    assert_eq!((*at, change.delay), (Duration::from_secs(10), Some(Duration::from_millis(50))));
    assert_eq!(change.blackout, Some(Duration::from_secs(1)));
}

#[test]
fn faults_are_named_with_their_line() {
    let good = "about = \"x\"\nrtt = \"1ms\"\n";
    let many = format!("[[near]]\ncount = {}\n", MAX_HOSTS + 1);
    let cases = [
        ("both = { rate = \"1mbit\", speed = 3 }", 3, "unknown field `speed`"),
        ("[both]\nrate = \"1mbit\"\nloss = 2", 5, "probability"),
        ("[both]\nrate = \"fast\"", 4, "number"),
        ("[both]\nrate = \"1mbit\"\nqueue = \"rde\"", 5, "no queue"),
        ("[both]\nrate = \"1mbit\"\ndelay = 3", 5, "time"),
        ("[both]\nrate = \"1mbit\"\n[forward]\ndelay = \"2h\"", 5, "one-way delay"),
        ("[both]\nloss = 0.1", 3, "rate"),
        ("[forward]\nrate = \"1mbit\"", 1, "back: a link needs a rate"),
        // The other direction's part of the round-trip time is another then.
        (
            "both = { rate = \"1mbit\" }\n[[change]]\nat = \"2s\"\nforward = { queue = \"red\" }\n\
             [[change]]\nat = \"4s\"\nrtt = \"9ms\"",
            4,
            "min and max",
        ),
        ("[both]\nrate = \"1mbit\"\nhold = \"1s\"", 3, "[[change]]"),
        ("[both]\nrate = \"1mbit\"\nrate-trace-file = \"x\"", 3, "'x'"),
        ("[both]\nrate = \"1mbit\"\nloss = \"trace:012\"", 5, "0 (passed)"),
        ("both = { rate = \"1mbit\" }\n[[near]]\nqueue = \"1s\"", 4, "rate"),
        (
            "both = { rate = \"1mbit\" }\n[[change]]\nat = \"1s\"\nboth = { rate = \"0bit\" }",
            4,
            "rate",
        ),
        (
            "both = { rate = \"1mbit\" }\n[[change]]\nat = \"2s\"\n[[change]]\nat = \"1s\"\nback = { mtu = 9 }",
            6,
            "MTU",
        ),
        // Its delay is another when it comes again.
        (
            "both = { rate = \"1mbit\" }\nrepeat = \"9s\"\n[[change]]\nat = \"2s\"\n\
             forward = { queue = \"red\" }\n[[change]]\nat = \"4s\"\nforward = { delay = \"9ms\" }",
            5,
            "min and max",
        ),
        ("both = { rate = \"1mbit\" }\n[[change]]\nboth = { loss = 0.1 }", 4, "at"),
        (
            "both = { rate = \"1mbit\" }\nrepeat = \"1s\"\n[[change]]\nat = \"1s\"\nboth = { loss = 0.1 }",
            5,
            "repeats",
        ),
        ("both = { rate = \"1mbit\", queue = \"red:min=5packets,max=5packets\" }", 3, "threshold"),
        ("both = { rate = \"1mbit\"", 3, ""),
    ];
    for (text, line, why) in cases.into_iter().chain([("both = { rate = \"1mbit\" }\n", 0, "")]) {
        let whole = format!("{good}{text}");
        match whole.parse::<Scenario>() {
            Ok(_) => assert_eq!(line, 0, "{text}"),
            Err(error) => {
                let shown = error.to_string();
                assert_eq!(error.line, line, "{text}: {shown}");
                assert!(shown.contains(why), "{text}: {shown}");
            }
        }
    }
    let error = format!("{good}both = {{ rate = \"1mbit\" }}\n{many}").parse::<Scenario>();
    assert_eq!(error.unwrap_err().line, 4);
}

#[test]
fn files_are_read_by_the_caller() {
    let text = "about = \"x\"\n[both]\nrate-trace-file = \"a.trace\"\nloss-trace-file = \"b\"\n";
    let load = |name: &str| match name {
        "a.trace" => Ok("1\n2\n".to_owned()),
        "b" => Ok("0001".to_owned()),
        _ => Err(format!("no {name}")),
    };
    let scenario = Scenario::read(text, load).expect("both are there");
    assert_eq!(scenario.path.forward.rate, Rate::from_bits_per_sec(12_000_000));
    assert_eq!(scenario.path.back.loss.mean_loss(), 0.25);
    let error = Scenario::read(text, |_| Ok("x".into())).unwrap_err().to_string();
    assert!(error.contains("a.trace") && error.contains("line 1"), "{error}");
    // What a direction states for itself counts, in whichever way.
    let own = format!("{text}[back]\nrate-trace = \"2\\n\"\n");
    let scenario = Scenario::read(&own, load).expect("all are there");
    assert_eq!(scenario.path.forward.rate, Rate::from_bits_per_sec(12_000_000));
    assert_eq!(scenario.path.back.rate, Rate::from_bits_per_sec(6_000_000));
}

/// Text that is nearly a scenario: lines of presets, mixed and damaged.
fn nearly() -> impl Strategy<Value = String> {
    let lines: Vec<&str> = PRESETS.iter().flat_map(|preset| preset.source.lines()).collect();
    let line = (prop::sample::select(lines), any::<prop::sample::Index>(), any::<char>(), 0..4u8);
    let line = line.prop_map(|(line, place, sign, kind)| {
        let mut signs: Vec<char> = line.chars().collect();
        if kind == 0 && !signs.is_empty() {
            let place = place.index(signs.len());
            signs[place] = sign;
        }
        signs.into_iter().collect::<String>()
    });
    prop::collection::vec(line, 0..30).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn arbitrary_text_is_read_or_refused(text in any::<String>(), near in nearly()) {
        for text in [text, near] {
            match text.parse::<Scenario>() {
                Ok(scenario) => prop_assert!(scenario.path.links::<()>().is_ok()),
                Err(error) => prop_assert!((1..=text.lines().count() + 1).contains(&error.line)),
            }
        }
    }
}
