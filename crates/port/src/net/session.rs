//! One direction between two sites: order, at most once, repair of loss, and when the other is dead. No clock, thread
//! or socket is in here: events go in with their time, and the datagrams to send come out.
//!
//! A message is cut into units, each with a number. The receiver takes units in order, keeps a bounded number that came
//! early, and says what it has. The sender sends again what seems lost: three later ones arrived, or time passed.
//!
//! O1. A unit's number never changes and is never used for another. The receiver passes a number once, in order: so
//!     whatever the network repeats or reorders, a message comes at most once and in order.
//! O2. Nothing is given to another session. When one ends, what was not acknowledged may or may not have arrived.
//! O3. At most `WINDOW` units are under way, so the receiver never needs to keep more.
//! O4. The peer is dead if it was silent for `dead_after` although an answer was due. An idle sender asks four times
//!     in that time, so that an answer is always due.

use super::wire::{DATA_HEADER_BYTES, FIRST, LAST, UNIT_HEADER_BYTES, Unit, put_unit, take_u64, take_unit};
use std::collections::{BTreeMap, VecDeque};

/// Units under way.
pub(crate) const WINDOW: u64 = 2048;
/// Units under way at first, at least, and how many more for each window that arrives whole.
const CONGESTION_FIRST: u64 = 128;
const CONGESTION_MIN: u64 = 16;
const RESEND_NS_MIN: u64 = 3_000_000;
const RESEND_NS_MAX: u64 = 500_000_000;
/// Later units that arrived before one is taken for lost.
const OVERTAKEN_BY: u64 = 3;
/// The longest message between sites.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 << 20;

struct Flying {
    unit: Unit,
    sent_ns: u64,
    sent_count: u32,
    has_arrived: bool,
    /// Its first sending was a multicast's.
    by_multicast: bool,
}

/// Multicasts in a row that did not reach a site before it is sent datagrams of its own, and how many of those go
/// before a multicast is tried again.
const MULTICASTS_LOST_MAX: u32 = 8;
const MULTICAST_AGAIN_AFTER: u32 = 1024;

/// The sending end.
pub(crate) struct Outgoing {
    dead_after_ns: u64,
    body_bytes_max: usize,
    waiting: VecDeque<Unit>,
    waiting_bytes: usize,
    /// Units from number `first` on.
    flying: VecDeque<Flying>,
    first: u64,
    /// Above the highest number that arrived.
    arrived_end: u64,
    congestion: u64,
    grown: u64,
    /// Numbers below this were under way when loss was last answered.
    loss_answered_to: u64,
    round_trip_ns: u64,
    variation_ns: u64,
    heard_ns: u64,
    asked_ns: u64,
    /// No unit is due to be sent again before this; found by looking at all of them, so it is kept.
    resend_ns: u64,
    /// The last acknowledgement had gaps: units may have been overtaken.
    has_gaps: bool,
    /// Multicasts that had to be sent again, in a row, and messages since that were not multicast therefore.
    multicasts_lost: u32,
    multicasts_omitted: u32,
}

/// How an outgoing session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Alive,
    Dead,
}

impl Outgoing {
    pub(crate) fn new(now_ns: u64, dead_after_ns: u64, body_bytes_max: usize) -> Outgoing {
        Outgoing {
            dead_after_ns,
            body_bytes_max,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            flying: VecDeque::new(),
            first: 0,
            arrived_end: 0,
            congestion: CONGESTION_FIRST,
            grown: 0,
            loss_answered_to: 0,
            round_trip_ns: 0,
            variation_ns: 0,
            heard_ns: now_ns,
            asked_ns: now_ns,
            resend_ns: u64::MAX,
            has_gaps: false,
            multicasts_lost: 0,
            multicasts_omitted: 0,
        }
    }

    /// The longest payload of a unit in bodies of that length.
    pub(crate) fn unit_bytes_of(body_bytes_max: usize) -> usize {
        body_bytes_max - DATA_HEADER_BYTES - UNIT_HEADER_BYTES
    }

    pub(crate) fn submit(&mut self, unit: Unit) {
        self.waiting_bytes += unit.bytes.len() + UNIT_HEADER_BYTES;
        self.waiting.push_back(unit);
    }

