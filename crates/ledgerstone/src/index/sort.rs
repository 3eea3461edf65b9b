//! Sorting of more entries than there is memory for: sorted runs in a file without a name, merged as they are given out.
//!
//! ```text
//!  entries ─► memory, full ─► sorted run in the file ─┐
//!             ...             ...                     ├─► merged, in order
//!             memory, the last ─► sorted run ─────────┘
//! ```
//! O1. The file's name is taken away as soon as the file is open: whatever ends the process, the space comes back with it. A crash
//!     in between leaves a name, which the next open removes ([`remove_leftovers`]).
//! O2. Nothing is synced: a crash takes the transaction that sorts, too.
//! O3. Memory is what was asked for: while runs are made for the entries to come, while they are merged for a chunk of each. More runs than
//!     there is memory for chunks are first merged into longer ones.
//!
//! ```text
//! chunk, 64 KiB:  crc32c u32 of what follows, used u32, then used bytes of the run; an entry may go on in the next chunk
//! run:            entries, each { key length u32, value length u32, key, value }
//! ```

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ledgerstone_disk::{AlignedBuf, Disk, DiskErrorKind, DiskFile, Open};

use crate::Error;

const CHUNK_BYTES: usize = 64 << 10;
const CHUNK_HEAD_BYTES: usize = 8;
const ENTRY_HEAD_BYTES: usize = 8;
/// Memory of an entry beside its bytes: its head, and its place.
const ENTRY_BYTES: usize = ENTRY_HEAD_BYTES + size_of::<usize>();
const PREFIX: &str = "sort-";
const SUFFIX: &str = ".tmp";

/// Takes the next entry: key and value.
type Give<'g> = dyn FnMut(&[u8], &[u8]) -> Result<(), Error> + 'g;

/// Takes entries in any order. Give them back in theirs with [`Sorter::give_all`].
pub(super) struct Sorter {
    disk: Arc<dyn Disk>,
    bytes_max: usize,
    /// Entries as in a run, and where each begins.
    bytes: Vec<u8>,
    places: Vec<usize>,
    file: Option<Arc<dyn DiskFile>>,
    file_bytes: u64,
    runs: VecDeque<Run>,
}

/// Chunks that lie one behind the other.
#[derive(Clone, Copy)]
struct Run {
    at: u64,
    chunk_count: u64,
}

impl Sorter {
    /// Uses about `bytes_max` bytes of memory.
    pub(super) fn new(disk: &Arc<dyn Disk>, bytes_max: usize) -> Sorter {
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
    /// No space, the disk's.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.places.push(self.bytes.len());
        self.bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        if self.bytes.len() + self.places.len() * (ENTRY_BYTES - ENTRY_HEAD_BYTES) > self.bytes_max {
            self.write_run()?;
        }
        Ok(())
    }

    /// Gives all entries, by rising keys, and of one key by rising values. Reads.
    ///
    /// # Errors
    /// What `give` returns; no space, the disk's, damage of the file.
    pub(super) fn give_all(mut self, give: &mut Give<'_>) -> Result<(), Error> {
        if self.runs.is_empty() {
            self.sort();
            return self.places.iter().try_for_each(|&place| {
                let (key, value) = entry_at(&self.bytes, place);
                give(key, value)
            });
        }
        self.write_run()?;
        (self.bytes, self.places) = (Vec::new(), Vec::new());
        let fan_in = (self.bytes_max / CHUNK_BYTES).max(3) - 1; // One chunk is written.
        while self.runs.len() > fan_in {
            let first: Vec<Run> = self.runs.drain(..fan_in).collect();
            let mut to = RunWriter::new(self.file()?, self.file_bytes);
            self.merge(&first, &mut |key, value| to.put(key, value))?;
            self.end_run(to)?;
        }
        let runs: Vec<Run> = self.runs.iter().copied().collect();
        self.merge(&runs, give)
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.places.sort_unstable_by(|&a, &b| entry_at(bytes, a).cmp(&entry_at(bytes, b)));
    }

