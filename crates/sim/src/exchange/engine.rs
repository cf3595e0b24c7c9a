//! The processes, the network between them, and what happens next.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;
use units::Instant;

use super::receiver::Receiver;
use super::transmitter::{Report, Transmitter};
use super::{Exchange, Exchanged, Method};
use crate::random::uniform;

/// The share of a run that is not counted.
const WARM_UP: u32 = 10;

/// The four processes of the transmitter, then those of the receiver, by the paper's names.
#[derive(Clone, Copy, Debug)]
enum Process {
    HostTrans,
    Trans,
    GetRcvStat,
    SendTransStat,
    Rcv,
    HostRcv,
    SendRcvStat,
    GetTransStat,
}

/// What processes work on and the network carries.
#[derive(Debug)]
enum Packet {
    Data(u64),
    /// A packet arrived, and those below the second number may come.
    Ack(u64, u64),
    /// The receiver's state; none before it is made.
    State(Option<Box<Report>>),
    /// The transmitter's, of which the receiver's model makes no use.
    TransState,
}

#[derive(Debug)]
enum Event {
    /// The session has another packet.
    Arrival,
    Done(Process),
    /// A packet reaches the end at which this process is.
    Reaches(Process, Packet),
    /// The receiver, or the transmitter, is to send its state.
    Receiver,
    Transmitter,
    /// The nth timer of a packet.
    Expires(u64, u32),
}

/// Queues by their priority, and what is being done.
#[derive(Debug, Default)]
struct Machine {
    control: VecDeque<Packet>,
    again: VecDeque<Packet>,
    fresh: VecDeque<Packet>,
    current: Option<Packet>,
}

impl Machine {
    fn next(&mut self) -> Option<Packet> {
        let queues = [&mut self.control, &mut self.again, &mut self.fresh];
        queues.into_iter().find_map(VecDeque::pop_front)
    }
}

pub(super) struct Engine {
    setup: Exchange,
    now: Instant,
    /// What is to happen, by time, then in the order in which it was planned.
    agenda: BTreeMap<(Instant, u64), Event>,
    planned: u64,
    machines: [Machine; 8],
    /// Packets of the session that the window has no room for.
    backlog: u64,
    transmitter: Transmitter,
    receiver: Receiver,
    /// Reports made so far.
    reports: u64,
    /// What the session draws from, so that the same packets come whatever becomes of them.
    session: Pcg64Mcg,
    /// What the network draws from.
    network: Pcg64Mcg,
    count: Exchanged,
}

impl Engine {
    pub(super) fn new(setup: &Exchange, seed: u64) -> Self {
        let mut engine = Self {
            setup: *setup,
            now: Instant::ZERO,
            agenda: BTreeMap::new(),
            planned: 0,
            machines: Default::default(),
            backlog: 0,
            transmitter: Transmitter::new(setup.window),
            receiver: Receiver::new(setup.window),
            reports: 0,
            session: Pcg64Mcg::seed_from_u64(seed),
            network: Pcg64Mcg::seed_from_u64(!seed),
            count: Exchanged::default(),
        };
        engine.plan(Duration::ZERO, Event::Arrival);
        if let Method::Periodic(interval) = setup.method {
            engine.plan(interval, Event::Receiver);
            engine.plan(interval, Event::Transmitter);
        }
        engine
    }

    pub(super) fn run(mut self) -> Exchanged {
        let end = Instant::ZERO + self.setup.duration;
        let from = Instant::ZERO + self.setup.duration / WARM_UP;
        let mut before = None;
        while let Some(((at, _), event)) = self.agenda.pop_first()
            && at <= end
        {
            if at >= from && before.is_none() {
                before = Some(self.standing(from));
            }
            self.now = at;
            self.happen(event);
        }
        self.standing(end).since(&before.unwrap_or_default())
    }

    fn standing(&self, at: Instant) -> Exchanged {
        let seconds = at.since(Instant::ZERO).as_secs_f64();
        Exchanged { seconds, delivered: self.receiver.lower(), ..self.count }
    }

