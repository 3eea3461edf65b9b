//! What lies in the region: a header, buckets, request nodes, owners.
//!
//! ```text
//! header   latch of the deadlock search, switches, counters, shards of free nodes, a reserve of them
//! buckets  64 bytes each: latch, commit LSN left behind, head and tail of a chain of nodes
//! nodes    64 bytes each: one request of one owner for one name; number 0 is "none"
//! owners   256 bytes each: age, list of nodes, private free nodes, wait word; intentions on tables
//! flags    16 bytes for 64 owners: who sleeps, who holds others up
//! ```
//!
//! T1. A node is in exactly one place: a bucket's chain (and then in its owner's list), an owner's private free list, a
//!     shard's free list, or the never used rest. The reserve is a shard's free list. The node says itself which
//!     (`repair` R1), and the lists can be made again from that.
//! T2. A bucket's chain and the modes of its nodes change only under the bucket's latch. It holds the requests for all
//!     names that hash to it: first those that hold something, then those that only wait, the oldest transaction first.
//!     There are no lock heads: a queue is the part of a chain with one name.
//! T3. An owner's lists (`held_head`, `free_head`, and the links in their nodes) are touched by the owner's thread
//!     only. `thread` of the owner names its slot, and latches are taken in that slot's name. A transaction that goes
//!     on in another thread keeps the name of the one that has begun it, which is of the same process.
//! T4. Latches here are leaves: at most one bucket latch is held at a time, and under it at most one shard of free
//!     nodes. The latch of the deadlock search comes before bucket latches.
//!
//! Links are numbers of array elements, so that any process can follow them.

use std::sync::Arc;

use ledgerstone_page::Lsn;
use ledgerstone_region::atomic::{AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Relaxed};
use ledgerstone_region::{Handle, Region, RegionError, SlotTable, shared, sync};

use crate::bucket::Holder;
use crate::flags::Flags;
use crate::{Conflict, LockName, LockStats, Mode, OwnerNo, Victim};

/// Nodes an owner keeps for itself; so many come and go between it and the shards at once.
pub(crate) const PRIVATE_NODES: u32 = 16;
/// Shards of free nodes.
pub(crate) const SHARDS: usize = 8;
/// Tables on which an owner can have an intention without a node.
pub(crate) const INTENTIONS: usize = 8;
/// In `keeper` of a node: a shard keeps it, whose number is in the other bits. Number [`SHARDS`] is the reserve.
pub(crate) const KEPT_BY_SHARD: u32 = 1 << 31;
/// In `owner_previous` of a node: it was collected for its owner, which has not taken it in yet (see `intention`).
pub(crate) const NOT_TAKEN_IN: u32 = u32::MAX;
/// In `thread` of an owner: the thread named there mends what the owner's last one has left.
pub(crate) const MENDING: u32 = 1 << 31;
/// How long a thread that begins sleeps between looks at an owner that is being mended.
const LOOK_NS: u64 = 20_000;

shared! {
    /// A free list that many owners share.
    pub(crate) struct Shard {
        /// See `bucket`.
        pub latch: AtomicU32,
        /// First free node, linked by `owner_next`.
        pub head: AtomicU32,
        /// How many.
        pub count: AtomicU32,
        /// To a cache line.
        pub spare: [AtomicU32; 13],
    }
    size 64
}

shared! {
    /// Counters; all relaxed, they order nothing.
    pub(crate) struct Counters {
        /// Requests that had to wait.
        pub waits: AtomicU64,
        /// Requests that ended as the victim of a deadlock.
        pub deadlocks: AtomicU64,
        /// Requests that ended at their deadline.
        pub timeouts: AtomicU64,
        /// Requests refused because the nodes ran out.
        pub table_full: AtomicU64,
        /// Deadlock searches.
        pub searches: AtomicU64,
        /// Intentions that were turned into nodes for a strong request.
        pub collected: AtomicU64,
        /// Requests refused to avoid a deadlock.
        pub refusals: AtomicU64,
        /// Requests that passed a sleeper.
        pub passes: AtomicU64,
    }
    size 64
}

shared! {
    /// What there is once.
    pub(crate) struct Header {
        /// Latch of the deadlock search.
        pub search_latch: AtomicU32,
        /// To a cache line: the latch changes often, those below hardly ever.
        pub spare: [AtomicU32; 15],
        /// 1: nobody may wait.
        pub is_cancelled: AtomicU32,
        /// One more than the largest owner that ever began.
        pub owners_used: AtomicU32,
        /// The first node that was never used.
        pub fresh: AtomicU32,
        /// Latch of that number.
        pub fresh_latch: AtomicU32,
        /// Until when sleepers that hold other locks are not passed, because that would make deadlocks (Q6).
        pub careful_until_ns: AtomicU64,
        /// To a cache line.
        pub spare_settings: [AtomicU32; 10],
        /// Counters.
        pub counters: Counters,
        /// Free nodes.
        pub shards: [Shard; 8],
        /// Free nodes for locks on whole tables (see `nodes`).
        pub reserve: Shard,
    }
    size 768
}

