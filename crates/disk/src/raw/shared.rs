//! What the files of a raw store share: the device, the names, the free extents, and the commit of the table.
//!
//! W1. The table is written whole, to both slots, one after the other. A change counts as durable when both are. So a
//!     slot that is damaged later takes nothing away that was acknowledged, and a slot that the power tore leaves the
//!     other. What an opening finds in one place only is written to both before anything becomes durable that relies on
//!     it. The other slot may name an extent, so that happens before one is given out, too. A store that is only read
//!     is not written.
//! W2. Before the first slot is written, all that the table names has been synced (R3 in `inode.rs`).
//! W3. An extent that a file gives up belongs to nobody until no slot names it, and no call is under way on it.
//! W4. Nothing is made durable after a sync, a durable write or a slot has failed, since zeros may be lost that the
//!     next table would rely on. The store answers with that error from then on.
//! W5. Latches are taken in the order `claim`, `committing`, `growing` of a file, `state`, `body` of a file. The first
//!     three are held over calls of the device.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use ledgerstone_region::{ByName, Mutex, TimedGuard, TimedMutex};

use super::flat::{Claim, Flat};
use super::inode::{Body, Inode};
use super::planted::RawBug;
use super::slots;
use super::space::{GivenUp, Space};
use super::superblock::Superblock;
use super::table::{Entry, HOLE, Table, entry_bytes};
use crate::error::{DiskError, DiskErrorKind};

/// Waits until nobody holds the mutex, however long that takes.
pub(super) fn lock<T>(mutex: &TimedMutex<T>) -> TimedGuard<'_, T> {
    if let Some(guard) = mutex.try_lock() {
        return guard;
    }
    let place = mutex.wait_in_line();
    loop {
        if let Some(guard) = place.try_lock_for(60_000_000_000) {
            return guard;
        }
    }
}

pub(super) struct Shared {
    pub flat: Box<dyn Flat>,
    /// Held by whoever writes the table.
    committing: TimedMutex<Slots>,
    /// Held for a moment.
    pub state: Mutex<State>,
    superblock: Mutex<Superblock>,
    /// Counts the readings of the table: a lock that is given back and taken again may have let another in.
    epoch: AtomicU64,
    /// Changes up to this one are in both slots.
    durable_seq: AtomicU64,
    /// Whether what was found stands in both slots and both superblocks (W1).
    is_whole: AtomicBool,
    /// What failed first (W4).
    failed: Mutex<Option<DiskError>>,
    /// Waited for, and held over calls of the device, before all other latches.
    pub claim: TimedMutex<Hold>,
}

/// Whether the device is ours.
pub(super) enum Hold {
    /// It is, while the claim lives.
    Held(#[allow(dead_code)] Option<Claim>),
    /// The last lock was given back: another may have changed the device since.
    GivenBack,
}

/// The superblock of a device.
pub(super) struct FoundBlocks {
    pub superblock: Superblock,
    /// It stands there twice.
    pub is_pair: bool,
}

/// What whoever writes the table must know of the slots.
#[derive(Default)]
struct Slots {
    generation: u64,
    /// What was found, if it does not stand in both.
    single: Option<Table>,
    /// One of the superblocks is missing.
    lacks_superblock: bool,
}

#[derive(Default)]
pub(super) struct State {
    pub files: ByName<str, Arc<Inode>>,
    pub dirs: ByName<str, ()>,
    pub space: Space,
    /// Counts changes of names, lengths and extents.
    pub seq: u64,
    /// The last change of a name.
    pub names_changed_at: u64,
    /// Of the table, but for runs.
    pub names_bytes: u64,
    /// Files that are locked.
    pub locked: Vec<Arc<Inode>>,
    /// The slot that could not be read when the store was opened.
    pub damaged_slot: Option<u64>,
}

impl Shared {
    /// Reads the table of a device that is claimed.
    pub fn load(flat: Box<dyn Flat>, claim: Option<Claim>, found: FoundBlocks) -> Result<Shared, DiskError> {
        let shared = Shared {
            flat,
            committing: TimedMutex::new(Slots::default()),
            state: Mutex::default(),
            superblock: Mutex::new(found.superblock),
            epoch: AtomicU64::new(0),
            durable_seq: AtomicU64::new(0),
            is_whole: AtomicBool::new(false),
            failed: Mutex::new(None),
            claim: TimedMutex::new(Hold::Held(claim)),
        };
        shared.reload(found)?;
        Ok(shared)
    }

