//! The version store: what records were before transactions changed them, for readers of snapshots (design 5).
//!
//! | file | its idea |
//! | --- | --- |
//! | `chunk.rs` | memory of a bounded size, in chunks that writers own |
//! | `bucket.rs` | the head of a chain, and who may change it |
//! | `entry.rs` | an image as it stands in memory |
//! | `chain.rs` | a key's before-images, newest first, found by hash |
//! | `kept.rs` | images of commits, in memory that is used round and round |
//! | `tail.rs` | how readers find out that an image was written over |
//! | `writer.rs` | one transaction's images and its status |
//! | `staged.rs` | small writers while no snapshot is open: images in no chain |
//! | `spilled.rs` | writers whose images are in the log |
//! | `registry.rs` | which snapshots are open, and how old the oldest is |
//! | `view.rs` | a snapshot: opened, asked, closed |
//! | `reclaim.rs` | what no snapshot needs any more |
//! | `repair.rs` | what survivors do after a death |
//!
//! A *snapshot* is an LSN S and sees the commits whose records begin below S. A record's state at S is what the page
//! says, taken back by every writer that S does not see: the before-image of the oldest such writer.
//!
//! V1. A writer notes a record's state before its first change of it, under the exclusive latch of the record's page
//!     and before the page changes. Its images stand together in chunks of its own, and one word says what became of
//!     it.
//! V2. A writer says COMMITTING before its commit record is reserved, and COMMITTED with the record's LSN after. A
//!     reader takes S from the log's tail and looks at the word afterwards. If the record lies below S, the reader has
//!     acquired its reservation, and with it the word. So if the reader sees OPEN, the record will be reserved at S or
//!     above. If it reads COMMITTING it cannot tell, and waits for the stamp: that writer waits for nobody.
//! V3. A reader looks at the page, then at the chain, then at the page's version: because of V1, page and chain belong
//!     together if the version still stands. A writer that notes nothing any more is known by its name: its records in
//!     the log take it back (L1 to L4 in `spilled.rs`).
//! V4. Images go in three cases. The commit finds no snapshot that does not see it and is open or can be opened. Or a
//!     rollback has put the page right. Or other images take the place of the oldest that were kept, which raises
//!     `floor` first if a snapshot may need them. A reader below the floor is told so, before and after it looks: it
//!     may have missed what went.
//! V5. A page whose `page_lsn` is below a snapshot's horizon holds no change that the snapshot does not see. The
//!     horizon is taken between two looks at the tail, B and S: the smaller of B and all `first_lsn` marks. A writer
//!     that S does not see either showed its mark, or has all its records at or above B (T1 in `table.rs`). A writer
//!     that had cleared its mark before has a commit below S and is seen, or its pages were put right.
//!
//! V6. `settled` is the smallest horizon of the open snapshots that have one. A transaction that has just opened its
//!     own takes it, if all of them were known (Q5 in `registry.rs`). So a page below it when it changes held, by V5,
//!     nothing that one of those did not see. A snapshot that was not among them took its LSN after that look. So it
//!     sees what the snapshot saw that took `settled`, and so nothing less. Snapshots without
//!     a horizon ([`Horizon::None`]) do not go by it. What a writer noted beside a page about its changes before is of
//!     no use then.
//!
//! This folder does not know pages, trees or what a record's header means: a record is a key of a space, two bytes and
//! some more.

mod bucket;
mod chain;
mod chunk;
#[cfg(all(feature = "deaths", not(miri)))]
mod deaths;
mod entry;
mod kept;
mod planted;
mod reclaim;
mod registry;
mod repair;
mod spilled;
mod staged;
mod tail;
#[cfg(test)]
mod tests;
#[cfg(all(test, feature = "deaths", not(miri)))]
mod tests_deaths;
mod view;
mod writer;

use ledgerstone_region::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::Arc;

use ledgerstone_log::Log;
use ledgerstone_page::Lsn;
use ledgerstone_region::{Handle, Latch, Region, RegionError, SlotTable, shared};

pub use chain::Look;
pub use entry::{Before, Image};
pub use spilled::Unseen;
pub(crate) use spilled::tree_bit;
pub(crate) use view::Opened;
pub use view::{At, Horizon, SnapshotPin, View};
pub(crate) use writer::{Times, Who, Writer};

use bucket::Bucket;
use chunk::Chunks;
use kept::Kept;
use registry::SnapshotSlot;
use spilled::SpilledSlot;
use staged::WriterSlot;

shared! {
    /// What all processes share besides chunks, chains and slots.
    pub(crate) struct StoreState {
        /// Snapshots below it may miss images (V4).
        floor: AtomicU64,
        /// Writers whose images are in the log: slots of `spilled` in use.
        spilled_count: AtomicU64,
        /// Slots of snapshots that are in use: those below this number, at most.
        slots_used: AtomicU64,
        /// Slots of writers that ever staged anything: those below this number.
        writers_used: AtomicU64,
        /// How often the floor was raised.
        floor_count: AtomicU64,
        /// Pages whose `page_lsn` is below hold no change that a snapshot with a horizon, open now or later, does not
        /// see (V6).
        settled: AtomicU64,
        /// What was kept below this position is gone (K2 in `kept.rs`).
        tail: AtomicU64,
        /// To a cache line: those above are read by every snapshot.
        spare_read: AtomicU64,
        /// Guards what is kept. What comes from here on is written with every commit that a snapshot does not see.
        kept_latch: Latch,
        /// Where the next image of a commit will be kept.
        head: AtomicU64,
        /// No snapshot is older; behind the truth.
        known_oldest: AtomicU64,
        /// Guards which slots of spilled writers are in use (L7 in `spilled.rs`).
        spilled_latch: Latch,
        /// Room to a cache line.
        spare: [AtomicU64; 4],
    } size 128
}

