//! What processes tell each other about the catalog.
//!
//! N1. A process that drops or changes a table tells all others so before it commits, while it has the table and its
//!     name locked X. It does so by the word that each process has here: it counts what was told. A process that was
//!     ever told something tells itself, too. It may know a table twice: as it was found since, and as a handle had it
//!     that has asked again.
//! N2. What a process knows of tables counts while its word is what it was when it learnt that. After that it is asked
//!     again of the catalog, with the table locked: whoever has changed it has ended.
//! N3. A process that has drops under way has its bit here, from before the first commits until the last has ended (I3
//!     in `transaction/isolation.rs`). The bit of one that dies is taken back when its transactions have been ended.

use ledgerstone_region::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release, Ordering::SeqCst};
use ledgerstone_region::{Handle, MEMBERS_MAX, Mutex, Region, RegionError};

/// Words in a cache line.
const LINE: usize = 8;

pub(crate) struct News {
    /// One word for each process, and behind them that of the drops, each in a line of its own.
    words: Handle<[AtomicU64]>,
    /// Of this process.
    told: Handle<AtomicU64>,
    process: usize,
    /// Drops of this process that are under way.
    drops: Mutex<u64>,
}

impl News {
    pub(crate) fn place(region: &Region, process: u32) -> Result<News, RegionError> {
        let words = region.place::<AtomicU64>("environment.catalog", (u64::from(MEMBERS_MAX) + 1) * LINE as u64, 64)?;
        let process = process as usize % MEMBERS_MAX as usize;
        let told = words.project(move |words| &words[process * LINE]);
        Ok(News { words, told, process, drops: Mutex::new(0) })
    }

    /// Tells the others (N1).
    pub(crate) fn tell(&self) {
        let was_told = self.told.load(Acquire) != 0;
        for process in (0..MEMBERS_MAX as usize).filter(|process| was_told || *process != self.process) {
            self.words[process * LINE].fetch_add(1, Release); // Pairs with the load in `counts`.
        }
    }

    fn with_drops(&self) -> &AtomicU64 {
        &self.words[MEMBERS_MAX as usize * LINE]
    }

    /// A drop begins, before it commits (N3).
    pub(crate) fn begin_drop(&self) {
        let mut drops = self.drops.lock();
        *drops += 1;
        self.with_drops().fetch_or(1 << self.process, SeqCst);
    }

    /// It has ended, and this process does not know the table any more, or again.
    pub(crate) fn end_drop(&self) {
        let mut drops = self.drops.lock();
        *drops = drops.saturating_sub(1);
        if *drops == 0 {
            self.with_drops().fetch_and(!(1 << self.process), SeqCst);
        }
    }

    /// Whether any process has drops under way.
    #[inline]
    pub(crate) fn has_drops(&self) -> bool {
        self.with_drops().load(SeqCst) != 0
    }

    /// Takes back the bits of processes that do not live. Their transactions have been ended.
    pub(crate) fn forget_dead(&self, is_living: impl Fn(u32) -> bool) {
        for process in (0..MEMBERS_MAX).filter(|process| !is_living(*process)) {
            self.with_drops().fetch_and(!(1 << process), SeqCst);
        }
    }
}

/// What was told a process when it learnt something, and whether that still counts (N2).
pub(crate) struct Learnt {
    told: Handle<AtomicU64>,
    at: AtomicU64,
}

impl Learnt {
    /// Now: nobody changes it meanwhile, or what is learnt says nothing about what others change.
    pub(crate) fn now(news: &News) -> Learnt {
        let told = news.told.clone();
        let at = AtomicU64::new(told.load(Acquire));
        Learnt { told, at }
    }

    #[inline]
    pub(crate) fn counts(&self) -> bool {
        self.at.load(Acquire) == self.told.load(Acquire) // Pairs with the additions in `tell`.
    }

    /// Learns again by `ask`, which says whether it is still so.
    pub(crate) fn again<E>(&self, ask: impl FnOnce() -> Result<bool, E>) -> Result<bool, E> {
        let told = self.told.load(Acquire);
        let is_so = ask()?;
        if is_so {
            self.at.store(told, Release);
        }
        Ok(is_so)
    }
}
