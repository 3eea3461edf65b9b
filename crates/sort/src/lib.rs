//! Sorts more entries than memory holds. Sorted runs go to a file without a name, and are merged as they are given out.
//!
//! ```text
//!  entries ─► memory, full ─► sorted run in the file ─┐
//!             ...             ...                     ├─► merged, in order
//!             memory, the last ─► sorted run ─────────┘
//! ```
//! O1. The file's name is removed as soon as the file is open. Whatever ends the process, the space is given back. A
//!     crash in between leaves a name, which the next open removes ([`remove_leftovers`]).
//! O2. Nothing is synced, because a crash also ends the transaction that sorts.
//! O3. Memory stays within what was asked for. While runs are made, it holds the entries to come. While they are
//!     merged, it holds a chunk of each run. If there are more runs than chunks fit into memory, they are first merged
//!     into longer ones.
//! O4. A run that cannot be written stays in memory. A caller that was refused can still take all entries that it has
//!     pushed, in order.
//!
//! ```text
//! chunk, 64 KiB:  crc32c u32 of what follows, used u32, then used bytes of the run; an entry may go on in the next chunk
//! run:            entries, each { key length u32, value length u32, key, value }
//! ```
//!
//! This crate knows neither tables nor transactions. Indexes are filled and emptied through it, and a restart undoes a
//! large transaction through it.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

use std::cmp::{Ordering, Reverse};
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ledgerstone_disk::{AlignedBuf, Disk, DiskError, DiskErrorKind, DiskFile, Open};
use thiserror::Error;

const CHUNK_BYTES: usize = 64 << 10;
const CHUNK_HEAD_BYTES: usize = 8;
const ENTRY_HEAD_BYTES: usize = 8;
const PREFIX: &str = "sort-";
const SUFFIX: &str = ".tmp";

/// Why a sort failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SortError {
    /// The temporary file cannot be made, written or read.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The temporary file does not contain what was written to it. Nothing else is damaged. Repeat the call that needed
    /// the sort.
    #[error("the temporary file of a sort is damaged in the chunk at {at}")]
    Damaged {
        /// Where the chunk begins in the file, in bytes.
        at: u64,
    },
}

/// Takes the next entry: key and value.
type Give<'g, E> = dyn FnMut(&[u8], &[u8]) -> Result<(), E> + 'g;

/// Takes entries in any order. Give them back in theirs with [`Sorter::give_all`].
pub struct Sorter {
    disk: Arc<dyn Disk>,
    bytes_max: usize,
    /// Entries as in a run, and each one's place.
    bytes: Vec<u8>,
    places: Vec<Place>,
    file: Option<Arc<dyn DiskFile>>,
    file_bytes: u64,
    runs: VecDeque<Run>,
}

/// An entry in memory.
#[derive(Clone, Copy)]
struct Place {
    /// The first bytes of the key, which decide most comparisons without a look at the entry.
    key_head: u64,
    at: usize,
}

impl std::fmt::Debug for Sorter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sorter").field("runs", &self.runs.len()).finish_non_exhaustive()
    }
}

/// Chunks that lie one behind the other.
#[derive(Clone, Copy)]
struct Run {
    at: u64,
    chunk_count: u64,
}

impl Sorter {
    /// Sorts with about `bytes_max` bytes of memory, and with a file on `disk` if that is too little.
    #[must_use]
    pub fn new(disk: &Arc<dyn Disk>, bytes_max: usize) -> Sorter {
        Sorter {
            disk: Arc::clone(disk),
            bytes_max: bytes_max.max(4 * CHUNK_BYTES),
            bytes: Vec::new(),
            places: Vec::new(),
            file: None,
            file_bytes: 0,
            runs: VecDeque::new(),
        }
    }