    /// Bytes that were submitted and not sent yet.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.waiting.is_empty() && self.flying.is_empty()
    }

    /// An acknowledgement came. `false` if it is none.
    pub(crate) fn acknowledged(&mut self, now_ns: u64, mut body: &[u8]) -> bool {
        let (Some(below), Some(bits)) = (take_u64(&mut body), take_u64(&mut body)) else { return false };
        if below > self.first + self.flying.len() as u64 {
            return false;
        }
        self.heard_ns = now_ns;
        if below < self.first {
            return true; // An old one; what it says is known.
        }
        while self.first < below {
            let Some(flying) = self.flying.pop_front() else { break };
            self.first += 1;
            if !flying.has_arrived {
                self.arrived(now_ns, &flying);
            }
        }
        self.arrived_end = self.arrived_end.max(below);
        self.has_gaps = bits != 0;
        for bit in (0..64).filter(|bit| bits >> bit & 1 == 1) {
            let number = below + 1 + bit;
            let Some(flying) = self.flying.get_mut((number - self.first) as usize) else { break };
            if !flying.has_arrived {
                flying.has_arrived = true;
                let flying = Flying { unit: Unit { flags: 0, bytes: Vec::new() }, ..*flying };
                self.arrived(now_ns, &flying);
                self.arrived_end = self.arrived_end.max(number + 1);
            }
        }
        true
    }

    fn arrived(&mut self, now_ns: u64, flying: &Flying) {
        if flying.sent_count == 1 {
            if flying.by_multicast {
                self.multicasts_lost = 0;
            }
            let sample = now_ns.saturating_sub(flying.sent_ns);
            if self.round_trip_ns == 0 {
                (self.round_trip_ns, self.variation_ns) = (sample, sample / 2);
            } else {
                self.variation_ns = (3 * self.variation_ns + self.round_trip_ns.abs_diff(sample)) / 4;
                self.round_trip_ns = (7 * self.round_trip_ns + sample) / 8;
            }
        }
        self.grown += 4;
        if self.grown >= self.congestion {
            self.grown = 0;
            self.congestion = (self.congestion + self.congestion / 8 + 1).min(WINDOW);
        }
    }

    fn resend_after_ns(&self, sent_count: u32) -> u64 {
        let base = (self.round_trip_ns + 4 * self.variation_ns).clamp(RESEND_NS_MIN, RESEND_NS_MAX);
        (base << sent_count.saturating_sub(1).min(8)).min(RESEND_NS_MAX)
    }

    /// What is to be sent now, as bodies of data datagrams.
    ///
    /// New units go out at once if nothing is under way. Otherwise they are gathered until a datagram is full or
    /// something has arrived, unless `flush`. So a lone message is not delayed, and many share one datagram.
    pub(crate) fn bodies(&mut self, now_ns: u64, flush: bool) -> Vec<Vec<u8>> {
        let mut bodies = Bodies { bytes_max: self.body_bytes_max, done: Vec::new(), open: None };
        if self.has_gaps || now_ns >= self.resend_ns {
            self.bodies_again(now_ns, &mut bodies);
        }
        while (self.flying.len() as u64) < self.congestion.min(WINDOW) {
            let is_worth_it = flush
                || self.flying.is_empty()
                || self.waiting_bytes + DATA_HEADER_BYTES >= self.body_bytes_max
                || bodies.has_any();
            if !is_worth_it {
                break;
            }
            let Some(unit) = self.waiting.pop_front() else { break };
            self.waiting_bytes -= unit.bytes.len() + UNIT_HEADER_BYTES;
            let number = self.first + self.flying.len() as u64;
            bodies.put(number, &unit);
            self.fly(now_ns, unit, false);
        }
        if bodies.has_any() {
            self.asked_ns = now_ns;
        } else if now_ns.saturating_sub(self.asked_ns) >= self.dead_after_ns / 4 {
            // O4: ask, with the number that would come next.
            self.asked_ns = now_ns;
            let number = self.first + self.flying.len() as u64;
            return vec![number.to_le_bytes().to_vec()];
        }
        bodies.finish()
    }

    fn fly(&mut self, now_ns: u64, unit: Unit, by_multicast: bool) {
        self.flying.push_back(Flying { unit, sent_ns: now_ns, sent_count: 1, has_arrived: false, by_multicast });
        self.resend_ns = self.resend_ns.min(now_ns + self.resend_after_ns(1));
    }

    /// Takes a unit that a multicast brings to the site now, and gives it its number. `None`: the unit is to be
    /// submitted, because others wait before it, or because multicasts do not get there.
    pub(crate) fn multicast(&mut self, now_ns: u64, unit: Unit) -> Option<u64> {
        if !self.waiting.is_empty() || self.flying.len() as u64 >= self.congestion.min(WINDOW) {
            return None;
        }
        if self.multicasts_lost >= MULTICASTS_LOST_MAX {
            self.multicasts_omitted += 1;
            if self.multicasts_omitted < MULTICAST_AGAIN_AFTER {
                return None;
            }
            (self.multicasts_omitted, self.multicasts_lost) = (0, MULTICASTS_LOST_MAX - 1);
        }
        let number = self.first + self.flying.len() as u64;
        self.fly(now_ns, unit, true);
        Some(number)
    }

    /// Units that seem lost.
    fn bodies_again(&mut self, now_ns: u64, bodies: &mut Bodies) {
        let mut is_loss = false;
        self.has_gaps = false;
        self.resend_ns = u64::MAX;
        // So many at a time that repair cannot itself flood the network.
        let mut budget = self.congestion;
        for index in 0..self.flying.len() {
            let number = self.first + index as u64;
            let after = self.resend_after_ns(self.flying[index].sent_count);
            let smoothed = self.round_trip_ns + self.round_trip_ns / 4;
            let flying = &mut self.flying[index];
            if flying.has_arrived {
                continue;
            }
            let age = now_ns.saturating_sub(flying.sent_ns);
            let is_overtaken = number + OVERTAKEN_BY < self.arrived_end && age > smoothed.max(RESEND_NS_MIN / 4);
            if (is_overtaken || age >= after) && budget > 0 {
                budget -= 1;
                self.multicasts_lost += u32::from(flying.by_multicast && flying.sent_count == 1);
                flying.sent_ns = now_ns;
                flying.sent_count += 1;
                is_loss |= number >= self.loss_answered_to;
                bodies.put(number, &flying.unit);
            }
            let sent_ns = flying.sent_ns;
            let due_ns = sent_ns + self.resend_after_ns(self.flying[index].sent_count);
            self.resend_ns = self.resend_ns.min(due_ns);
        }
        if is_loss {
            self.congestion = (self.congestion / 2).max(CONGESTION_MIN);
            self.loss_answered_to = self.first + self.flying.len() as u64;
        }
    }

    /// Whether the peer has been silent for too long (O4).
    pub(crate) fn health(&self, now_ns: u64) -> Health {
        if now_ns.saturating_sub(self.heard_ns) >= self.dead_after_ns { Health::Dead } else { Health::Alive }
    }

    /// When to look again, if nothing happens before.
    pub(crate) fn next_ns(&self) -> u64 {
        let ask = self.asked_ns + self.dead_after_ns / 4;
        self.resend_ns.min(ask).min(self.heard_ns + self.dead_after_ns)
    }
}

