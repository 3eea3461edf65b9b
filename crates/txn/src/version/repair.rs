//! What survivors do for the version store after a death (see `repair.rs` of `region`).
//!
//! | words | what a death leaves | the repair |
//! | --- | --- | --- |
//! | a bucket's latch | held; its chains are whole (B3) | takes it over and gives it back |
//! | chunks, their list | held; chunks on their way from one to another | makes the list again (M1, M4) |
//! | the latch of what commits kept | held; all is whole but its head (K2) | takes it over and gives it back |
//! | slots of spilled writers | held; one half filled, a count too low | frees it, counts again (L7) |
//! | a writer's line, its chunks | some images in the chains, some not | R2, R3, R6 |
//! | a staged word | held | R4 |
//! | a snapshot, open or held | it stays open | closes it (Q6) |
//! | `floor`, `settled`, `tail`, the numbers of slots in use | what they were, or more | nothing |
//! | `floor_count`, `known_oldest` | one less, or older | nothing: a figure, and a bound |
//!
//! R1. A writer's line is the repairer's from the exchange on that marks it. Its next transaction waits for the repair
//!     that goes on there. At the end the line is in the repairing thread's name. If that dies, the next one finds it.
//! R2. A writer that its line names stays what it is: open, or with its stamp. Whoever ends its transaction takes it
//!     from [`VersionStore::adopt`].
//! R3. An image is in a chain or it is not; its words do not tell. One in a chain that was not counted yet is counted.
//!     One in no chain names nobody, as if it were a second one of its record (Z3). It was never needed, or has left
//!     the chain, or goes there once more (R4). What is kept twice of a commit does no harm.
//! R4. The repairer takes over a staged word, and goes on from what is in the chains. The writer may be alive. Until
//!     the word is free it only adds images, which name nobody.
//! R5. Latches of the living are waited for one at a time, with no other held.
//! R6. All images of a dead writer go into the chains. It may have reserved the record of a change, and not come to
//!     look whether a snapshot is open (Z1): whoever builds the page again makes that change. So this repair comes
//!     before the cache's. A reader that meets such an image finds its writer open, committing, or committed.

use ledgerstone_page::Xid;
use ledgerstone_region::atomic::{
    AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use ledgerstone_region::{AnotherDied, Dead, Repair, SlotNo, sync};

use super::bucket::{self, Bucket, name_of, named};
use super::chain::writer_of;
use super::entry::Entry;
use super::planted::Part;
use super::staged::{HOLDER, WriterSlot};
use super::writer::Writer;
use super::{VersionStore, chunk};

/// In a writer's line, beside the name of the thread that mends it (R1).
const MENDING: u64 = 1 << 32;

impl Repair for VersionStore {
    fn repair(&self, dead: &Dead<'_>) -> Result<(), AnotherDied> {
        let repairer = Repairer { store: self, dead, me: self.threads.current() };
        repairer.mend_buckets();
        repairer.mend_latches();
        let lines = repairer.take_lines();
        repairer.mend_chunks(&lines)?;
        for &no in &lines {
            repairer.mend_writer(&self.writers[no as usize])?;
        }
        repairer.mend_staged()?;
        repairer.close_snapshots();
        if !self.forgets(Part::Thread) {
            // Release: pairs with the exchange of a transaction that begins.
            lines.iter().for_each(|no| self.writers[*no as usize].thread.store(name_of(repairer.me), Release));
        }
        Ok(())
    }
}

impl VersionStore {
    /// The line of a transaction slot that another thread has had becomes this thread's (R1).
    #[cold]
    pub(super) fn claim_slot(&self, own: &WriterSlot, me: SlotNo) {
        let mut round = 0;
        loop {
            let seen = own.thread.load(Acquire);
            if seen & MENDING == 0 && own.thread.compare_exchange(seen, name_of(me), AcqRel, Relaxed).is_ok() {
                return;
            }
            self.pause(round);
            round += 1;
        }
    }

    /// Whether a thread holds a latch of the store, or a staged word.
    pub(crate) fn is_held_up_by(&self, slot: SlotNo) -> bool {
        let latches = [&self.state.kept_latch, &self.state.spilled_latch];
        let staged = self.writers.iter().map(|line| named(line.staged.load(Acquire) & HOLDER));
        let words = self.buckets.iter().map(Bucket::holder).chain([bucket::holder(self.chunks.list_latch())]);
        latches.iter().any(|latch| latch.owner() == Some(slot))
            || staged.chain(words).any(|holder| holder == Some(slot))
    }

    /// What transaction `xid` of a slot, whose process has died, has in the store. To be called after the repair, by
    /// the thread that will end the transaction: with [`VersionStore::end_commit`] if its commit is in the log.
    pub(crate) fn adopt(&self, slot: u32, xid: Xid) -> Writer {
        let spilled = self.spilled_name(xid).unwrap_or(0);
        let Some(own) = self.writers.get(slot as usize) else { return Writer { spilled, ..Writer::default() } };
        self.claim_slot(own, self.threads.current());
        let first = own.first.load(Acquire) as u32;
        if first == 0 {
            return Writer { slot, spilled, ..Writer::default() };
        }
        let count = self.chunks.entry_count(first);
        let mut end = self.chunks.first_word(first) - 1;
        let mut at = end + 1;
        for _ in 0..count {
            let entry = Entry::read(&self.chunks, at);
            end = self.chunks.end_of(at, entry.words());
            at = self.after_entry(&entry);
        }
        let (mut last, mut chunk_count) = (first, 1);
        while self.chunks.next(last) != 0 {
            last = self.chunks.next(last);
            chunk_count += 1;
        }
        // The repair has put all that was staged into the chains.
        Writer { first, last, end, count, slot, is_staged: false, chunk_count, spilled }
    }
}

/// One repair.
struct Repairer<'a> {
    store: &'a VersionStore,
    dead: &'a Dead<'a>,
    me: SlotNo,
}