shared! {
    /// Head of a chain of requests.
    pub(crate) struct Bucket {
        /// See `bucket`.
        pub latch: AtomicU32,
        /// Requests in the chain for a table in a mode that is not an intention (see `intention`).
        pub strong: AtomicU32,
        /// Largest LSN of a commit that gave up a writer's lock here.
        pub commit_lsn: AtomicU64,
        /// First node of the chain.
        pub head: AtomicU32,
        /// Last node of the chain.
        pub tail: AtomicU32,
        /// Nodes in the chain that want what they do not have.
        pub waiting: AtomicU32,
        /// To a cache line.
        pub spare: [AtomicU32; 9],
    }
    size 64
}

shared! {
    /// One request of one owner for one name.
    pub(crate) struct Node {
        /// The name's space.
        pub space: AtomicU64,
        /// The name's item.
        pub item: AtomicU64,
        /// Neighbours in the bucket's chain.
        pub next: AtomicU32,
        /// As above.
        pub previous: AtomicU32,
        /// Whose it is.
        pub owner: AtomicU32,
        /// Granted mode | wanted mode << 8; see `queue`.
        pub modes: AtomicU32,
        /// Neighbours in the owner's list.
        pub owner_next: AtomicU32,
        /// As above.
        pub owner_previous: AtomicU32,
        /// Where the chain begins.
        pub bucket: AtomicU32,
        /// How often others have passed it, while it waits (Q6).
        pub passes: AtomicU32,
        /// Until when they may, if they have.
        pub passed_until_ns: AtomicU64,
        /// Who has it while it is free: one more than an owner, or a shard ([`KEPT_BY_SHARD`]). 0: nobody ever had it.
        pub keeper: AtomicU32,
        /// To a cache line.
        pub spare: AtomicU32,
    }
    size 64
}

shared! {
    /// A transaction, as lock table.
    pub(crate) struct Owner {
        /// The transaction.
        pub age: AtomicU64,
        /// Largest commit LSN with which it gave up an intention to write that had no node.
        pub intention_commit_lsn: AtomicU64,
        /// First of its nodes, the newest.
        pub held_head: AtomicU32,
        /// First of its free nodes.
        pub free_head: AtomicU32,
        /// How many of those.
        pub free_count: AtomicU32,
        /// Nodes in its list that name a table.
        pub table_nodes: AtomicU32,
        /// Places of `intentions` in use.
        pub intention_count: AtomicU32,
        /// Where its wait stands (see `wait_word`).
        pub wait_word: AtomicU32,
        /// The node it waits with.
        pub wait_node: AtomicU32,
        /// One more than the slot of its thread, or of the last one; 0: none yet (T3).
        pub thread: AtomicU32,
        /// Nodes in its list; written by the owner's thread, read by deadlock searches.
        pub held_count: AtomicU32,
        /// 1: what stands in its way is met as [`LockConfig::conflict`] says; 0: it waits.
        pub is_avoiding: AtomicU32,
        /// How often this owner has begun.
        pub run: AtomicU32,
        /// How many owners it holds up ([`crate::LockManager::hold_up`]).
        pub holds_up: AtomicU32,
        /// What would be lost if it gave way ([`crate::LockManager::set_weight`]).
        pub weight: AtomicU64,
        /// Intentions on tables without a node (see `intention`).
        pub intentions: [AtomicU64; 8],
        /// When its wait ends at the latest.
        pub wait_deadline_ns: AtomicU64,
        /// Those that it holds up: run << 32 | one more than the owner; 0: none.
        pub outer: [AtomicU64; 8],
        /// The bucket of the node it waits with.
        pub wait_bucket: AtomicU32,
        /// To 8 bytes.
        pub spare_word: AtomicU32,
        /// To a multiple of two cache lines for the adjacent-line prefetcher: owners do not share.
        pub spare_lines: [AtomicU64; 5],
    }
    size 256
}

/// How large a lock table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockConfig {
    /// Transactions at a time. Owners are numbered below this.
    pub owners: u32,
    /// Locks held or waited for at a time by all transactions together: the budget.
    pub locks_max: u32,
    /// Buckets, rounded up to a power of two. With 0, as many as locks.
    pub buckets: u32,
    /// Whether intentions on tables may go without a node. Off only to measure or to test.
    pub fast_intentions: bool,
    /// What happens to a request that meets a conflicting lock.
    pub conflict: Conflict,
    /// Which transaction gives way in a deadlock.
    pub victim: Victim,
    /// True if an owner that blocks searches for a deadlock. Otherwise another thread calls
    /// [`crate::LockManager::detect`] from time to time.
    pub searches_when_blocked: bool,
}