/// Before-images of records, and the snapshots that need them.
pub struct VersionStore {
    log: Arc<Log>,
    threads: Arc<SlotTable>,
    chunks: Chunks,
    kept: Kept,
    buckets: Handle<[Bucket]>,
    state: Handle<StoreState>,
    snapshots: Handle<[SnapshotSlot]>,
    writers: Handle<[WriterSlot]>,
    spilled: Handle<[SpilledSlot]>,
    /// What it was made for.
    #[cfg(feature = "deaths")]
    bytes: u64,
    /// What repairs leave out.
    #[cfg(all(test, feature = "deaths"))]
    forgotten: Option<planted::Part>,
}

/// Figures of the version store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionStat {
    /// Bytes that it may use.
    pub bytes_max: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// How often images that a snapshot may have needed were dropped for lack of memory.
    pub floor_count: u64,
    /// Snapshots below this LSN are too old.
    pub floor: Lsn,
    /// Transactions, open or committed, whose images are in the log.
    pub spilled_count: u64,
    /// The log is kept from here on for the readers of those transactions. `None` if it need not be kept.
    pub log_low: Option<Lsn>,
}

impl VersionStore {
    /// The store of `region`, of `bytes` and for `snapshot_count_max` snapshots at once.
    ///
    /// # Errors
    /// As [`Region::place`].
    pub fn place(
        region: &Region,
        log: &Arc<Log>,
        threads: &Arc<SlotTable>,
        bytes: u64,
        snapshot_count_max: u32,
    ) -> Result<Arc<VersionStore>, RegionError> {
        let kept = Kept::place(region, bytes / 2)?;
        let chunks = Chunks::place(region, bytes.saturating_sub(kept.bytes()))?;
        // So many that images seldom share one: to pass another's costs a wait for memory.
        let bucket_count = (u64::from(chunks.count()) * 2).next_power_of_two().max(64);
        let state: Handle<StoreState> = region.place_one("versions.state", 64)?;
        if region.is_made_here() {
            state.head.store(1, SeqCst); // 0 is not a position.
            state.tail.store(1, SeqCst);
        }
        let slot_count = u64::from(snapshot_count_max.max(1));
        Ok(Arc::new(VersionStore {
            log: Arc::clone(log),
            threads: Arc::clone(threads),
            chunks,
            kept,
            buckets: region.place("versions.buckets", bucket_count, 64)?,
            state,
            snapshots: region.place("versions.snapshots", slot_count, 64)?,
            spilled: region.place("versions.spilled", slot_count, 64)?,
            writers: region.place("versions.writers", slot_count, 64)?,
            #[cfg(feature = "deaths")]
            bytes,
            #[cfg(all(test, feature = "deaths"))]
            forgotten: None,
        }))
    }

    /// The store as a thread of another simulated process finds it, in its view of the region.
    ///
    /// # Errors
    /// [`RegionError::Differs`]: it is another region's.
    #[cfg(feature = "deaths")]
    pub fn view(
        &self,
        view: &Region,
        log: &Arc<Log>,
        threads: &Arc<SlotTable>,
    ) -> Result<Arc<VersionStore>, RegionError> {
        let store = VersionStore::place(view, log, threads, self.bytes, self.snapshots.len() as u32)?;
        #[cfg(test)]
        let store = Arc::into_inner(store).map(|store| Arc::new(VersionStore { forgotten: self.forgotten, ..store }));
        #[cfg(test)]
        let store = store.expect("it was made just now");
        Ok(store)
    }

    /// Bytes of a region that a store takes.
    #[must_use]
    pub fn region_bytes(bytes: u64, snapshot_count_max: u32) -> u64 {
        // Chunks for at most three quarters of it, with at most four buckets of 32 bytes each; slots; and some room to
        // align.
        bytes + bytes / chunk::CHUNK_BYTES * 128 + u64::from(snapshot_count_max) * 224 + 65_536
    }

    /// Figures.
    #[must_use]
    pub fn stat(&self) -> VersionStat {
        let state = &*self.state;
        let left = self.writers.iter().filter(|slot| slot.left.load(Relaxed) != 0).count();
        VersionStat {
            bytes_max: u64::from(self.chunks.count()) * chunk::CHUNK_BYTES + self.kept.bytes(),
            used_bytes: self.chunks.used_count().saturating_sub(left as u64) * chunk::CHUNK_BYTES
                + self.kept_bytes_from(self.oldest_position()),
            floor_count: state.floor_count.load(Relaxed),
            floor: Lsn(state.floor.load(SeqCst)),
            spilled_count: self.spilled_count(),
            log_low: self.log_low(),
        }
    }
}

impl std::fmt::Debug for VersionStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VersionStore").field("stat", &self.stat()).finish_non_exhaustive()
    }
}
