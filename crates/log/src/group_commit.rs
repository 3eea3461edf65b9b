//! When a leader writes, and who sleeps where meanwhile: group commit as a value without clock, thread or file
//! (LIBTP 4.2). `meeting.rs` lets threads meet by it.
//!
//! One thread leads a flush, the others sleep until it is over. Flushes are numbered; a committer that comes while
//! flush `g` is under way either is covered by it or waits for `g + 1`. Both crowds sleep on words of their own (`g %
//! 2`). So the end of a flush wakes all threads that are done in one call, and only one of the others. That one leads
//! the next flush for all of them.
//!
//! ```text
//!            try_lead                       the write is durable
//!   Idle(g) ─────────► Leading(g+1) ──────────────────────────► Idle(g+1), wake all of g+1 and one of g+2
//! ```
//! G1. One flush at a time: `Leading` is entered from `Idle` by one compare-exchange.
//! G2. A thread that publishes its record before a flush looks for the end of what is published is covered by it.
//! G3. A sleeper is woken by the end of the flush it waits for, or as the one that leads it. A thread that is woken to
//!     lead either leads, or finds that another thread leads or has led that flush. The end of that flush wakes the
//!     whole bed, so no wake is passed on.
//!
//! `g` is under way for as long as the device needs, and all threads that commit in that time form `g + 1`. So groups
//! grow with the load by themselves, to half of the threads that commit: while one half sleeps, the other works. To
//! have them all in one group, a leader waits for those whom the last flush has just woken; they come soon or not at
//! all. So the adaptive delay is at most half of what a flush costs. It pays as soon as the group grows by half. A
//! single thread never waits for another. LIBTP's thresholds are the other settings.

use ledgerstone_region::SlotNo;

/// LIBTP's thresholds: a leader waits for company while none of them is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupCommit {
    /// Group threshold: with fewer threads committing than this, a leader does not wait for company.
    pub group_count_min: u32,
    /// Wait threshold: a leader waits until this share of the threads that commit is waiting.
    pub wait_percent: u32,
    /// Log delay threshold: a leader does not wait when this much of the log is not durable.
    pub log_delay_bytes: u64,
    /// The longest that a leader waits.
    pub delay: Delay,
}

/// The longest that a leader waits for company.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delay {
    /// Half of what a flush took lately, but not more than a millisecond.
    Adaptive,
    /// So many nanoseconds at most. 0 is never.
    AtMost {
        /// Nanoseconds.
        ns: u64,
    },
}

const ADAPTIVE_NS_MAX: u64 = 1_000_000;

impl Default for GroupCommit {
    fn default() -> GroupCommit {
        GroupCommit { group_count_min: 4, wait_percent: 90, log_delay_bytes: 256 << 10, delay: Delay::Adaptive }
    }
}

/// The state that a leader sees before it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crowd {
    /// Threads that wait for this flush, the leader included.
    pub waiting_count: u32,
    /// Threads that commit at all: those that waited for the last flush, or for this one already when that ended.
    pub active_count: u32,
    /// Bytes of log that are not durable.
    pub undurable_bytes: u64,
    /// How long this leader has waited.
    pub waited_ns: u64,
    /// The time that a flush took lately.
    pub flush_ns: u64,
}

/// What a leader does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lead {
    /// Write.
    Flush,
    /// Wait at most so long for company, then look again.
    Wait {
        /// Nanoseconds.
        ns: u64,
    },
}

impl GroupCommit {
    /// What a leader does next.
    pub fn lead(&self, crowd: Crowd) -> Lead {
        let delay_ns = match self.delay {
            Delay::Adaptive => (crowd.flush_ns / 2).min(ADAPTIVE_NS_MAX),
            Delay::AtMost { ns } => ns,
        };
        let left = delay_ns.saturating_sub(crowd.waited_ns);
        let enough =
            u64::from(crowd.waiting_count) * 100 >= u64::from(crowd.active_count) * u64::from(self.wait_percent);
        if left == 0
            || crowd.active_count < self.group_count_min
            || enough
            || crowd.undurable_bytes >= self.log_delay_bytes
        {
            return Lead::Flush;
        }
        Lead::Wait { ns: left }
    }
}

/// Who leads. One word in the region:
///
/// ```text
/// bits 63..16  number of the last flush begun
/// bit  15      it is under way
/// bits 14..0   the `SlotNo` of the thread that leads it, or 0
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlushState(pub u64);