impl Default for LockConfig {
    fn default() -> Self {
        LockConfig {
            owners: 1024,
            locks_max: 1 << 18,
            buckets: 0,
            fast_intentions: true,
            conflict: Conflict::Wait,
            victim: Victim::Youngest,
            searches_when_blocked: true,
        }
    }
}

impl LockConfig {
    /// Bytes of the region that a table of this size takes, alignment included.
    #[must_use]
    pub fn region_bytes(&self) -> u64 {
        64 * (u64::from(self.bucket_count()) + u64::from(self.node_count()))
            + 256 * u64::from(self.owners.max(1))
            + size_of::<Flags>() as u64 * self.flag_count()
            + size_of::<Header>() as u64
            + 5 * 64
    }

    fn flag_count(&self) -> u64 {
        u64::from(self.owners.max(1)).div_ceil(64)
    }

    fn bucket_count(&self) -> u32 {
        let wanted = if self.buckets == 0 { self.locks_max } else { self.buckets };
        wanted.clamp(1, 1 << 26).next_power_of_two()
    }

    /// Nodes that only requests for whole tables get: one for an intention of each owner, and one for a request of
    /// each.
    pub(crate) fn reserve_count(&self) -> u32 {
        self.owners.max(1).saturating_mul(2).min(1 << 20)
    }

    /// Number 0 is nobody's. What idle owners may keep for themselves comes on top of the budget, so that they cannot
    /// starve the others of it; and so does the reserve.
    fn node_count(&self) -> u32 {
        let spare = u64::from(self.owners.max(1)) * u64::from(PRIVATE_NODES) + u64::from(self.reserve_count());
        let count = 1 + u64::from(self.locks_max) + spare;
        count.min(1 << 31) as u32
    }
}

/// The lock manager that comes with the engine: request queues in the region.
pub struct LockTable {
    pub(crate) header: Handle<[Header]>,
    pub(crate) buckets: Handle<[Bucket]>,
    pub(crate) nodes: Handle<[Node]>,
    pub(crate) owners: Handle<[Owner]>,
    pub(crate) flags: Handle<[Flags]>,
    pub(crate) slots: Arc<SlotTable>,
    /// The slot of the thread that has made this handle, or any other of its process by now.
    maker: Holder,
    pub(crate) config: LockConfig,
    /// What its repairs leave out, in tests.
    #[cfg(all(test, feature = "deaths"))]
    pub(crate) forgotten: Option<crate::planted::Part>,
    /// 64 - log2(buckets).
    bucket_shift: u32,
}

impl LockTable {
    /// The lock table of `region`, whose threads have their slots in `slots`. It is empty if the region was made here.
    ///
    /// # Errors
    /// As [`Region::place`]: the region has no room for [`LockConfig::region_bytes`], or was made with another
    /// `config`. The calling thread gets no slot.
    pub fn place(region: &Region, slots: &Arc<SlotTable>, config: LockConfig) -> Result<LockTable, RegionError> {
        let maker = Holder::of(slots.try_current()?);
        let table = LockTable {
            header: region.place("locks.header", 1, 64)?,
            buckets: region.place("locks.buckets", u64::from(config.bucket_count()), 64)?,
            nodes: region.place("locks.nodes", u64::from(config.node_count()), 64)?,
            owners: region.place("locks.owners", u64::from(config.owners.max(1)), 64)?,
            flags: region.place("locks.flags", config.flag_count(), 64)?,
            slots: Arc::clone(slots),
            maker,
            config,
            #[cfg(all(test, feature = "deaths"))]
            forgotten: None,
            bucket_shift: 64 - config.bucket_count().trailing_zeros(),
        };
        if region.is_made_here() {
            // Nobody else knows the table yet.
            table.header().fresh.store(1 + config.reserve_count(), Relaxed);
            table.fill_reserve();
        }
        Ok(table)
    }

    /// The table as a thread of another simulated process finds it, in its view of the region.
    ///
    /// # Errors
    /// As [`LockTable::place`].
    #[cfg(feature = "deaths")]
    pub fn view(&self, view: &Region, slots: &Arc<SlotTable>) -> Result<LockTable, RegionError> {
        let table = LockTable::place(view, slots, self.config)?;
        #[cfg(test)]
        let table = LockTable { forgotten: self.forgotten, ..table };
        Ok(table)
    }