    /// Takes an entry. May write.
    ///
    /// # Errors
    /// No space, the disk's. The entry has been taken all the same, and [`Sorter::give_all`] works (O4).
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), SortError> {
        if self.bytes.capacity() == 0 {
            self.bytes.reserve_exact(self.bytes_max); // What grows step by step leaves holes in memory.
        }
        self.places.push(Place { key_head: key_head(key), at: self.bytes.len() });
        self.bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        if self.bytes.len() + self.places.len() * size_of::<Place>() > self.bytes_max {
            self.write_run()?;
        }
        Ok(())
    }

    /// Gives out all entries in the order of their keys. Entries with one key come in the order of their values. Reads
    /// the file, and writes it if it has to.
    ///
    /// # Errors
    /// What `give` returns, a failure of the disk, or damage of the file.
    pub fn give_all<E: From<SortError>>(mut self, give: &mut Give<'_, E>) -> Result<(), E> {
        self.sort();
        if self.runs.is_empty() {
            return self.places.iter().try_for_each(|place| {
                let (key, value) = entry_at(&self.bytes, place.at);
                give(key, value)
            });
        }
        if self.write_run().is_ok() {
            (self.bytes, self.places) = (Vec::new(), Vec::new());
        }
        let fan_in = (self.bytes_max / CHUNK_BYTES).max(3) - 1; // One chunk is written.
        while self.runs.len() > fan_in {
            match self.merge_first(fan_in) {
                Err(SortError::Disk(_)) => break,
                done => done?,
            }
        }
        let runs: Vec<Run> = self.runs.iter().copied().collect();
        let mut heads = self.heads(&runs, &self.places)?;
        while let Some(least) = heads.peek() {
            let (key, value) = least.0.entry();
            give(key, value)?;
            step(&mut heads)?;
        }
        Ok(())
    }

    /// Merges the first runs into one, which comes last. If the disk refuses, nothing has changed, and
    /// there are more runs than memory was asked for (O4).
    fn merge_first(&mut self, count: usize) -> Result<(), SortError> {
        let first: Vec<Run> = self.runs.iter().take(count).copied().collect();
        let mut to = RunWriter::new(self.file()?, self.file_bytes);
        let mut heads = self.heads(&first, &[])?;
        while let Some(least) = heads.peek() {
            let (key, value) = least.0.entry();
            to.put(key, value)?;
            step(&mut heads)?;
        }
        drop(heads);
        self.end_run(to)?;
        self.runs.drain(..count);
        Ok(())
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.places.sort_unstable_by(|a, b| {
            a.key_head.cmp(&b.key_head).then_with(|| entry_at(bytes, a.at).cmp(&entry_at(bytes, b.at)))
        });
    }

    /// Writes what is in memory, in order, and forgets it.
    fn write_run(&mut self) -> Result<(), SortError> {
        if self.places.is_empty() {
            return Ok(());
        }
        self.sort();
        let mut to = RunWriter::new(self.file()?, self.file_bytes);
        for place in &self.places {
            let (key, value) = entry_at(&self.bytes, place.at);
            to.put(key, value)?;
        }
        self.end_run(to)?;
        self.bytes.clear();
        self.places.clear();
        Ok(())
    }

    fn end_run(&mut self, to: RunWriter) -> Result<(), SortError> {
        let run = to.finish()?;
        self.file_bytes = run.at + run.chunk_count * CHUNK_BYTES as u64;
        self.runs.push_back(run);
        Ok(())
    }

    /// The file, which is made when it is first needed (O1).
    fn file(&mut self) -> Result<Arc<dyn DiskFile>, SortError> {
        static GIVEN_COUNT: AtomicU64 = AtomicU64::new(0);
        if let Some(file) = &self.file {
            return Ok(Arc::clone(file));
        }
        loop {
            let name = format!("{PREFIX}{}{SUFFIX}", GIVEN_COUNT.fetch_add(1, Relaxed));
            match self.disk.open(&name, Open::CREATE_NEW.direct()) {
                Ok(file) => {
                    self.disk.remove(&name)?;
                    self.file = Some(Arc::clone(&file));
                    return Ok(file);
                }
                Err(error) if matches!(error.kind, DiskErrorKind::Exists) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The first entries of runs, and of what is in memory.
    fn heads<'s>(&'s self, runs: &[Run], places: &'s [Place]) -> Result<Heads<'s>, SortError> {
        let mut heads = BinaryHeap::with_capacity(runs.len() + 1);
        for &run in runs {
            let Some(file) = &self.file else { break };
            let mut reader = RunReader::new(Arc::clone(file), run);
            if reader.step()? {
                heads.push(Reverse(Head::Run(reader)));
            }
        }
        if !places.is_empty() {
            heads.push(Reverse(Head::Memory { bytes: &self.bytes, left: places }));
        }
        Ok(heads)
    }
}

type Heads<'s> = BinaryHeap<Reverse<Head<'s>>>;

/// Takes the least entry away.
fn step(heads: &mut Heads<'_>) -> Result<(), SortError> {
    if let Some(mut least) = heads.peek_mut()
        && !least.0.step()?
    {
        PeekMut::pop(least);
    }
    Ok(())
}

/// What entries come from, in order; ordered by the entry it stands on.
enum Head<'s> {
    Run(RunReader),
    /// At least one.
    Memory {
        bytes: &'s [u8],
        left: &'s [Place],
    },
}

impl Head<'_> {
    fn entry(&self) -> (&[u8], &[u8]) {
        match self {
            Head::Run(reader) => reader.entry(),
            Head::Memory { bytes, left } => entry_at(bytes, left[0].at),
        }
    }

    /// Goes to the next entry; false at the end.
    fn step(&mut self) -> Result<bool, SortError> {
        match self {
            Head::Run(reader) => reader.step(),
            Head::Memory { left, .. } => {
                if left.len() > 1 {
                    *left = &left[1..];
                    return Ok(true);
                }
                Ok(false)
            }
        }
    }
}