    fn plan(&mut self, after: Duration, event: Event) {
        self.planned += 1;
        self.agenda.insert((self.now + after, self.planned), event);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrival => {
                self.backlog += 1;
                let gap = self.setup.interarrival.mul_f64(-uniform(&mut self.session).ln());
                self.plan(gap, Event::Arrival);
                self.poke(Process::HostTrans);
            }
            Event::Done(process) => {
                if let Some(packet) = self.machines[process as usize].current.take() {
                    self.done(process, packet);
                }
                self.poke(process);
            }
            Event::Reaches(process, packet) => self.hand(process, packet),
            Event::Receiver => {
                self.hand(Process::SendRcvStat, Packet::State(None));
                // Later under load, so that nothing is sent again because it waits at the receiver.
                let Method::Periodic(interval) = self.setup.method else { return };
                let waiting = self.machines[Process::Rcv as usize].fresh.len() as u32;
                self.plan(interval + self.setup.processing * waiting, Event::Receiver);
            }
            Event::Transmitter => {
                self.hand(Process::SendTransStat, Packet::TransState);
                let Method::Periodic(interval) = self.setup.method else { return };
                self.plan(interval, Event::Transmitter);
            }
            Event::Expires(serial, number) => {
                let entry = self.transmitter.entry(serial);
                let Some(entry) = entry.filter(|entry| entry.timers == number) else { return };
                // What waits to be sent is not to be sent again: only its timer starts anew.
                if !core::mem::replace(&mut entry.queued, true) {
                    self.again(serial);
                }
                self.start_timer(serial, !self.setup.timed_when_sent);
            }
        }
    }

    /// Puts a packet into a process's queue.
    fn hand(&mut self, process: Process, packet: Packet) {
        self.machines[process as usize].fresh.push_back(packet);
        self.poke(process);
    }

    /// Starts a packet's timer, if it is `now` that it is to be and not another time.
    fn start_timer(&mut self, serial: u64, now: bool) {
        if !now || self.setup.method != Method::PositiveAck {
            return;
        }
        if let Some(entry) = self.transmitter.entry(serial) {
            entry.timers += 1;
            let number = entry.timers;
            self.plan(self.setup.timeout, Event::Expires(serial, number));
        }
    }

    fn again(&mut self, serial: u64) {
        self.machines[Process::Trans as usize].again.push_back(Packet::Data(serial));
        self.poke(Process::Trans);
    }

    /// Lets an idle process begin with what waits.
    fn poke(&mut self, process: Process) {
        if self.machines[process as usize].current.is_some() {
            return;
        }
        let next = match process {
            Process::HostTrans => {
                let admitted = self.backlog > 0 && self.transmitter.admits();
                admitted.then(|| {
                    self.backlog -= 1;
                    Packet::Data(self.transmitter.accept())
                })
            }
            Process::Trans => loop {
                match self.machines[process as usize].next() {
                    // Acknowledged while it waited.
                    Some(Packet::Data(serial)) if self.transmitter.entry(serial).is_none() => {}
                    next => break next,
                }
            },
            _ => self.machines[process as usize].next(),
        };
        if next.is_some() {
            self.machines[process as usize].current = next;
            self.plan(self.setup.processing, Event::Done(process));
        }
    }

    /// A process has done its work on a packet.
    fn done(&mut self, process: Process, packet: Packet) {
        match (process, packet) {
            (Process::HostTrans, Packet::Data(serial)) => {
                self.start_timer(serial, !self.setup.timed_when_sent);
                self.hand(Process::Trans, Packet::Data(serial));
            }
            (Process::SendTransStat, packet) => {
                self.machines[Process::Trans as usize].control.push_back(packet);
                self.poke(Process::Trans);
            }
            (Process::Trans, Packet::Data(serial)) => self.sent(serial),
            (Process::Trans, packet) => self.carry(Process::GetTransStat, packet),
            (Process::Rcv, Packet::Data(serial)) => {
                let acked = self.setup.method == Method::PositiveAck;
                if self.receiver.take(serial) {
                    self.hand(Process::HostRcv, Packet::Data(serial));
                }
                if acked {
                    self.hand(Process::SendRcvStat, Packet::Ack(serial, 0));
                }
            }
            (Process::HostRcv, Packet::Data(serial)) => self.receiver.give(serial),
            (Process::SendRcvStat, Packet::Ack(serial, _)) => {
                let upper = self.receiver.upper();
                self.carry(Process::GetRcvStat, Packet::Ack(serial, upper));
            }
            (Process::SendRcvStat, _) => {
                self.reports += 1;
                let (number, lower) = (self.reports, self.receiver.lower());
                let report = Report { number, lower, arrived: self.receiver.arrived() };
                self.carry(Process::GetRcvStat, Packet::State(Some(Box::new(report))));
            }
            (Process::GetRcvStat, Packet::Ack(serial, upper)) => {
                self.transmitter.on_ack(serial, upper);
                self.poke(Process::HostTrans);
            }
            (Process::GetRcvStat, Packet::State(Some(report))) => {
                let again = self.transmitter.on_report(&report);
                again.into_iter().for_each(|serial| self.again(serial));
                self.poke(Process::HostTrans);
            }
            _ => {}
        }
    }

    /// trans has sent a packet.
    fn sent(&mut self, serial: u64) {
        let Exchange { method, timeout, .. } = self.setup;
        if let Some(entry) = self.transmitter.entry(serial) {
            entry.queued = false;
            entry.transmissions += 1;
            let transmissions = entry.transmissions;
            if let Method::Periodic(interval) = method {
                let reports = timeout.as_secs_f64() / interval.as_secs_f64();
                entry.reports = (reports.round() as u64).max(1);
            }
            self.start_timer(serial, self.setup.timed_when_sent);
            *(if transmissions == 1 { &mut self.count.sent } else { &mut self.count.again }) += 1;
        }
        self.carry(Process::Rcv, Packet::Data(serial));
    }

    /// The network loses a packet, or takes it to the end at which `process` is.
    fn carry(&mut self, process: Process, packet: Packet) {
        let control = !matches!(packet, Packet::Data(_));
        self.count.control += u64::from(control);
        let Exchange { error, control_loss, .. } = self.setup;
        let lost = uniform(&mut self.network) <= error
            || control && uniform(&mut self.network) <= control_loss;
        if !lost {
            let time = self.setup.transit(&mut self.network);
            self.plan(time, Event::Reaches(process, packet));
        }
    }
}

