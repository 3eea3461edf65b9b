//! [`SimDisk`]: a disk in memory that loses its power on request, and then keeps no more than it promised.
//!
//! The fault model, which is the reason for this disk:
//!
//! - Each write is torn into pieces of 512 bytes ([`PIECE_BYTES`]). After the crash each unsynced piece holds any one
//!   of its versions, or what was durable before. Each piece is decided by itself, whatever the order of writes.
//! - Each length that was not synced may or may not have arrived. The same holds for each change of a name that no
//!   `sync_dir` followed ([`names`]).
//! - What was synced, or written durably, is never lost.
//! - The crash happens inside the n-th call that changes something. Its effect is pending like any other.
//! - After the crash every call returns `Crashed`, for ever. [`SimDisk::after_crash`] makes the disk that the next
//!   start of the machine finds. The choice depends on a seed and on nothing else.
//! - A killed process loses nothing that it wrote, and makes nothing durable: the machine goes on, and what was pending
//!   stays pending. [`SimDisk::after_kill`] makes the disk that the next process finds. The call in which the process
//!   dies is done, but not durably. Only the beginning of a write may be there ([`SimDisk::kill_at`]).
//!
//! A simulated process may die right before a call and right after it (`sync::deaths` of `region`).
//!
//! How the seed chooses is in [`survival`]. Time does not pass here, and nothing waits. One mutex guards everything. It
//! is held for memory copies only, and never while the hook runs.

mod inode;
mod names;
mod survival;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

#[cfg(not(loom))]
use ledgerstone_region::sync::deaths::step_of_device;

use crate::disk::{Disk, DiskFile, DiskLock, Open};
use crate::error::{DiskError, DiskErrorKind};
use inode::{FILE_BYTES_MAX, Inode};
use names::{Change, Names};
use survival::{Draw, Fate};

pub use inode::PIECE_BYTES;

/// There are no simulated processes in a model.
#[cfg(loom)]
fn step_of_device() {}

/// The part that a killed process has done of a write ends at a multiple of this, or at the write's end.
pub const BLOCK_BYTES: u64 = 4096;

/// Called before each operation with its name, and once with `"crash"` when the power fails. It may wait: no lock of
/// the disk is held.
pub type Hook = Arc<dyn Fn(&'static str) + Send + Sync>;

/// What was asked of a simulated disk since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SimCounters {
    /// All calls that were let through.
    pub operations: u64,
    /// Those that change something; [`SimDisk::crash_at`] counts these.
    pub mutations: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes, durable ones included.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Syncs of files and directories, and durable writes.
    pub syncs: u64,
    /// Files that are open now.
    pub open_files: u64,
    /// The most that were open at once.
    pub open_files_max: u64,
}

/// A simulated disk. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    hook: Mutex<Option<Hook>>,
}

#[derive(Default)]
struct State {
    /// By inode number. Copied only when written to while a snapshot shares it.
    inodes: Vec<Arc<Inode>>,
    names: Names,
    locked: BTreeSet<usize>,
    counters: SimCounters,
    crash_at: Option<u64>,
    /// Of the write in which the process is killed, so many bytes are done.
    kill_bytes: Option<u64>,
    crashed: bool,
    bytes_max: Option<u64>,
}

impl Default for SimDisk {
    fn default() -> Self {
        SimDisk::new()
    }
}

impl SimDisk {
    /// An empty disk with no limits, no hook and no crash in sight.
    pub fn new() -> SimDisk {
        SimDisk::from_state(State::default())
    }

    fn from_state(state: State) -> SimDisk {
        SimDisk { shared: Arc::new(Shared { state: Mutex::new(state), hook: Mutex::new(None) }) }
    }

    /// The power fails inside the `n`-th operation that changes something, the first being 1, counted since this disk
    /// was made. A number that has passed already never comes.
    pub fn crash_at(&self, n: u64) {
        let mut state = self.shared.state();
        (state.crash_at, state.kill_bytes) = (Some(n), None);
    }