/// Bodies being filled with units.
struct Bodies {
    bytes_max: usize,
    done: Vec<Vec<u8>>,
    /// The body being filled, and the number of its first unit.
    open: Option<(u64, Vec<u8>)>,
}

impl Bodies {
    fn has_any(&self) -> bool {
        self.open.is_some() || !self.done.is_empty()
    }

    fn put(&mut self, number: u64, unit: &Unit) {
        let bytes = UNIT_HEADER_BYTES + unit.bytes.len();
        if let Some((first, body)) = &mut self.open
            && let Ok(distance) = u16::try_from(number - *first)
            && body.len() + bytes <= self.bytes_max
        {
            put_unit(body, distance, unit);
            return;
        }
        self.done.extend(self.open.take().map(|(_, body)| body));
        let mut body = Vec::with_capacity(self.bytes_max);
        body.extend_from_slice(&number.to_le_bytes());
        put_unit(&mut body, 0, unit);
        self.open = Some((number, body));
    }

    fn finish(mut self) -> Vec<Vec<u8>> {
        self.done.extend(self.open.take().map(|(_, body)| body));
        self.done
    }
}

/// The receiving end.
#[derive(Default)]
pub(crate) struct Incoming {
    expected: u64,
    early: BTreeMap<u64, Unit>,
    message: Vec<u8>,
    is_inside: bool,
}

