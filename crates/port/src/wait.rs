//! Waiting: look again, or sleep? The wait that adapts itself finds out.
//!
//! Two processes on processors of their own that keep looking hand a message over in some 0.15 us. Waking a sleeper
//! costs 50 us. On one processor, a process that keeps looking only keeps the other from running. No setting is right
//! for both, so [`crate::Wait::Adaptive`] decides each time from what it can know at no cost:
//!
//! - *free processors*: if the machine has only one, looking is useless;
//! - *placement*: each message says on which processor it was sent. If the last one was sent where we run now, its
//!   sender cannot be running. We give the processor away once or twice, so that the sender can finish before anybody
//!   sleeps or is woken. If no message came by then, we sleep;
//! - *load*: whether looking has paid lately. It has if the message came while looking. If looking failed several
//!   times, the other side is slow, stopped or without a processor. From then on we sleep at once. Now and then a
//!   longer look checks whether that is still so. These checks become rarer the more often they fail.
//!
//! A failed look costs at most as much as a waking, so the wait is never much dearer than the better choice.

use crate::options::Wait;
use crate::ring::CPU_UNKNOWN;
use std::time::{Duration, Instant};

/// Until when to wait for room.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    None,
    Until(Instant),
    Endless,
}

/// How long looking may take while it pays: about the price of waking a sleeper on another processor.
const LOOK: Duration = Duration::from_micros(50);
/// How long the look takes that checks whether looking pays again: long enough for the other side to be woken and
/// answer.
const PROBE: Duration = Duration::from_micros(150);
/// Waits between two such checks, at first and at most.
const PROBE_GAP_MIN: u32 = 64;
const PROBE_GAP_MAX: u32 = 8192;
/// Looks in a row that must fail before looking is given up.
const FAILURES_MAX: u32 = 4;
/// Looks without a pause and without reading the clock; they are worth some 0.2 us.
const LOOKS_UNTIMED: u32 = 64;

/// How often the processor is given away before we sleep.
const GIVE_WAY_COUNT: u32 = 2;

/// What a wait begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Look(Duration),
    GiveWay,
    Sleep,
}

/// One side's memory of how waiting went.
#[derive(Debug)]
pub(crate) struct Waiter {
    wait: Wait,
    /// Failures in a row; at `FAILURES_MAX` looking is given up.
    failures: u32,
    until_probe: u32,
    probe_gap: u32,
    processors: usize,
}

impl Waiter {
    pub(crate) fn new(wait: Wait) -> Waiter {
        Waiter { wait, failures: 0, until_probe: PROBE_GAP_MIN, probe_gap: PROBE_GAP_MIN, processors: processors() }
    }

    /// Looks for as long as it is worth it, or until the deadline. `None`: sleep now.
    ///
    /// `peer_cpu` is the processor on which the other side was last seen.
    #[inline]
    pub(crate) fn look<T>(
        &mut self,
        peer_cpu: u16,
        deadline: Option<Instant>,
        mut look: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let budget = match self.wait {
            Wait::Spin => Duration::MAX,
            Wait::SpinFor(budget) => budget,
            Wait::Sleep => return None,
            Wait::Adaptive => match self.choose(peer_cpu) {
                Choice::Look(budget) => budget,
                Choice::GiveWay => {
                    return (0..GIVE_WAY_COUNT).find_map(|_| {
                        std::thread::yield_now();
                        look()
                    });
                }
                Choice::Sleep => return None,
            },
        };
        for _ in 0..LOOKS_UNTIMED {
            if let Some(found) = look() {
                self.paid();
                return Some(found);
            }
        }
        // A thread that looks for ever never asks for the time.
        while budget == Duration::MAX && deadline.is_none() {
            if let Some(found) = look() {
                return Some(found);
            }
            std::hint::spin_loop();
        }
        let began = Instant::now();
        loop {
            for _ in 0..16 {
                if let Some(found) = look() {
                    self.paid();
                    return Some(found);
                }
                std::hint::spin_loop();
            }
            let now = Instant::now();
            if now.duration_since(began) >= budget {
                self.failed();
                return None;
            }
            if deadline.is_some_and(|deadline| now >= deadline) {
                return None;
            }
        }
    }

    fn choose(&mut self, peer_cpu: u16) -> Choice {
        if self.processors < 2 || (peer_cpu != CPU_UNKNOWN && peer_cpu == cpu()) {
            return Choice::GiveWay;
        }
        if self.failures < FAILURES_MAX {
            return Choice::Look(LOOK);
        }
        self.until_probe -= 1;
        if self.until_probe > 0 {
            return Choice::Sleep;
        }
        self.until_probe = self.probe_gap;
        Choice::Look(PROBE)
    }

    #[inline]
    fn paid(&mut self) {
        self.failures = 0;
        self.probe_gap = PROBE_GAP_MIN;
    }

    fn failed(&mut self) {
        if self.failures < FAILURES_MAX {
            self.failures += 1;
        } else {
            self.probe_gap = (self.probe_gap * 2).min(PROBE_GAP_MAX);
        }
        self.until_probe = self.probe_gap;
    }
}

/// The processor we run on.
#[inline]
pub(crate) fn cpu() -> u16 {
    // SAFETY: no arguments, no memory of ours is touched.
    let cpu = unsafe { libc::sched_getcpu() };
    u16::try_from(cpu).map_or(CPU_UNKNOWN, |cpu| cpu.min(CPU_UNKNOWN))
}

/// How many processors the machine has. Not on how many we may run: pinned to one, we still wait for others elsewhere.
fn processors() -> usize {
    // SAFETY: no memory of ours is touched.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).unwrap_or(1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn waiter() -> Waiter {
        Waiter { processors: 2, ..Waiter::new(Wait::Adaptive) }
    }

    #[test]
    fn with_one_processor_it_never_keeps_looking() {
        let mut waiter = Waiter { processors: 1, ..waiter() };
        assert_eq!(waiter.choose(CPU_UNKNOWN), Choice::GiveWay);
    }

    #[test]
    fn what_never_comes_while_looking_is_soon_slept_for_and_checked_seldom() {
        let mut waiter = waiter();
        let mut looked = 0;
        for _ in 0..20_000 {
            if waiter.choose(CPU_UNKNOWN) != Choice::Sleep {
                looked += 1;
                waiter.failed();
            }
        }
        assert!((5..20).contains(&looked), "{looked}");
    }

    #[test]
    fn when_looking_pays_again_it_looks_again() {
        let mut waiter = waiter();
        for _ in 0..FAILURES_MAX {
            waiter.failed();
        }
        assert_eq!(waiter.choose(CPU_UNKNOWN), Choice::Sleep);
        while waiter.choose(CPU_UNKNOWN) == Choice::Sleep {}
        waiter.paid();
        assert_eq!(waiter.choose(CPU_UNKNOWN), Choice::Look(LOOK));
    }

    #[test]
    fn to_a_peer_that_was_last_seen_on_our_processor_it_is_given_away() {
        // Our processor can change between two lines, so one of many tries is enough.
        assert!((0..1000).any(|_| waiter().choose(cpu()) == Choice::GiveWay));
    }
}