impl Repairer<'_> {
    fn mend_buckets(&self) {
        if self.store.forgets(Part::BucketLatch) {
            return;
        }
        for bucket in self.store.buckets.iter() {
            if let Some(latched) = bucket.take_over(self.dead, self.me) {
                latched.unlatch();
            }
        }
    }

    fn mend_latches(&self) {
        let (store, state) = (self.store, &*self.store.state);
        let takes_over = |latch: &ledgerstone_region::Latch| {
            latch.owner().is_some_and(|owner| self.dead.has(owner) && latch.take_over(owner, self.me))
        };
        if !store.forgets(Part::KeptLatch) && takes_over(&state.kept_latch) {
            state.kept_latch.unlatch_exclusive();
        }
        if !store.forgets(Part::SpilledLatch) && takes_over(&state.spilled_latch) {
            if !store.forgets(Part::SpilledSlots) {
                store.mend_spilled();
            }
            state.spilled_latch.unlatch_exclusive();
        }
    }

    /// The lines of the dead, and those that a repairer had who has died, are ours from now on (R1).
    fn take_lines(&self) -> Vec<u32> {
        let mut lines = Vec::new();
        for (no, line) in (0..).zip(self.store.writers.iter()) {
            let seen = line.thread.load(Acquire);
            let is_theirs = named(seen).is_some_and(|slot| self.dead.has(slot) || seen == MENDING | name_of(self.me));
            let mine = MENDING | name_of(self.me);
            // If it fails, a living thread has begun there.
            if is_theirs && line.thread.compare_exchange(seen, mine, AcqRel, Relaxed).is_ok() {
                lines.push(no);
            }
        }
        lines
    }

    fn mend_chunks(&self, lines: &[u32]) -> Result<(), AnotherDied> {
        let store = self.store;
        if store.forgets(Part::ChunkList) {
            return Ok(());
        }
        let latched = bucket::latch_beside(store.chunks.list_latch(), self.dead, self.me)?;
        let lines = if store.forgets(Part::LostChunks) { &[][..] } else { lines };
        let slots = if store.forgets(Part::TakenFrom) { &[][..] } else { &store.writers[..] };
        store.chunks.end_taking_from(slots);
        store.chunks.mend_list(&store.writers, lines, latched);
        Ok(())
    }

    /// R2, R6.
    fn mend_writer(&self, line: &WriterSlot) -> Result<(), AnotherDied> {
        let first = line.first.load(Acquire);
        if first == 0 {
            return Ok(());
        }
        let store = self.store;
        self.dead.await_living(|| self.has_staged(line))?;
        let next = self.mend_images(first as u32)?;
        let is_uncounted = chunk::is_address(next) && self.is_in_chain(next)?;
        if is_uncounted && !store.forgets(Part::Uncounted) {
            store.chunks.set_entry_count(first as u32, store.chunks.entry_count(first as u32) + 1);
        }
        self.link_all(first as u32)?;
        line.staged.store(0, Release);
        Ok(())
    }

    /// Whether what a dead writer has staged is ours to be linked, or nothing is. It is not while a snapshot that is
    /// being opened links it.
    fn has_staged(&self, line: &WriterSlot) -> bool {
        let seen = line.staged.load(Acquire);
        let is_free = seen & HOLDER == 0;
        match seen {
            0 => true,
            _ if is_free => line.staged.compare_exchange(seen, seen | name_of(self.me), Acquire, Relaxed).is_ok(),
            _ => self.takes_over_staged(&line.staged).is_some(),
        }
    }

    /// Links the images of a writer that name nobody, but for second ones of a record (Z3).
    fn link_all(&self, chunk: u32) -> Result<(), AnotherDied> {
        let store = self.store;
        let mut at = store.chunks.first_word(chunk);
        for _ in 0..store.chunks.entry_count(chunk) {
            sync::yield_point("images of the dead linked");
            at = store.link_under(at, chunk, |bucket| bucket.latch_beside(self.dead, self.me))?;
        }
        Ok(())
    }

    /// R3. Says where the writer's next image begins.
    fn mend_images(&self, first: u32) -> Result<u32, AnotherDied> {
        let store = self.store;
        let mut at = store.chunks.first_word(first);
        for _ in 0..store.chunks.entry_count(first) {
            let entry = Entry::read(&store.chunks, at);
            if writer_of(&entry) == first && !store.forgets(Part::Unlinked) && !self.is_in_chain(at)? {
                store.chunks.set(at + 1, 0);
            }
            at = store.after_entry(&entry);
        }
        Ok(at)
    }

    /// Whether the image at an address of a dead writer is in its bucket's chain. If there is none, it is in no chain.
    fn is_in_chain(&self, at: u32) -> Result<bool, AnotherDied> {
        let chunks = &self.store.chunks;
        let bucket: &Bucket = self.store.bucket(Entry::read(chunks, at).hash());
        let latched = bucket.latch_beside(self.dead, self.me)?;
        let mut met = bucket.open.load(Relaxed) as u32;
        while met != 0 && met != at {
            met = Entry::read(chunks, met).link() as u32;
        }
        latched.unlatch_unchanged();
        Ok(met == at)
    }

    /// R4.
    fn mend_staged(&self) -> Result<(), AnotherDied> {
        let store = self.store;
        if store.forgets(Part::Staged) {
            return Ok(());
        }
        for line in store.writers.iter() {
            let Some(chunk) = self.takes_over_staged(&line.staged) else { continue };
            self.mend_images(chunk)?;
            self.link_all(chunk)?;
            line.staged.store(0, Release);
        }
        Ok(())
    }

    fn takes_over_staged(&self, staged: &AtomicU64) -> Option<u32> {
        let seen = staged.load(Acquire);
        let holder = named(seen & HOLDER)?;
        // This thread holds it if a repair of its own has begun again.
        if !self.dead.has(holder) && holder != self.me {
            return None;
        }
        staged.store(seen & !HOLDER | name_of(self.me), Relaxed); // Nobody else changes it.
        Some((seen >> 32) as u32)
    }

    fn close_snapshots(&self) {
        for (no, slot) in (0..).zip(self.store.snapshots.iter()) {
            if !slot.is_left_by(no, |thread| self.dead.has(thread), self.me) {
                continue;
            }
            let part = if slot.open_lsn().is_some() { Part::Snapshots } else { Part::HeldSnapshots };
            if !self.store.forgets(part) {
                slot.close_by_name(self.me);
            }
        }
    }
}