/// Removes files that a crash in the middle of a sort has left. The caller must have the environment alone.
///
/// # Errors
/// A failure of the disk.
pub fn remove_leftovers(disk: &dyn Disk) -> Result<(), DiskError> {
    for name in disk.list("")? {
        if name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX)).is_some_and(is_number) {
            disk.remove(&name)?;
        }
    }
    Ok(())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn key_head(key: &[u8]) -> u64 {
    let mut head = [0; 8];
    head.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    u64::from_be_bytes(head)
}

fn entry_at(bytes: &[u8], at: usize) -> (&[u8], &[u8]) {
    let (key_len, value_len) = lens(&bytes[at..]);
    bytes[at + ENTRY_HEAD_BYTES..][..key_len + value_len].split_at(key_len)
}

fn lens(head: &[u8]) -> (usize, usize) {
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|no| head[at + no])) as usize;
    (word(0), word(4))
}

struct RunWriter {
    file: Arc<dyn DiskFile>,
    chunk: AlignedBuf,
    used: usize,
    run: Run,
}

impl RunWriter {
    fn new(file: Arc<dyn DiskFile>, at: u64) -> RunWriter {
        let run = Run { at, chunk_count: 0 };
        RunWriter { file, chunk: AlignedBuf::new(CHUNK_BYTES), used: CHUNK_HEAD_BYTES, run }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), SortError> {
        self.put_bytes(&(key.len() as u32).to_le_bytes())?;
        self.put_bytes(&(value.len() as u32).to_le_bytes())?;
        self.put_bytes(key)?;
        self.put_bytes(value)
    }

    fn put_bytes(&mut self, mut bytes: &[u8]) -> Result<(), SortError> {
        while !bytes.is_empty() {
            if self.used == CHUNK_BYTES {
                self.write()?;
            }
            let (now, rest) = bytes.split_at(bytes.len().min(CHUNK_BYTES - self.used));
            self.chunk[self.used..self.used + now.len()].copy_from_slice(now);
            self.used += now.len();
            bytes = rest;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), SortError> {
        self.chunk[self.used..].fill(0);
        let used = (self.used - CHUNK_HEAD_BYTES) as u32;
        self.chunk[4..8].copy_from_slice(&used.to_le_bytes());
        let crc = crc32c::crc32c(&self.chunk[4..]);
        self.chunk[..4].copy_from_slice(&crc.to_le_bytes());
        self.file.write_at(self.run.at + self.run.chunk_count * CHUNK_BYTES as u64, &self.chunk)?;
        self.run.chunk_count += 1;
        self.used = CHUNK_HEAD_BYTES;
        Ok(())
    }

    fn finish(mut self) -> Result<Run, SortError> {
        if self.used > CHUNK_HEAD_BYTES {
            self.write()?;
        }
        Ok(self.run)
    }
}

/// Reads a run.
struct RunReader {
    file: Arc<dyn DiskFile>,
    left: Run,
    chunk: AlignedBuf,
    at: usize,
    end: usize,
    key_len: usize,
    entry: Vec<u8>,
}

impl RunReader {
    fn new(file: Arc<dyn DiskFile>, run: Run) -> RunReader {
        let chunk = AlignedBuf::new(CHUNK_BYTES);
        RunReader { file, left: run, chunk, at: 0, end: 0, key_len: 0, entry: Vec::new() }
    }

    fn entry(&self) -> (&[u8], &[u8]) {
        self.entry.split_at(self.key_len)
    }

    /// Goes to the next entry; false at the end.
    fn step(&mut self) -> Result<bool, SortError> {
        if self.at == self.end && self.left.chunk_count == 0 {
            return Ok(false);
        }
        let mut head = std::mem::take(&mut self.entry);
        self.key_len = 0; // If reading fails, it stands on an empty entry.
        head.clear();
        self.take(ENTRY_HEAD_BYTES, &mut head)?;
        let (key_len, value_len) = lens(&head);
        head.clear();
        self.take(key_len + value_len, &mut head)?;
        (self.key_len, self.entry) = (key_len, head);
        Ok(true)
    }