    fn write_run(&mut self) -> Result<(), Error> {
        if self.places.is_empty() {
            return Ok(());
        }
        self.sort();
        let mut to = RunWriter::new(self.file()?, self.file_bytes);
        for &place in &self.places {
            let (key, value) = entry_at(&self.bytes, place);
            to.put(key, value)?;
        }
        self.bytes.clear();
        self.places.clear();
        self.end_run(to)
    }

    fn end_run(&mut self, to: RunWriter) -> Result<(), Error> {
        let run = to.finish()?;
        self.file_bytes = run.at + run.chunk_count * CHUNK_BYTES as u64;
        self.runs.push_back(run);
        Ok(())
    }

    /// The file, which is made when it is first needed (O1).
    fn file(&mut self) -> Result<Arc<dyn DiskFile>, Error> {
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

    fn merge(&mut self, runs: &[Run], give: &mut Give<'_>) -> Result<(), Error> {
        let file = self.file()?;
        let mut heads = BinaryHeap::with_capacity(runs.len());
        for &run in runs {
            let mut reader = RunReader::new(Arc::clone(&file), run);
            if reader.step()? {
                heads.push(Reverse(reader));
            }
        }
        while let Some(mut least) = heads.peek_mut() {
            let (key, value) = least.0.entry();
            give(key, value)?;
            if !least.0.step()? {
                std::collections::binary_heap::PeekMut::pop(least);
            }
        }
        Ok(())
    }
}

/// Removes what a crash has left of the names of sorts. For who has the environment alone.
///
/// # Errors
/// The disk's.
pub(crate) fn remove_leftovers(disk: &dyn Disk) -> Result<(), Error> {
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

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.put_bytes(&(key.len() as u32).to_le_bytes())?;
        self.put_bytes(&(value.len() as u32).to_le_bytes())?;
        self.put_bytes(key)?;
        self.put_bytes(value)
    }

    fn put_bytes(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
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

    fn write(&mut self) -> Result<(), Error> {
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

    fn finish(mut self) -> Result<Run, Error> {
        if self.used > CHUNK_HEAD_BYTES {
            self.write()?;
        }
        Ok(self.run)
    }
}

/// Reads a run; ordered by the entry it stands on.
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
    fn step(&mut self) -> Result<bool, Error> {
        if self.at == self.end && self.left.chunk_count == 0 {
            return Ok(false);
        }
        let mut head = std::mem::take(&mut self.entry);
        head.clear();
        self.take(ENTRY_HEAD_BYTES, &mut head)?;
        let (key_len, value_len) = lens(&head);
        head.clear();
        self.take(key_len + value_len, &mut head)?;
        (self.key_len, self.entry) = (key_len, head);
        Ok(true)
    }

    fn take(&mut self, mut count: usize, to: &mut Vec<u8>) -> Result<(), Error> {
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

    fn read(&mut self) -> Result<(), Error> {
        let damaged = |at: u64| Error::Corrupt { what: format!("temporary file of a sort, chunk at {at}") };
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

impl Ord for RunReader {
    fn cmp(&self, other: &RunReader) -> Ordering {
        self.entry().cmp(&other.entry())
    }
}

impl PartialOrd for RunReader {
    fn partial_cmp(&self, other: &RunReader) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for RunReader {
    fn eq(&self, other: &RunReader) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for RunReader {}

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

    fn sorted_by(disk: &Arc<dyn Disk>, entries: &Entries) -> Result<Entries, Error> {
        let mut sorter = Sorter::new(disk, 0);
        entries.iter().try_for_each(|(key, value)| sorter.push(key, value))?;
        let mut given = Vec::new();
        sorter.give_all(&mut |key, value| {
            given.push((key.to_vec(), value.to_vec()));
            Ok(())
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
        let disk = FaultDisk::new(Arc::new(SimDisk::new()));
        disk.add(Fault::at(Call::Read, 3, Harm::FlipBit(77_777)));
        let found = sorted_by(&(Arc::new(disk) as Arc<dyn Disk>), &entries(20_000));
        assert!(matches!(found, Err(Error::Corrupt { .. })), "{:?}", found.map(|given| given.len()));
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
