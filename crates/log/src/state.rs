//! What the log keeps in the region, cache line by cache line: who writes what how often decides the places.

use ledgerstone_region::atomic::{AtomicU32, AtomicU64};
use ledgerstone_region::{Latch, shared};

shared! {
    /// The log's words in the region. All LSNs are byte positions.
    pub(crate) struct LogState {
        /// The next record goes here. Raised by every append.
        pub tail: AtomicU64,
        pub pad_tail: [AtomicU64; 7],

        /// `tail` and all claims that are not used up. Never above `zeroed_limit`.
        pub claim_head: AtomicU64,
        /// What is reserved for rollbacks. An ordinary claim keeps it and `claim_head` together below `prepared_end`.
        pub reserved: AtomicU64,
        /// Held while either changes (R1 in `room.rs`).
        pub room_latch: Latch,
        /// Bytes of gaps that repairs have filled, and how many they are when the one at `gap_at` is filled (P2 in
        /// `repair.rs`).
        pub filled: AtomicU64,
        pub filled_will_be: AtomicU64,
        pub gap_at: AtomicU64,
        /// Where the log ended when it was opened. Set once.
        pub first: AtomicU64,
        pub pad_claims: AtomicU64,

        /// Records that begin below are durable: the end of a record.
        pub durable: AtomicU64,
        /// Appends may go up to here: the buffer is zero from the tail to here.
        pub zeroed_limit: AtomicU64,
        /// Zeroing has begun up to here: what lies a buffer's length before is gone.
        pub zero_begun: AtomicU64,
        /// Segments are ready up to here.
        pub prepared_end: AtomicU64,
        /// The flush under way covers records that begin below; `u64::MAX` while it, or the next one, takes what comes.
        pub flushing_to: AtomicU64,
        /// The oldest LSN that is kept.
        pub oldest: AtomicU64,
        /// Not 0: the log has failed.
        pub failed: AtomicU64,
        /// Where the oldest segment that is there begins: that of `oldest`, unless the disk refused to give some up.
        pub gone_below: AtomicU64,

        /// A `FlushState`.
        pub flush: AtomicU64,
        /// How many sleep in each bed of `FlushState::bed`, see `meeting.rs`.
        pub sleepers: [AtomicU64; 2],
        /// The words they sleep on.
        pub beds: [AtomicU32; 2],
        /// Threads that wait or were just woken when the last flush ended: those that commit at all.
        pub active_count: AtomicU64,
        /// What a flush took lately.
        pub flush_ns: AtomicU64,
        pub pad_flush: [AtomicU64; 2],

        /// The line for room in the buffer, see `line.rs`: what its head wants, and whether the head sleeps for it.
        /// Read by every claim; written only while somebody waits.
        pub line_wanted: AtomicU64,
        pub head_wants: AtomicU64,
        /// Rollbacks that wait for room, and the word they sleep on.
        pub undo_sleepers: AtomicU32,
        pub undo_word: AtomicU32,
        /// Whose turn it is in line, and which slots ever stood there.
        pub line_head: AtomicU64,
        pub line_slots_used: AtomicU32,
        /// How many keep more of a claim than others may (C6 in `append.rs`). Changes when a thread begins to, or ends.
        pub long_keepers: AtomicU32,
        /// Held by who makes, renames or removes segments, also while the device works.
        pub segments_latch: Latch,
        /// Tickets of the line that were given out.
        pub line_tickets: AtomicU64,
        pub pad_space_line: AtomicU64,

        /// Wanted durable at once: records that begin below.
        pub wanted_now: AtomicU64,
        /// Wanted durable within the delay of asynchronous commits.
        pub wanted_soon: AtomicU64,
        /// The flusher thread sleeps on this; raised to wake it.
        pub flusher_word: AtomicU32,
        /// The flusher thread: `flusher::ABSENT`, `AWAKE`, `DOZING` or `ASLEEP`.
        pub flusher_state: AtomicU32,
        /// Its thread slot + 1; 0: there is none.
        pub flusher_owner: AtomicU32,
        pub zero: AtomicU32,
        /// What is being given up: the state of `giving_up.rs`.
        pub giving_up: AtomicU64,
        /// Not 0: some handle has had a notifier. Set once.
        pub has_notifiers: AtomicU64,
        /// Not 0: a segment was refused for want of space since somebody asked.
        pub lacked_space: AtomicU64,
        pub pad_flusher: AtomicU64,

        /// Records flushed.
        pub record_count: AtomicU64,
        /// Flushes done.
        pub flush_count: AtomicU64,
        /// Bytes written to the device, blocks rewritten included.
        pub written_bytes: AtomicU64,
        /// Time spent in writes.
        pub write_ns: AtomicU64,
        /// Threads that waited for a flush, leaders included.
        pub grouped_count: AtomicU64,
        /// Most of them for one flush.
        pub group_count_max: AtomicU64,
        /// Claims that had to wait.
        pub claim_wait_count: AtomicU64,
        pub pad_statistics: AtomicU64,

        /// What those in line sleep on.
        pub line_beds: [AtomicU32; 256],
    } size 1472
}
