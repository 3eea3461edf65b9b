//! What the scheduler knows of a simulated process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// One simulated process.
#[derive(Default)]
pub(super) struct Process {
    pub doom: Arc<Doom>,
    /// From when on others may know of its death.
    known_dead_ns: Option<u64>,
    /// None of its threads runs before.
    pub stopped_until_ns: u64,
}

/// What comes over a process at one of its steps. Read and written by the holder of the baton only.
#[derive(Default)]
pub(super) struct Doom {
    /// Steps that it has taken.
    steps: AtomicU64,
    /// Steps left until it dies, the last one not taken any more; 0 for ever.
    until_death: AtomicU64,
    /// As above, until it stops, and for how long.
    until_stop: AtomicU64,
    stop_ns: AtomicU64,
    has_struck: AtomicBool,
    /// Others may run before one of so many steps; 0: before none.
    yields_one_in: AtomicU64,
    /// What draws them.
    draw: AtomicU64,
}

/// What a step brings.
#[cfg(feature = "deaths")]
pub(super) enum Fate {
    Nothing,
    Death,
    Stop { ns: u64 },
    Yield,
}

impl Process {
    /// Notes its death, known to others from `known_ns` on; false if it had died before.
    pub fn die(&mut self, known_ns: u64) -> bool {
        self.doom.until_death.store(0, Relaxed);
        self.doom.until_stop.store(0, Relaxed);
        self.stopped_until_ns = 0;
        let is_first = !self.doom.has_struck.swap(true, Relaxed);
        if is_first {
            self.known_dead_ns = Some(known_ns);
        }
        is_first
    }

    pub fn is_known_dead(&self, now_ns: u64) -> bool {
        self.known_dead_ns.is_some_and(|known_ns| known_ns <= now_ns)
    }
}

impl Doom {
    pub fn has_struck(&self) -> bool {
        self.has_struck.load(Relaxed)
    }

    pub fn steps(&self) -> u64 {
        self.steps.load(Relaxed)
    }

    pub fn set_death(&self, steps: u64) {
        self.until_death.store(steps, Relaxed);
    }

    pub fn set_stop(&self, steps: u64, ns: u64) {
        self.until_stop.store(steps, Relaxed);
        self.stop_ns.store(ns, Relaxed);
    }

    pub fn set_yields(&self, one_in: u64, seed: u64) {
        self.yields_one_in.store(one_in, Relaxed);
        self.draw.store(seed, Relaxed);
    }

    /// Whether others run before this step.
    #[cfg(feature = "deaths")]
    fn draws_yield(&self) -> bool {
        let one_in = self.yields_one_in.load(Relaxed);
        if one_in == 0 {
            return false;
        }
        let drawn =
            self.draw.load(Relaxed).wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.draw.store(drawn, Relaxed);
        (drawn >> 33).is_multiple_of(one_in)
    }

    /// One step.
    #[cfg(feature = "deaths")]
    pub fn step(&self) -> Fate {
        let count_down = |left: &AtomicU64| {
            let before = left.load(Relaxed);
            left.store(before.saturating_sub(1), Relaxed);
            before == 1
        };
        self.steps.store(self.steps.load(Relaxed) + 1, Relaxed);
        if count_down(&self.until_death) {
            Fate::Death
        } else if count_down(&self.until_stop) {
            Fate::Stop { ns: self.stop_ns.load(Relaxed) }
        } else if self.draws_yield() {
            Fate::Yield
        } else {
            Fate::Nothing
        }
    }
}