    /// The process is killed inside the `n`-th operation that changes something. If that is a write, it ends after
    /// `bytes` bytes, or at the end of a block of [`BLOCK_BYTES`] before that: the kernel takes whole blocks or none.
    pub fn kill_at(&self, n: u64, bytes: u64) {
        let mut state = self.shared.state();
        (state.crash_at, state.kill_bytes) = (Some(n), Some(bytes));
    }

    /// The power fails now, or the process is killed: what the next one finds tells the two apart.
    pub fn crash_now(&self) {
        let first = !std::mem::replace(&mut self.shared.state().crashed, true);
        if first {
            self.shared.call_hook("crash");
        }
    }

    /// Whether the power has failed.
    pub fn is_crashed(&self) -> bool {
        self.shared.state().crashed
    }

    /// The disk that the machine finds when it starts again. Turns this one off if it is still on. The same history
    /// and the same seed give the same disk. Hook, limits, counters and locks start anew.
    pub fn after_crash(&self, seed: u64) -> SimDisk {
        self.crash_now();
        let state = self.shared.state();
        let mut draw = Draw::new(seed);
        let names = state.names.after_crash(Fate::choose(&mut draw), &mut draw);
        let common = Fate::choose(&mut draw);
        let reached: BTreeSet<usize> = names.inodes().collect();
        let inodes = state.inodes.iter().enumerate().map(|(number, inode)| {
            // A file of its own fate half of the time: the log lost and the data kept, and the other way round.
            let fate = if draw.one_in(2) { Fate::choose(&mut draw) } else { common };
            if reached.contains(&number) { inode.after_crash(fate, &mut draw) } else { Arc::default() }
        });
        let inodes = inodes.collect();
        SimDisk::from_state(State { inodes, names, ..State::default() })
    }

    /// The disk that the next process finds after this one has been killed: everything that was written, with what is
    /// pending still pending. Turns this disk off if it is still on. The hook, limits, counters and locks start anew.
    pub fn after_kill(&self) -> SimDisk {
        self.crash_now();
        let next = self.snapshot();
        next.shared.state().crashed = false;
        next
    }

    /// A second disk that holds what this one holds now, pending writes included. The bytes are shared until one of the
    /// two changes them. The hook, limits, counters and locks start anew. A crash that has happened has happened on
    /// both.
    pub fn snapshot(&self) -> SimDisk {
        let state = self.shared.state();
        SimDisk::from_state(State {
            inodes: state.inodes.clone(),
            names: state.names.clone(),
            crashed: state.crashed,
            ..State::default()
        })
    }

    /// From now on all files together may have `bytes` bytes. A call that would need more is refused with `NoSpace`.
    pub fn no_space_after(&self, bytes: u64) {
        self.shared.state().bytes_max = Some(bytes);
    }

    /// Takes the limit of [`SimDisk::no_space_after`] away.
    pub fn space_for_all(&self) {
        self.shared.state().bytes_max = None;
    }

    /// The bytes of all files that have a name.
    pub fn used_bytes(&self) -> u64 {
        self.shared.state().used_bytes()
    }