    fn take(&mut self, mut count: usize, to: &mut Vec<u8>) -> Result<(), SortError> {
        while count > 0 {
            if self.at == self.end {
                self.read()?;
            }
            let now = count.min(self.end - self.at);
            to.extend_from_slice(&self.chunk[self.at..self.at + now]);
            self.at += now;
            count -= now;
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), SortError> {
        let damaged = |at| SortError::Damaged { at };
        if self.left.chunk_count == 0 {
            return Err(damaged(self.left.at));
        }
        self.file.read_at(self.left.at, &mut self.chunk)?;
        let (crc, used) = lens(&self.chunk);
        if crc as u32 != crc32c::crc32c(&self.chunk[4..]) || used == 0 || used > CHUNK_BYTES - CHUNK_HEAD_BYTES {
            return Err(damaged(self.left.at));
        }
        (self.at, self.end) = (CHUNK_HEAD_BYTES, CHUNK_HEAD_BYTES + used);
        self.left = Run { at: self.left.at + CHUNK_BYTES as u64, chunk_count: self.left.chunk_count - 1 };
        Ok(())
    }
}

impl Ord for Head<'_> {
    fn cmp(&self, other: &Head<'_>) -> Ordering {
        self.entry().cmp(&other.entry())
    }
}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Head<'_>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Head<'_>) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head<'_> {}

#[cfg(test)]
mod tests {
    use ledgerstone_disk::{Call, Fault, FaultDisk, Harm, SimDisk};

    use super::*;

    type Entries = Vec<(Vec<u8>, Vec<u8>)>;

    /// `count` entries in no order, some of them longer than a chunk, some equal.
    fn entries(count: u64) -> Entries {
        let entry = |n: u64| {
            let mixed = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (count / 2 + 1);
            let len = if n % 5000 == 7 { 150_000 } else { (n % 60) as usize };
            ([b"key", &mixed.to_be_bytes()[..]].concat(), vec![n as u8; len])
        };
        (0..count).map(entry).collect()
    }

    fn sorted_by(disk: &Arc<dyn Disk>, entries: &Entries) -> Result<Entries, SortError> {
        let mut sorter = Sorter::new(disk, 0);
        entries.iter().try_for_each(|(key, value)| sorter.push(key, value))?;
        let mut given = Vec::new();
        sorter.give_all(&mut |key, value| {
            given.push((key.to_vec(), value.to_vec()));
            Ok::<_, SortError>(())
        })?;
        Ok(given)
    }

    #[test]
    fn any_number_of_entries_comes_back_in_order() {
        for count in [0, 1, 2, 1000, 30_000] {
            let sim = SimDisk::new();
            let disk: Arc<dyn Disk> = Arc::new(sim.clone());
            let entries = entries(count);
            let given = sorted_by(&disk, &entries).unwrap();
            let mut expected = entries;
            expected.sort();
            assert!(given == expected, "{count} entries");
            assert_eq!(sim.counters().writes > 10, count > 1000, "{count} entries: several passes");
            assert!(disk.list("").unwrap().is_empty(), "no name is left");
        }
    }

    #[test]
    fn what_the_device_changes_is_found() {
        for (call, nth) in [(Call::Read, 3), (Call::Write, 2), (Call::Write, 9), (Call::Read, 40)] {
            let disk = FaultDisk::new(Arc::new(SimDisk::new()));
            disk.add(Fault::at(call, nth, Harm::FlipBit(77_777)));
            let found = sorted_by(&(Arc::new(disk) as Arc<dyn Disk>), &entries(20_000));
            assert!(matches!(found, Err(SortError::Damaged { .. })), "{:?}", found.map(|given| given.len()));
        }
    }

    #[test]
    fn whoever_finds_the_disk_full_has_lost_nothing() {
        for full_at in [1, 2, 40] {
            let disk = FaultDisk::new(Arc::new(SimDisk::new()));
            disk.add(Fault::at(Call::Write, full_at, Harm::Fail(DiskErrorKind::NoSpace)).from_then_on());
            let disk: Arc<dyn Disk> = Arc::new(disk);
            let mut expected = entries(30_000);
            let mut sorter = Sorter::new(&disk, 0);
            let mut count = 0;
            for (key, value) in &expected {
                count += 1;
                if let Err(error) = sorter.push(key, value) {
                    assert!(matches!(error, SortError::Disk(_)), "{error}");
                    break;
                }
            }
            assert!(count < expected.len(), "the disk was not full");
            expected.truncate(count);
            expected.sort();
            let mut given = Vec::new();
            sorter
                .give_all(&mut |key, value| {
                    given.push((key.to_vec(), value.to_vec()));
                    Ok::<_, SortError>(())
                })
                .unwrap();
            assert!(given == expected, "full at write {full_at}: {} of {count}", given.len());
        }
    }

    #[test]
    fn names_that_a_crash_left_are_removed_and_no_others() {
        let disk = SimDisk::new();
        for name in ["sort-0.tmp", "sort-17.tmp", "sort-x.tmp", "sort-.tmp", "data", "sort-1.tmpx"] {
            disk.open(name, Open::CREATE).unwrap();
        }
        remove_leftovers(&disk).unwrap();
        assert_eq!(disk.list("").unwrap(), ["data", "sort-.tmp", "sort-1.tmpx", "sort-x.tmp"]);
    }
}