    /// Counters since the table was made.
    #[must_use]
    pub fn stats(&self) -> LockStats {
        let counters = &self.header().counters;
        let fresh = u64::from(self.header().fresh.load(Relaxed));
        let shards = self.header().shards.iter().chain([&self.header().reserve]);
        let free = shards.map(|shard| u64::from(shard.count.load(Relaxed))).sum::<u64>();
        LockStats {
            waits: counters.waits.load(Relaxed),
            deadlocks: counters.deadlocks.load(Relaxed),
            timeouts: counters.timeouts.load(Relaxed),
            table_full: counters.table_full.load(Relaxed),
            searches: counters.searches.load(Relaxed),
            refusals: counters.refusals.load(Relaxed),
            passes: counters.passes.load(Relaxed),
            intentions_collected: counters.collected.load(Relaxed),
            locks_max: u64::from(self.config.locks_max),
            nodes_taken: fresh.saturating_sub(1).saturating_sub(free),
        }
    }

    #[inline]
    pub(crate) fn header(&self) -> &Header {
        &self.header[0]
    }

    #[inline]
    pub(crate) fn node(&self, node_no: u32) -> &Node {
        &self.nodes[node_no as usize]
    }

    #[inline]
    pub(crate) fn owner(&self, owner: OwnerNo) -> &Owner {
        &self.owners[owner.0 as usize]
    }

    /// In whose name latches are taken for an owner.
    #[inline]
    pub(crate) fn holder(&self, owner_no: OwnerNo) -> Holder {
        Holder(self.owner(owner_no).thread.load(Relaxed)) // The owner's thread has written it.
    }

    /// In whose name the calling thread takes latches for itself. One without a slot does so in that of its process.
    #[inline]
    pub(crate) fn caller(&self) -> Holder {
        self.slots.try_current().map_or(self.maker, Holder::of)
    }

    /// Makes the calling thread the owner's. Its last one may have been of a process that has died since.
    #[inline]
    pub(crate) fn enter(&self, owner: &Owner) {
        let me = self.caller();
        if owner.thread.load(Relaxed) != me.0 {
            LockTable::change_thread(owner, me);
        }
    }

    /// By exchange: a repair that has found the last thread dead may mend the lists now, and is waited for.
    #[cold]
    #[inline(never)]
    pub(crate) fn change_thread(owner: &Owner, to: Holder) {
        loop {
            let seen = owner.thread.load(Relaxed);
            // Acquire: pairs with the store at the end of the mending. Release: the next repair sees whose it is.
            if seen & MENDING != 0 {
                sync::sleep_ns(LOOK_NS);
            } else if owner.thread.compare_exchange(seen, to.0, AcqRel, Relaxed).is_ok() {
                return;
            }
        }
    }

    /// The free list of a shard; number [`SHARDS`] is the reserve's.
    #[inline]
    pub(crate) fn shard(&self, shard_no: usize) -> &Shard {
        self.header().shards.get(shard_no).unwrap_or(&self.header().reserve)
    }

    /// Multiplicative hashing, highest bits: key hashes are mixed already, table ids and small numbers are not.
    #[inline]
    pub(crate) fn bucket_no(&self, name: LockName) -> u32 {
        let mixed = (name.item ^ name.space.wrapping_mul(0xff51_afd7_ed55_8ccd)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed.checked_shr(self.bucket_shift).unwrap_or(0) as u32
    }
}

impl Node {
    #[inline]
    pub(crate) fn name(&self) -> LockName {
        LockName { space: self.space.load(Relaxed), item: self.item.load(Relaxed) }
    }

    #[inline]
    pub(crate) fn is_for(&self, name: LockName) -> bool {
        self.item.load(Relaxed) == name.item && self.space.load(Relaxed) == name.space
    }

    #[inline]
    pub(crate) fn owner_no(&self) -> OwnerNo {
        OwnerNo(self.owner.load(Relaxed))
    }

    /// Number of the granted mode, 0 for none.
    #[inline]
    pub(crate) fn granted_number(&self) -> u32 {
        self.modes.load(Relaxed) & 0xff
    }

    #[inline]
    pub(crate) fn granted(&self) -> Option<Mode> {
        Mode::from_number(self.granted_number())
    }

    /// Number of the mode it waits for, 0 for none.
    #[inline]
    pub(crate) fn wanted_number(&self) -> u32 {
        self.modes.load(Relaxed) >> 8
    }

    #[inline]
    pub(crate) fn wanted(&self) -> Option<Mode> {
        Mode::from_number(self.wanted_number())
    }
}

impl Bucket {
    /// Raises the commit LSN left behind. Only under the bucket's latch.
    #[inline]
    pub(crate) fn raise_commit_lsn(&self, lsn: Lsn) {
        if self.commit_lsn.load(Relaxed) < lsn.0 {
            self.commit_lsn.store(lsn.0, Relaxed);
        }
    }
}