/// The peer sent what no peer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl Incoming {
    /// A data body came: the messages that are whole now, in order.
    pub(crate) fn receive(&mut self, mut body: &[u8]) -> Result<Vec<Vec<u8>>, Malformed> {
        let first = take_u64(&mut body).ok_or(Malformed)?;
        let mut messages = Vec::new();
        while !body.is_empty() {
            let (distance, flags, bytes) = take_unit(&mut body).ok_or(Malformed)?;
            let number = first.checked_add(distance.into()).ok_or(Malformed)?;
            if number == self.expected {
                self.pass(flags, bytes, &mut messages)?;
                while let Some(unit) = self.early.remove(&self.expected) {
                    self.pass(unit.flags, &unit.bytes, &mut messages)?;
                }
            } else if number > self.expected && number - self.expected < WINDOW {
                self.early.entry(number).or_insert_with(|| Unit { flags, bytes: bytes.to_vec() });
            }
        }
        Ok(messages)
    }

    fn pass(&mut self, flags: u8, bytes: &[u8], messages: &mut Vec<Vec<u8>>) -> Result<(), Malformed> {
        self.expected += 1;
        if self.is_inside == (flags & FIRST != 0) || self.message.len() + bytes.len() > MESSAGE_BYTES_MAX {
            return Err(Malformed);
        }
        self.is_inside = flags & LAST == 0;
        self.message.extend_from_slice(bytes);
        if flags & LAST != 0 {
            messages.push(std::mem::take(&mut self.message));
        }
        Ok(())
    }

    /// What has been received, as the body of an acknowledgement.
    pub(crate) fn acknowledgement(&self) -> [u8; 16] {
        let early = self.early.range(self.expected + 1..=self.expected + 64);
        let bits = early.fold(0u64, |bits, (number, _)| bits | 1 << (number - self.expected - 1));
        let mut body = [0; 16];
        body[..8].copy_from_slice(&self.expected.to_le_bytes());
        body[8..].copy_from_slice(&bits.to_le_bytes());
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledgerstone_region::Random;

    fn units(message: u64, random: &mut Random) -> Vec<Unit> {
        let count = 1 + random.below(4);
        let flags = |no| if no == 0 { FIRST } else { 0 } | if no + 1 == count { LAST } else { 0 };
        (0..count).map(|no| Unit { flags: flags(no), bytes: message.to_le_bytes().to_vec() }).collect()
    }

    /// A network that loses, repeats, delays and reorders; times in milliseconds.
    fn run(seed: u64, loss_percent: u64, count: u64) -> u64 {
        const MS: u64 = 1_000_000;
        let mut random = Random::new(seed);
        let mut sender = Outgoing::new(0, 60_000 * MS, 200);
        let mut receiver = Incoming::default();
        let mut network: Vec<(u64, bool, Vec<u8>)> = Vec::new();
        let (mut next, mut submitted, mut now) = (0, 0, 0);
        while !(submitted == count && sender.is_drained()) {
            now += MS / 2;
            assert!(now < 100_000 * MS, "seed {seed}: it does not end; {next} of {count} arrived");
            for _ in 0..random.below(20) {
                if submitted < count {
                    units(submitted, &mut random).into_iter().for_each(|unit| sender.submit(unit));
                    submitted += 1;
                }
            }
            let mut sent: Vec<(bool, Vec<u8>)> =
                sender.bodies(now, random.below(4) == 0).into_iter().map(|body| (true, body)).collect();
            let due: Vec<_> = network.extract_if(.., |packet| packet.0 <= now).collect();
            for (_, is_data, body) in due {
                if is_data {
                    for message in receiver.receive(&body).unwrap() {
                        assert_eq!(&message[..8], &u64::to_le_bytes(next), "seed {seed}");
                        next += 1;
                    }
                    sent.push((false, receiver.acknowledgement().to_vec()));
                } else {
                    assert!(sender.acknowledged(now, &body));
                }
            }
            for (is_data, body) in sent {
                for _ in 0..1 + u64::from(random.below(10) == 0) {
                    if random.below(100) >= loss_percent {
                        network.push((now + MS + random.below(5 * MS), is_data, body.clone()));
                    }
                }
            }
        }
        assert_eq!(next, count);
        now
    }

    #[test]
    fn whatever_the_network_does_messages_come_once_and_in_order() {
        for seed in 0..40 {
            run(seed, [0, 1, 10, 40][seed as usize % 4], 2_000);
        }
    }

    #[test]
    fn a_silent_peer_is_dead_in_the_configured_time_and_not_before() {
        let mut sender = Outgoing::new(0, 1000, 200);
        let mut asked = 0;
        for now in 0..1000 {
            assert_eq!(sender.health(now), Health::Alive);
            asked += sender.bodies(now, false).len();
            assert!(sender.next_ns() <= 1000);
        }
        assert_eq!(asked, 3);
        assert_eq!(sender.health(1000), Health::Dead);
    }

    #[test]
    fn a_lone_message_goes_at_once_and_many_share_a_datagram() {
        let mut sender = Outgoing::new(0, u64::MAX / 2, 1000);
        let unit = || Unit { flags: FIRST | LAST, bytes: vec![1; 20] };
        sender.submit(unit());
        assert_eq!(sender.bodies(0, false).len(), 1);
        (0..30).for_each(|_| sender.submit(unit()));
        assert_eq!(sender.bodies(0, false).len(), 0);
        (0..10).for_each(|_| sender.submit(unit()));
        assert_eq!(sender.bodies(0, false).len(), 2);
    }

    #[test]
    fn what_a_multicast_does_not_bring_the_session_does_and_then_multicasts_are_left() {
        let mut sender = Outgoing::new(0, u64::MAX / 4, 200);
        let mut receiver = Incoming::default();
        let (mut now, mut tried) = (0, 0);
        for no in 0..2 * u64::from(MULTICAST_AGAIN_AFTER) {
            let unit = Unit { flags: FIRST | LAST, bytes: no.to_le_bytes().to_vec() };
            match sender.multicast(now, unit.clone()) {
                Some(_) => tried += 1, // It is lost.
                None => sender.submit(unit),
            }
            let mut arrived = Vec::new();
            while arrived.is_empty() {
                for body in sender.bodies(now, true) {
                    arrived.extend(receiver.receive(&body).unwrap());
                }
                now += RESEND_NS_MIN;
            }
            assert_eq!(arrived, [no.to_le_bytes().to_vec()]);
            assert!(sender.acknowledged(now, &receiver.acknowledgement()));
        }
        // Eight, and another one each time that it might have become better.
        assert_eq!(tried, MULTICASTS_LOST_MAX + 1);
        // It has: what the multicast brings is a unit as any other.
        sender.multicasts_lost = 0;
        let number = sender.multicast(now, Unit { flags: FIRST | LAST, bytes: vec![1] }).expect("a number");
        let body = [&number.to_le_bytes()[..], &[0, 0, 3, 1, 0, 1]].concat();
        assert_eq!(receiver.receive(&body).unwrap(), [vec![1]]);
        assert!(sender.acknowledged(now, &receiver.acknowledgement()) && sender.is_drained());
    }

    #[test]
    fn what_no_peer_sends_is_malformed() {
        let inside = [&0u64.to_le_bytes()[..], &[0, 0, 0, 1, 0, 7]].concat();
        assert_eq!(Incoming::default().receive(&inside), Err(Malformed));
        assert_eq!(Incoming::default().receive(&[1; 7]), Err(Malformed));
        assert_eq!(Incoming::default().receive(&[1; 12]), Err(Malformed));
        let mut sender = Outgoing::new(0, 1000, 200);
        assert!(!sender.acknowledged(1, &[9; 16]) && !sender.acknowledged(1, &[9; 15]));
    }
}
