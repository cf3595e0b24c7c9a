//! UDT does what its authors' own ns-2 model does: 100 Mbit/s, round trip 100 ms, a drop-tail
//! queue of 1000 packets. Figures are Mbit/s as on the line, the start included.

use path::{Limit, PathConfig, QueueConfig};
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
