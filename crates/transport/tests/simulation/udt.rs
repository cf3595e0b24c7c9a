//! UDT does what its authors' own ns-2 model does: 100 Mbit/s, round trip 100 ms, a drop-tail
//! queue of 1000 packets. Figures are Mbit/s as on the line, the start included.

use path::{Limit, PathConfig, QueueConfig};
use sim::Study;
use transport::cc::Algorithm;

use crate::dumbbell::{flow, line_rates, share};
use crate::{mbit, ms};

fn rates(algorithms: &[Algorithm]) -> Vec<f64> {
    let queue = QueueConfig::DropTail(Limit::Packets(1000));
    let path = PathConfig::new(mbit(100), ms(100)).with_queue(queue);
    let flows: Vec<_> = algorithms.iter().map(|&congestion| flow(congestion, 0)).collect();
    line_rates(&mut share(&path, &flows), ms(100_000))
}

#[test]
fn alone_and_in_pairs_it_gets_what_the_authors_model_gets() {
    use Algorithm::{Udt, UdtG};
    for (flows, model) in [(&[Udt][..], 98.4), (&[Udt, Udt], 48.35), (&[UdtG, UdtG], 48.35)] {
        let rates = rates(flows);
        let sum = rates.iter().sum::<f64>() / (model * flows.len() as f64);
        assert!((sum - 1.0).abs() < 0.05, "{flows:?}: {rates:.1?} Mbit/s, in the model {model}");
        // Which of two loses more in the first, common overflow is chance.
        let equal = rates.iter().all(|rate| (rate / model - 1.0).abs() < 0.15);
        assert!(equal, "{flows:?}: {rates:.1?} Mbit/s, in the model {model}");
    }
}

/// Payload and size of a full packet, of UDT and of TCP.
const PACKETS: [(&str, f64); 2] = [("udt", 1500.0 / 1440.0), ("tcp", 1500.0 / 1460.0)];
/// RED's thresholds as paper 4 has them, half the path's product and all of it: the model's are not
/// told.
const RED: &str = "red:min=416packets,max=833packets,limit=1000packets";

/// Medians of five seeds of what each flow gets in 100 s.
fn medians(queue: &str, udt: usize, tcp: bool) -> Vec<f64> {
    let mut scenario = format!(
        "about = \"UDT\"\nrtt = \"100ms\"\nduration = \"100s\"\n\
         forward = {{ rate = \"100mbit\", queue = \"{queue}\" }}\n\
         back = {{ rate = \"100mbit\", queue = \"100000packets\" }}\n\
         [[flow]]\nname = \"udt\"\ncount = {udt}\ncc = \"udt\"\n"
    );
    if tcp {
        scenario += "[[flow]]\nname = \"tcp\"\ntransport = \"tcp\"\nrecovery = \"sack\"\ncc = \"reno\"\n\
                     mss = 1460\ntimestamps = false\ndelayed-ack = \"none\"\n";
    }
    let study: Study = scenario.parse().expect("a scenario");
    let runs: Vec<Vec<f64>> = (1..=5)
        .map(|seed| {
            let mut study = study.clone();
            study.path.seed = seed;
            let line = |flow: &sim::FlowReport| {
                let packet = PACKETS.iter().find(|packet| flow.name.starts_with(packet.0));
                flow.delivered_bytes as f64 * 8e-8 * packet.expect("one of the two").1
            };
            study.run().flows.iter().map(line).collect()
        })
        .collect();
    (0..runs[0].len())
        .map(|flow| {
            let mut rates: Vec<f64> = runs.iter().map(|run| run[flow]).collect();
            rates.sort_by(f64::total_cmp);
            rates[2]
        })
        .collect()
}

#[test]
fn four_share_a_red_queue_as_in_the_authors_model() {
    let rates = medians(RED, 4, false);
    let sum = rates.iter().sum::<f64>();
    assert!((sum / 98.0 - 1.0).abs() < 0.05, "{rates:.1?} Mbit/s, in the model 24.5 each");
    let equal = rates.iter().all(|rate| (rate / 24.5 - 1.0).abs() < 0.15);
    assert!(equal, "{rates:.1?} Mbit/s, in the model 24.5 each");
}

/// Beside TCP both fill the link together as they do in the model, and UDT has the larger part. How much larger
/// does not agree: 81 to 13 Mbit/s with drop-tail and 83 to 10 with RED, where the model has 64.8 to 31.7
/// and 67.4 to 26.3. It grows with the time that is looked at: after 20 s it is 67 to 20 here,
/// after 50 s 77 to 14, and how long the model ran is not told.
#[test]
fn beside_tcp_it_fills_the_link_as_in_the_authors_model_and_takes_more_of_it() {
    for (queue, model) in [("1000packets", [64.8, 31.7]), (RED, [67.4, 26.3])] {
        let rates = medians(queue, 1, true);
        let share = rates.iter().sum::<f64>() / model.iter().sum::<f64>();
        assert!((share - 1.0).abs() < 0.05, "{queue}: {rates:.1?} Mbit/s, in the model {model:?}");
        // Not the model's, but no further from them than is told above.
        let told = (76.0..88.0).contains(&rates[0]) && (8.0..16.0).contains(&rates[1]);
        assert!(told, "{queue}: {rates:.1?} Mbit/s");
    }
}
