//! Waiting: look again, or sleep? The wait that adapts itself finds out.
//!
//! On processors of their own, two processes that keep looking hand a message over in some 0.15 us, and waking a
//! sleeper costs 50; on one processor who keeps looking only keeps the other from running. No setting is right for both, so
//! [`Wait::Adaptive`](crate::Wait::Adaptive) decides each time from what it can know for nothing:
//!
//! - *free processors*: may this process run on one only, it sleeps;
//! - *placement*: each message says on which processor it was sent. Was the last one sent where we run now, its sender
//!   cannot be running, and we sleep;
//! - *load*: whether looking has paid lately. It has if the message came while looking; if it did not, several times,
//!   the other side is slow, stopped or without a processor, for whatever reason, and we sleep at once from then on.
//!   Now and then a longer look checks whether that is still so; the less often, the more often it failed.
//!
//! A failed look costs at most what a waking costs, so that the wait is never much dearer than the better choice.

use crate::options::Wait;
use crate::ring::CPU_UNKNOWN;
use std::time::{Duration, Instant};

/// How long looking may take while it pays: about the price of waking a sleeper on another processor.
const LOOK: Duration = Duration::from_micros(50);
/// How long the look takes that checks whether looking pays again: long enough for the other side to be woken and answer.
const PROBE: Duration = Duration::from_micros(150);
/// Waits between two such checks, at first and at most.
const PROBE_GAP_MIN: u32 = 64;
const PROBE_GAP_MAX: u32 = 8192;
/// Looks in a row that must fail before looking is given up.
const FAILURES_MAX: u32 = 4;
/// Looks without reading the clock; they are worth some 0.2 us.
const LOOKS_UNTIMED: u32 = 64;
/// Waits after which the set of processors that we may use is asked for again.
const PROCESSORS_KNOWN_FOR: u32 = 4096;

/// One side's memory of how waiting went.
#[derive(Debug)]
pub(crate) struct Waiter {
    wait: Wait,
    /// Failures in a row; at `FAILURES_MAX` looking is given up.
    failures: u32,
    until_probe: u32,
    probe_gap: u32,
    processors: usize,
    processors_age: u32,
}

impl Waiter {
    pub(crate) fn new(wait: Wait) -> Waiter {
        Waiter {
            wait,
            failures: 0,
            until_probe: PROBE_GAP_MIN,
            probe_gap: PROBE_GAP_MIN,
            processors: processors(),
            processors_age: 0,
        }
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
            Wait::Adaptive => self.budget(peer_cpu)?,
        };
        for _ in 0..LOOKS_UNTIMED {
            if let Some(found) = look() {
                self.paid();
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

    /// How long to look; `None` for not at all.
    fn budget(&mut self, peer_cpu: u16) -> Option<Duration> {
        self.processors_age += 1;
        if self.processors_age == PROCESSORS_KNOWN_FOR {
            self.processors_age = 0;
            self.processors = processors();
        }
        if self.processors < 2 || (peer_cpu != CPU_UNKNOWN && peer_cpu == cpu()) {
            return None;
        }
        if self.failures < FAILURES_MAX {
            return Some(LOOK);
        }
        self.until_probe -= 1;
        if self.until_probe > 0 {
            return None;
        }
        self.until_probe = self.probe_gap;
        Some(PROBE)
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

/// How many processors we may run on.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn waiter() -> Waiter {
        Waiter { processors: 2, ..Waiter::new(Wait::Adaptive) }
    }

    #[test]
    fn with_one_processor_it_sleeps_at_once() {
        let mut waiter = Waiter { processors: 1, ..waiter() };
        assert_eq!(waiter.budget(CPU_UNKNOWN), None);
    }

    #[test]
    fn what_never_comes_while_looking_is_soon_slept_for_and_checked_seldom() {
        let mut waiter = waiter();
        let mut looked = 0;
        for _ in 0..20_000 {
            if waiter.budget(CPU_UNKNOWN).is_some() {
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
        assert_eq!(waiter.budget(CPU_UNKNOWN), None);
        while waiter.budget(CPU_UNKNOWN).is_none() {}
        waiter.paid();
        assert_eq!(waiter.budget(CPU_UNKNOWN), Some(LOOK));
    }

    #[test]
    fn a_peer_that_was_last_seen_on_our_processor_is_slept_for() {
        // Our processor can change between two lines, so one of many tries is enough.
        assert!((0..1000).any(|_| waiter().budget(cpu()).is_none()));
    }
}