const NUMBER_SHIFT: u32 = 16;
const LEADING: u64 = 1 << 15;

impl FlushState {
    /// The number of the last flush begun.
    pub fn number(self) -> u64 {
        self.0 >> NUMBER_SHIFT
    }

    /// Whether it is under way.
    pub fn is_leading(self) -> bool {
        self.0 & LEADING != 0
    }

    /// Who leads it.
    pub fn leader(self) -> Option<SlotNo> {
        self.is_leading().then_some(SlotNo((self.0 & (LEADING - 1)) as u16))
    }

    /// The next flush, begun by `leader`.
    pub fn begun(self, leader: SlotNo) -> FlushState {
        assert!(!self.is_leading(), "flush {} begun twice (G1)", self.number());
        FlushState((self.number() + 1) << NUMBER_SHIFT | LEADING | u64::from(leader.0))
    }

    /// The flush under way, led by another.
    pub fn led_by(self, leader: SlotNo) -> FlushState {
        assert!(self.is_leading(), "flush {} is over", self.number());
        FlushState(self.number() << NUMBER_SHIFT | LEADING | u64::from(leader.0))
    }

    /// The flush under way, over.
    pub fn ended(self) -> FlushState {
        assert!(self.is_leading(), "flush {} ended twice (G1)", self.number());
        FlushState(self.number() << NUMBER_SHIFT)
    }

    /// The word to sleep on while this flush is under way, for one that is covered by it or waits for the next.
    pub fn bed(self, is_covered: bool) -> usize {
        FlushState::bed_of(self.number() + u64::from(!is_covered))
    }

    /// The word to sleep on until that flush is over.
    pub fn bed_of(flush: u64) -> usize {
        (flush & 1) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: Crowd =
        Crowd { waiting_count: 2, active_count: 10, undurable_bytes: 100, waited_ns: 100, flush_ns: 120_000 };

    #[test]
    fn a_single_thread_never_waits() {
        let alone = Crowd { waiting_count: 1, active_count: 1, ..FEW };
        assert_eq!(GroupCommit::default().lead(alone), Lead::Flush);
        let delay = Delay::AtMost { ns: 1_000_000 };
        assert_eq!(GroupCommit { delay, ..GroupCommit::default() }.lead(alone), Lead::Flush);
    }

    #[test]
    fn each_threshold_ends_the_wait() {
        let delay = Delay::AtMost { ns: 500 };
        let group = GroupCommit { group_count_min: 4, wait_percent: 50, log_delay_bytes: 1000, delay };
        assert_eq!(group.lead(FEW), Lead::Wait { ns: 400 });
        assert_eq!(group.lead(Crowd { waiting_count: 5, ..FEW }), Lead::Flush);
        assert_eq!(group.lead(Crowd { active_count: 3, ..FEW }), Lead::Flush);
        assert_eq!(group.lead(Crowd { undurable_bytes: 1000, ..FEW }), Lead::Flush);
        assert_eq!(group.lead(Crowd { waited_ns: 500, ..FEW }), Lead::Flush);
        assert_eq!(GroupCommit { delay: Delay::AtMost { ns: 0 }, ..group }.lead(FEW), Lead::Flush);
    }

    #[test]
    fn the_adaptive_delay_follows_the_device() {
        let group = GroupCommit::default();
        assert_eq!(group.lead(FEW), Lead::Wait { ns: 59_900 });
        assert_eq!(group.lead(Crowd { flush_ns: 0, ..FEW }), Lead::Flush);
        assert_eq!(group.lead(Crowd { flush_ns: 1 << 40, waited_ns: ADAPTIVE_NS_MAX, ..FEW }), Lead::Flush);
    }

    #[test]
    fn crowds_of_neighbouring_flushes_sleep_apart() {
        let idle = FlushState(4 << NUMBER_SHIFT);
        let busy = idle.begun(SlotNo(7));
        assert!(busy.is_leading() && !idle.is_leading());
        assert_eq!((busy.leader(), idle.leader()), (Some(SlotNo(7)), None));
        assert_eq!(busy.led_by(SlotNo(9)).ended(), busy.ended());
        assert_ne!(busy.bed(true), busy.bed(false));
        // A thread that waits for the next flush lies in the bed that the next flush wakes.
        assert_eq!(busy.bed(false), busy.ended().begun(SlotNo(0)).bed(true));
    }
}