    /// All files, sorted. Files in directories have the directory in front.
    pub fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        for name in self.list("").unwrap_or_default() {
            match self.list(&name) {
                Ok(inside) => files.extend(inside.iter().map(|file| format!("{name}/{file}"))),
                Err(_) => files.push(name),
            }
        }
        files
    }

    /// The bytes of a file, or `None` if there is no such file.
    pub fn bytes_of(&self, path: &str) -> Option<Vec<u8>> {
        let file = self.open(path, Open::READ).ok()?;
        let mut bytes = vec![0; usize::try_from(file.len().ok()?).ok()?];
        file.read_at(0, &mut bytes).ok()?;
        Some(bytes)
    }

    /// Has a file hold these bytes, or takes it away, durably.
    ///
    /// # Errors
    /// As of any disk.
    pub fn replace(&self, path: &str, bytes: Option<&[u8]>) -> Result<(), DiskError> {
        if self.exists(path)? {
            self.remove(path)?;
        }
        if let Some(bytes) = bytes {
            let file = self.open(path, Open::CREATE_NEW)?;
            file.write_at(0, bytes)?;
            file.sync()?;
        }
        self.sync_dir(path.rsplit_once('/').map_or("", |(dir, _)| dir))
    }

    /// Sets the function that is called before each operation.
    pub fn set_hook(&self, hook: Hook) {
        *self.shared.hook.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(hook);
    }

    /// What was asked so far.
    pub fn counters(&self) -> SimCounters {
        self.shared.state().counters
    }

    /// A number that is equal for disks with the same names and bytes as a reader sees them: for tests of determinism.
    pub fn fingerprint(&self) -> u64 {
        let state = self.shared.state();
        let mut sum = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |bytes: &[u8]| {
            for byte in bytes {
                sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        for (path, number) in state.names.files() {
            add(path.as_bytes());
            let inode = &state.inodes[number];
            let mut bytes = vec![0; inode.len() as usize];
            inode.read(0, &mut bytes);
            add(&bytes.len().to_le_bytes());
            add(&bytes);
        }
        sum
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn call_hook(&self, what: &'static str) {
        let hook = self.hook.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        if let Some(hook) = hook {
            hook(what);
        }
    }

    /// Runs a call that changes nothing.
    fn look<T>(
        &self,
        path: &str,
        operation: &'static str,
        call: impl FnOnce(&mut State) -> Result<T, DiskErrorKind>,
    ) -> Result<T, DiskError> {
        step_of_device();
        self.call_hook(operation);
        let mut state = self.state();
        let result = if state.crashed { Err(DiskErrorKind::Crashed) } else { call(&mut state) };
        state.counters.operations += 1;
        drop(state);
        step_of_device();
        result.map_err(|kind| DiskError::new(path, operation, kind))
    }

    /// Runs a call that changes something, unless the power is off, and turns it off in the middle if it is time.
    /// `call` is told whether it may make anything durable.
    fn change<T>(
        &self,
        path: &str,
        operation: &'static str,
        call: impl FnOnce(&mut State, bool) -> Result<T, DiskErrorKind>,
    ) -> Result<T, DiskError> {
        step_of_device();
        self.call_hook(operation);
        let fail = |kind| Err(DiskError::new(path, operation, kind));
        let mut state = self.state();
        if state.crashed {
            return fail(DiskErrorKind::Crashed);
        }
        state.counters.operations += 1;
        state.counters.mutations += 1;
        let is_last = state.crash_at == Some(state.counters.mutations);
        let result = call(&mut state, !is_last);
        if is_last {
            state.crashed = true;
            drop(state);
            self.call_hook("crash");
            return fail(DiskErrorKind::Crashed);
        }
        drop(state);
        step_of_device();
        result.or_else(fail)
    }
}

impl State {
    fn inode(&mut self, number: usize) -> &mut Inode {
        Arc::make_mut(&mut self.inodes[number])
    }

    fn used_bytes(&self) -> u64 {
        let numbers: BTreeSet<usize> = self.names.files().map(|(_, number)| number).collect();
        numbers.into_iter().map(|number| self.inodes[number].len()).sum()
    }

    /// Refuses a file that would become longer than the disk has space for, or than any file can be.
    fn check_growth(&self, number: usize, len: u64) -> Result<(), DiskErrorKind> {
        if len > FILE_BYTES_MAX {
            return Err(DiskErrorKind::OutOfRange);
        }
        let growth = len.saturating_sub(self.inodes[number].len());
        match self.bytes_max {
            Some(max) if growth > 0 && self.used_bytes() + growth > max => Err(DiskErrorKind::NoSpace),
            _ => Ok(()),
        }
    }
}

/// How many bytes of a write are done when its process is killed after `cut` of them.
fn done_before_kill(offset: u64, len: u64, cut: u64) -> u64 {
    if cut >= len { len } else { ((offset + cut) / BLOCK_BYTES * BLOCK_BYTES).saturating_sub(offset) }
}

/// `a/./b/` and `a/b` are one file; `.` is the root.
fn normal(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    parts.join("/")
}

impl Disk for SimDisk {
    fn open(&self, path: &str, how: Open) -> Result<Arc<dyn DiskFile>, DiskError> {
        let name = normal(path);
        let found = self.shared.look(path, "open", |state| {
            if state.names.is_dir(&name) {
                return Err(DiskErrorKind::Io(21)); // EISDIR
            }
            Ok(state.names.file(&name))
        })?;
        let number = match found {
            Some(_) if how.create_new => return Err(DiskError::new(path, "open", DiskErrorKind::Exists)),
            Some(number) => number,
            None if !how.create && !how.create_new => {
                return Err(DiskError::new(path, "open", DiskErrorKind::NotFound));
            }
            None => self.shared.change(path, "create", |state, _| {
                // Somebody may have been quicker while the hook waited.
                if let Some(number) = state.names.file(&name) {
                    return if how.create_new { Err(DiskErrorKind::Exists) } else { Ok(number) };
                }
                if !state.names.is_dir(names::dir_of(&name)) {
                    return Err(DiskErrorKind::NotFound);
                }
                let number = state.inodes.len();
                state.inodes.push(Arc::default());
                state.names.change(Change::Create { path: name.clone(), inode: number });
                Ok(number)
            })?,
        };
        let counters = &mut self.shared.state().counters;
        counters.open_files += 1;
        counters.open_files_max = counters.open_files_max.max(counters.open_files);
        Ok(Arc::new(SimFile { shared: self.shared.clone(), name: path.to_owned(), number, read_only: how.read_only }))
    }

    fn exists(&self, path: &str) -> Result<bool, DiskError> {
        let name = normal(path);
        self.shared.look(path, "look up", |state| Ok(state.names.file(&name).is_some() || state.names.is_dir(&name)))
    }

    fn remove(&self, path: &str) -> Result<(), DiskError> {
        let name = normal(path);
        self.shared.change(path, "remove", |state, _| {
            if let Some(inode) = state.names.file(&name) {
                state.names.change(Change::Remove { path: name, inode });
            } else if name.is_empty() || !state.names.is_dir(&name) {
                return Err(DiskErrorKind::NotFound);
            } else if !state.names.list(&name).is_empty() {
                return Err(DiskErrorKind::Io(39)); // ENOTEMPTY
            } else {
                state.names.change(Change::RemoveDir { path: name });
            }
            Ok(())
        })
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        let (old, new) = (normal(from), normal(to));
        self.shared.change(from, "rename", |state, _| {
            let inode = state.names.file(&old).ok_or(DiskErrorKind::NotFound)?;
            if !state.names.is_dir(names::dir_of(&new)) || state.names.is_dir(&new) {
                return Err(DiskErrorKind::NotFound);
            }
            if old != new {
                state.names.change(Change::Rename { from: old, to: new, inode });
            }
            Ok(())
        })
    }

    fn list(&self, dir: &str) -> Result<Vec<String>, DiskError> {
        let name = normal(dir);
        self.shared.look(dir, "list", |state| {
            if state.names.is_dir(&name) { Ok(state.names.list(&name)) } else { Err(DiskErrorKind::NotFound) }
        })
    }

    fn create_dir(&self, dir: &str) -> Result<(), DiskError> {
        let name = normal(dir);
        self.shared.change(dir, "create directory", |state, _| {
            let ends = name.match_indices('/').map(|(at, _)| at).chain([name.len()]);
            for part in ends.map(|end| &name[..end]) {
                if state.names.file(part).is_some() {
                    return Err(DiskErrorKind::Exists);
                }
                if !state.names.is_dir(part) {
                    state.names.change(Change::CreateDir { path: part.to_owned() });
                }
            }
            Ok(())
        })
    }

    fn sync_dir(&self, dir: &str) -> Result<(), DiskError> {
        let name = normal(dir);
        self.shared.change(dir, "sync directory", |state, durable| {
            if !state.names.is_dir(&name) {
                return Err(DiskErrorKind::NotFound);
            }
            state.counters.syncs += 1;
            if durable {
                state.names.sync(&name);
            }
            Ok(())
        })
    }

    fn lock(&self, path: &str) -> Result<Box<dyn DiskLock>, DiskError> {
        drop(self.open(path, Open::CREATE)?);
        let name = normal(path);
        let number = self.shared.look(path, "lock", |state| {
            let number = state.names.file(&name).ok_or(DiskErrorKind::NotFound)?;
            if state.locked.insert(number) { Ok(number) } else { Err(DiskErrorKind::Locked) }
        })?;
        Ok(Box::new(SimLock { shared: self.shared.clone(), name, number }))
    }

    fn describe(&self) -> String {
        "simulated disk".to_owned()
    }
}

struct SimFile {
    shared: Arc<Shared>,
    name: String,
    number: usize,
    read_only: bool,
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.shared.state().counters.open_files -= 1;
    }
}

impl SimFile {
    fn write(&self, operation: &'static str, offset: u64, bytes: &[u8], durably: bool) -> Result<(), DiskError> {
        let result = self.shared.change(&self.name, operation, |state, durable| {
            if self.read_only {
                return Err(DiskErrorKind::Permission);
            }
            let end = offset.checked_add(bytes.len() as u64).ok_or(DiskErrorKind::OutOfRange)?;
            state.check_growth(self.number, end)?;
            let bytes = match state.kill_bytes {
                Some(cut) if !durable => &bytes[..done_before_kill(offset, bytes.len() as u64, cut) as usize],
                _ => bytes,
            };
            state.counters.writes += 1;
            state.counters.write_bytes += bytes.len() as u64;
            state.inode(self.number).write(offset, bytes);
            if durably {
                state.counters.syncs += 1;
                if durable {
                    state.inode(self.number).settle(offset, bytes.len() as u64);
                }
            }
            Ok(())
        });
        result.map_err(|e| e.at(offset))
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        let result = self.shared.look(&self.name, "read", |state| {
            state.counters.reads += 1;
            state.counters.read_bytes += buf.len() as u64;
            let inode = &state.inodes[self.number];
            match offset.checked_add(buf.len() as u64) {
                Some(end) if end <= inode.len() => {
                    inode.read(offset, buf);
                    Ok(())
                }
                _ => Err(DiskErrorKind::ShortRead),
            }
        });
        result.map_err(|e| e.at(offset))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.write("write", offset, bytes, false)
    }

    fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.write("write durably", offset, bytes, true)
    }

    fn sync(&self) -> Result<(), DiskError> {
        self.shared.change(&self.name, "sync", |state, durable| {
            state.counters.syncs += 1;
            if durable {
                state.inode(self.number).sync();
            }
            Ok(())
        })
    }

    fn len(&self) -> Result<u64, DiskError> {
        self.shared.look(&self.name, "length", |state| Ok(state.inodes[self.number].len()))
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.shared.change(&self.name, "allocate", |state, _| {
            if self.read_only {
                return Err(DiskErrorKind::Permission);
            }
            let end = offset.checked_add(len).ok_or(DiskErrorKind::OutOfRange)?;
            state.check_growth(self.number, end)?;
            if end > state.inodes[self.number].len() {
                state.inode(self.number).set_len(end);
            }
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.shared.change(&self.name, "set length", |state, _| {
            if self.read_only {
                return Err(DiskErrorKind::Permission);
            }
            state.check_growth(self.number, len)?;
            state.inode(self.number).set_len(len);
            Ok(())
        })
    }

    fn name(&self) -> &str {
        &self.name
    }
}

struct SimLock {
    shared: Arc<Shared>,
    name: String,
    number: usize,
}

impl DiskLock for SimLock {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_in_place(&self) -> Result<bool, DiskError> {
        self.shared.look(&self.name, "look at lock", |state| Ok(state.names.file(&self.name) == Some(self.number)))
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.shared.state().locked.remove(&self.number);
    }
}