    /// Reads the table, of a device that was claimed anew. Handles that are open are refused from then on.
    pub fn reload(&self, found: FoundBlocks) -> Result<(), DiskError> {
        let superblock = found.superblock;
        let mut slots = lock(&self.committing);
        // A killed process may have written what is not durable yet (D6).
        self.flat.sync()?;
        let read = slots::read(&*self.flat, &superblock)?;
        let epoch = self.epoch.load(Relaxed) + 1;
        let mut state = State { space: Space::new(superblock.extent_count), ..State::default() };
        state.damaged_slot = read.damaged_slot;
        for dir in &read.table.dirs {
            state.names_bytes += entry_bytes(dir);
            state.dirs.insert(dir, ());
        }
        for Entry { path, len, extents } in &read.table.files {
            state.names_bytes += entry_bytes(path);
            for &extent in extents.iter().filter(|extent| **extent != HOLE) {
                state.space.take_one(extent);
            }
            let body = Body::of_table(*len, extents.clone(), superblock.extent_bytes);
            state.files.insert(path, Arc::new(Inode::new(epoch, body)));
        }
        slots.generation = read.table.generation;
        slots.lacks_superblock = !found.is_pair;
        slots.single = (!read.is_pair).then_some(read.table);
        self.is_whole.store(found.is_pair && read.is_pair, SeqCst);
        *self.superblock.lock() = superblock;
        self.durable_seq.store(0, SeqCst);
        *self.failed.lock() = None;
        *self.state.lock() = state;
        self.epoch.store(epoch, SeqCst);
        Ok(())
    }

    pub fn superblock(&self) -> Superblock {
        *self.superblock.lock()
    }

    pub fn epoch(&self) -> u64 {
        self.epoch.load(SeqCst)
    }

    pub fn durable_seq(&self) -> u64 {
        self.durable_seq.load(SeqCst)
    }

    pub fn has_given_up(&self) -> bool {
        self.state.lock().space.has_given_up()
    }

    /// Where an extent begins.
    pub fn place_of(&self, extent: u32) -> u64 {
        let superblock = self.superblock();
        superblock.data_start + u64::from(extent) * superblock.extent_bytes
    }