impl Exchange {
    /// How long the network takes for a packet: T = N [S + W].
    fn transit(&self, random: &mut Pcg64Mcg) -> Duration {
        let Self { delay, hops, service, .. } = *self;
        // N is geometric from 1 on; of what a hop takes on average, S is one share and the mean of W the other.
        let more = if hops > 1.0 { uniform(random).ln() / (1.0 - 1.0 / hops).ln() } else { 0.0 };
        let hop = service - (1.0 - service) * uniform(random).ln();
        delay.mul_f64((1.0 + more.floor()) / hops * hop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_law_of_the_network_has_its_mean_and_its_least() {
        for (hops, service) in [(1.0, 0.9), (4.0, 0.9), (4.0, 0.5), (8.0, 0.0)] {
            let setup = Exchange { hops, service, ..Exchange::default() };
            let mut random = Pcg64Mcg::seed_from_u64(1);
            let times: Vec<f64> = (0..200_000)
                .map(|_| setup.transit(&mut random).as_secs_f64() / setup.delay.as_secs_f64())
                .collect();
            let mean = times.iter().sum::<f64>() / times.len() as f64;
            assert!((mean - 1.0).abs() < 0.01, "{hops} {service}: {mean}");
            // One hop that waits for nothing.
            let least = times.iter().copied().fold(f64::MAX, f64::min);
            assert!((least - service / hops).abs() < 1e-3, "{hops} {service}: {least}");
        }
    }

    /// The second queue is for packets that were sent and not acknowledged, the third for those that were not.
    #[test]
    fn a_packet_waits_to_be_sent_in_one_place() {
        for method in [Method::PositiveAck, Method::Periodic(Duration::from_millis(5))] {
            let (timeout, processing) = (Duration::from_millis(20), Duration::from_micros(100));
            let setup = Exchange { method, timeout, processing, ..Exchange::default() };
            let mut engine = Engine::new(&setup, 1);
            while let Some(((at, _), event)) = engine.agenda.pop_first()
                && at < Instant::ZERO + Duration::from_secs(1)
            {
                let expired = matches!(event, Event::Expires(..));
                engine.now = at;
                engine.happen(event);
                if !expired && method == Method::PositiveAck {
                    continue;
                }
                let trans = &engine.machines[Process::Trans as usize];
                let waiting = trans.again.iter().chain(&trans.fresh).chain(&trans.current);
                let mut serials: Vec<u64> = waiting
                    .filter_map(|packet| match packet {
                        Packet::Data(serial) => Some(*serial),
                        _ => None,
                    })
                    .collect();
                let count = serials.len();
                serials.sort_unstable();
                serials.dedup();
                assert_eq!(serials.len(), count, "{method:?} at {at:?}");
            }
            assert!(engine.count.again > 0, "{method:?}");
        }
    }
}