    /// The places of a range of a file's bytes, all of which have one. Those that follow each other are joined.
    pub fn joined(&self, extents: &[u32], range: Range<u64>) -> impl Iterator<Item = (u64, u64)> {
        let Superblock { extent_bytes, data_start, .. } = self.superblock();
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let first = (at / extent_bytes) as usize;
            let mut last = first;
            while (last as u64 + 1) * extent_bytes < range.end && extents[last + 1] == extents[last] + 1 {
                last += 1;
            }
            let place = data_start + u64::from(extents[first]) * extent_bytes + at % extent_bytes;
            let end = range.end.min((last as u64 + 1) * extent_bytes);
            let len = end - at;
            at = end;
            Some((place, len))
        })
    }

    /// Changes a file's body, with `growing` held. `change` is told the number that the change has if it is one.
    pub fn change(&self, inode: &Inode, change: impl FnOnce(&mut Body, u64) -> Option<GivenUp>) {
        let mut state = self.state.lock();
        let seq = state.seq + 1;
        let given_up = {
            let mut body = inode.body.lock();
            let given_up = change(&mut body, seq);
            if body.changed_at == seq {
                state.seq = seq;
            }
            given_up
        };
        if let Some(given_up) = given_up {
            state.space.give_up(given_up, seq);
        }
    }

    /// Sees to it that every byte of a range has a place, with `growing` held.
    pub fn give(&self, inode: &Inode, range: Range<u64>) -> Result<(), DiskErrorKind> {
        let extent_bytes = self.superblock().extent_bytes;
        let mut state = self.state.lock();
        let mut body = inode.body.lock();
        let missing = body.missing(range, extent_bytes);
        if !missing.is_empty() {
            let given = state.space.take(missing.len()).ok_or(DiskErrorKind::NoSpace)?;
            state.seq += 1;
            body.add(&missing, &given);
            body.changed_at = state.seq;
        }
        Ok(())
    }

    /// Gives up what lies behind a file's length, with `growing` held.
    pub fn give_back(&self, inode: &Inode) {
        let extent_bytes = self.superblock().extent_bytes;
        self.change(inode, |body, seq| {
            let given_up = body.set_len(body.len, extent_bytes)?;
            body.changed_at = seq;
            Some(given_up)
        });
    }

    /// Takes a file's name away, with the state held: whoever has it open goes on.
    pub fn unname(state: &mut State, inode: &Inode) {
        inode.has_name.store(false, SeqCst);
        if inode.handle_count.load(SeqCst) == 0 {
            let seq = state.seq;
            state.space.give_up(inode.body.lock().all(), seq);
        }
    }

    /// A handle of a file is dropped.
    pub fn close(&self, inode: &Inode) {
        let mut state = self.state.lock();
        let is_last = inode.handle_count.fetch_sub(1, SeqCst) == 1;
        if is_last && !inode.has_name.load(SeqCst) && inode.epoch == self.epoch() {
            state.seq += 1;
            let seq = state.seq;
            state.space.give_up(inode.body.lock().all(), seq);
        }
    }

    /// Before anything becomes durable (W1, W4). Not with `committing` held.
    pub fn check(&self) -> Result<(), DiskError> {
        self.check_failed()?;
        self.make_whole()
    }

    /// Before extents are given out (W1). Not with `committing` or `growing` held.
    pub fn make_whole(&self) -> Result<(), DiskError> {
        if self.is_whole.load(SeqCst) { Ok(()) } else { self.mend(&mut lock(&self.committing)) }
    }

    fn check_failed(&self) -> Result<(), DiskError> {
        self.failed.lock().clone().map_or(Ok(()), Err)
    }

    /// W1.
    fn mend(&self, slots: &mut Slots) -> Result<(), DiskError> {
        let superblock = self.superblock();
        if std::mem::take(&mut slots.lacks_superblock) {
            self.fail(superblock.write(&*self.flat))?;
        }
        if let Some(table) = slots.single.take() {
            self.fail(self.write_slots(slots, &superblock, table))?;
        }
        self.is_whole.store(true, SeqCst);
        Ok(())
    }

    /// W4.
    fn fail<T>(&self, result: Result<T, DiskError>) -> Result<T, DiskError> {
        result.inspect_err(|error| {
            self.failed.lock().get_or_insert_with(|| error.clone());
        })
    }

    /// Bytes in place. The device may lose others with them, when it cannot make them durable.
    pub fn write_durable_at(&self, at: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.check()?;
        self.fail(self.flat.write_durable_at(at, bytes))
    }

    /// Makes durable what was written to files that have not changed.
    pub fn sync(&self, operation: &'static str) -> Result<(), DiskError> {
        self.check()?;
        self.fail(self.flat.sync().map_err(|error| DiskError { operation, ..error }))
    }

    /// Makes durable what another process has written.
    pub fn settle(&self) -> Result<(), DiskError> {
        self.check_failed()?;
        self.fail(self.flat.sync())
    }

    /// Makes durable all that was written, and all names, lengths and extents.
    pub fn commit(&self, operation: &'static str) -> Result<(), DiskError> {
        let mut slots = lock(&self.committing);
        self.check_failed()?;
        self.mend(&mut slots)?;
        let superblock = self.superblock();
        let (seq, dirs, files) = {
            let state = self.state.lock();
            let files: Vec<_> = state.files.iter().map(|(path, inode)| (path.to_owned(), Arc::clone(inode))).collect();
            (state.seq, state.dirs.keys().map(str::to_owned).collect(), files)
        };
        let mut table = Table { generation: slots.generation, dirs, files: Vec::with_capacity(files.len()) };
        // Held until the slots are written: in use, so that nobody reclaims them.
        let mut held = Vec::with_capacity(files.len());
        for (path, inode) in files {
            let _growing = lock(&inode.growing);
            self.zero_unwritten(&inode, &superblock)?;
            let body = inode.body.lock();
            table.files.push(Entry { path, len: body.len, extents: body.extents.to_vec() });
            held.push(Arc::clone(&body.extents));
        }
        if !RawBug::TableUnsynced.is_on() {
            self.sync(operation)?;
        }
        self.fail(self.write_slots(&mut slots, &superblock, table))?;
        drop(held);
        self.durable_seq.fetch_max(seq, SeqCst);
        self.state.lock().space.reclaim(seq);
        Ok(())
    }

    /// R3, with `growing` held.
    fn zero_unwritten(&self, inode: &Inode, superblock: &Superblock) -> Result<(), DiskError> {
        let extent_bytes = superblock.extent_bytes;
        let body = inode.body.lock().clone();
        for (extent, &mark) in &body.marks {
            let end = body.len.saturating_sub(extent * extent_bytes).min(extent_bytes);
            if mark < end {
                self.flat.zero(self.place_of(body.extents[extent as usize]) + mark, end - mark)?;
                inode.body.lock().raise_mark(extent as usize, end, extent_bytes);
            }
        }
        Ok(())
    }

    /// Writes the next slot, and one more if that was not the second of a pair.
    fn write_slots(&self, slots: &mut Slots, superblock: &Superblock, mut table: Table) -> Result<(), DiskError> {
        loop {
            table.generation = slots.generation + 1;
            slots::write(&*self.flat, superblock, &table)?;
            slots.generation = table.generation;
            if table.generation.is_multiple_of(2) {
                return Ok(());
            }
        }
    }
}
