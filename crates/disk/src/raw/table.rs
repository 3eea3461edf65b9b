//! The table of a raw store, as it is written: names, lengths, and the extents of each file (docs/format/raw.md).
//!
//! Pure: bytes to values and back. Whatever a checksum lets through is checked again here.

use super::names::dir_of;
use super::superblock::{BLOCK_BYTES, Superblock};
use crate::aligned::AlignedBuf;

pub(super) const HEADER_BYTES: usize = 64;
const MAGIC: &[u8; 8] = b"LSTNRTAB";
const CHECKED_FROM: usize = 12;
const ENTRY_BYTES: usize = 24;
const RUN_BYTES: usize = 8;
const DIRECTORY: u8 = 0;
const FILE: u8 = 1;
const NAME_BYTES_MAX: usize = 1024;

/// More extents than this a file cannot have, so that a list of them stays within memory.
pub(super) const EXTENTS_MAX: u64 = 1 << 26;

/// An extent of a file that takes no space and reads as zero.
pub(super) const HOLE: u32 = u32::MAX;

/// A file of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub path: String,
    pub len: u64,
    /// The device's extent of each of the file's. Those that are not listed are holes.
    pub extents: Vec<u32>,
}

/// What a slot says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Table {
    /// Counts the writes of slots, from 1.
    pub generation: u64,
    pub dirs: Vec<String>,
    pub files: Vec<Entry>,
}

/// The bytes that an entry takes, without its runs.
pub(super) fn entry_bytes(path: &str) -> u64 {
    (ENTRY_BYTES + path.len().next_multiple_of(8)) as u64
}

/// Whether a path can be kept.
pub(super) fn is_possible_path(path: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part != "." && part != "..";
    path.len() <= NAME_BYTES_MAX && path.split('/').all(is_part)
}

/// Extents as runs of successive ones: the first and how many.
fn runs(extents: &[u32]) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &extent in extents {
        match runs.last_mut() {
            Some((HOLE, count)) if extent == HOLE => *count += 1,
            Some((first, count)) if *first != HOLE && extent != HOLE && *first + *count == extent => *count += 1,
            _ => runs.push((extent, 1)),
        }
    }
    // Holes at the end are not listed.
    if runs.last().is_some_and(|(first, _)| *first == HOLE) {
        runs.pop();
    }
    runs
}

impl Table {
    /// The bytes of a slot, up to whole blocks.
    pub fn encode(&self, id: &[u8; 16]) -> AlignedBuf {
        let mut bytes = vec![0; HEADER_BYTES];
        for dir in &self.dirs {
            put_entry(&mut bytes, DIRECTORY, dir, 0, &[]);
        }
        for file in &self.files {
            put_entry(&mut bytes, FILE, &file.path, file.len, &runs(&file.extents));
        }
        bytes[..8].copy_from_slice(MAGIC);
        bytes[16..24].copy_from_slice(&self.generation.to_le_bytes());
        let len = bytes.len() as u64;
        bytes[24..32].copy_from_slice(&len.to_le_bytes());
        bytes[32..48].copy_from_slice(id);
        bytes[48..52].copy_from_slice(&((self.dirs.len() + self.files.len()) as u32).to_le_bytes());
        let sum = crc32c::crc32c(&bytes[CHECKED_FROM..]);
        bytes[8..12].copy_from_slice(&sum.to_le_bytes());
        let mut whole = AlignedBuf::new((len.next_multiple_of(BLOCK_BYTES)) as usize);
        whole[..bytes.len()].copy_from_slice(&bytes);
        whole
    }

    /// How many bytes of a slot its first block asks for, and `None` if it cannot be one of this store.
    pub fn len_of(first_block: &[u8], superblock: &Superblock) -> Option<u64> {
        let len = number(first_block, 24)?;
        let is_ours = first_block.get(..8)? == MAGIC && first_block.get(32..48)? == superblock.id;
        (is_ours && (HEADER_BYTES as u64..=superblock.slot_bytes).contains(&len)).then_some(len)
    }

    /// `None` if the bytes are not those of a whole table of this store.
    pub fn decode(bytes: &[u8], superblock: &Superblock) -> Option<Table> {
        let len = Table::len_of(bytes, superblock)?;
        let bytes = bytes.get(..usize::try_from(len).ok()?)?;
        if small(bytes, 8)? != crc32c::crc32c(&bytes[CHECKED_FROM..]) {
            return None;
        }
        let mut table = Table { generation: number(bytes, 16)?, ..Table::default() };
        let mut used = vec![false; usize::try_from(superblock.extent_count).ok()?];
        let mut rest = &bytes[HEADER_BYTES..];
        for _ in 0..small(bytes, 48)? {
            let name_bytes = usize::from(u16::from_le_bytes(rest.get(2..4)?.try_into().ok()?));
            let (run_count, len) = (small(rest, 4)? as usize, number(rest, 8)?);
            let runs_end = ENTRY_BYTES.checked_add(run_count.checked_mul(RUN_BYTES)?)?;
            let path = std::str::from_utf8(rest.get(runs_end..runs_end.checked_add(name_bytes)?)?).ok()?.to_owned();
            if !is_possible_path(&path) || len.div_ceil(superblock.extent_bytes) > EXTENTS_MAX {
                return None;
            }
            let mut extents = Vec::new();
            for run in rest.get(ENTRY_BYTES..runs_end)?.chunks(RUN_BYTES) {
                let (first, count) = (small(run, 0)?, small(run, 4)?);
                if extents.len() as u64 + u64::from(count) > len.div_ceil(superblock.extent_bytes) {
                    return None;
                }
                for no in 0..count {
                    let extent = if first == HOLE { HOLE } else { first.checked_add(no)? };
                    if extent != HOLE && std::mem::replace(used.get_mut(extent as usize)?, true) {
                        return None; // Of two files at once.
                    }
                    extents.push(extent);
                }
            }
            match *rest.first()? {
                DIRECTORY if run_count == 0 => table.dirs.push(path),
                FILE => table.files.push(Entry { path, len, extents }),
                _ => return None,
            }
            rest = rest.get(runs_end + name_bytes.next_multiple_of(8)..)?;
        }
        (rest.is_empty() && table.is_a_tree()).then_some(table)
    }

    /// Whether each name is there once, and in a directory.
    fn is_a_tree(&self) -> bool {
        let mut dirs: Vec<&str> = self.dirs.iter().map(String::as_str).collect();
        dirs.sort_unstable();
        let mut names: Vec<&str> = self.files.iter().map(|file| file.path.as_str()).chain(dirs.clone()).collect();
        names.sort_unstable();
        names.is_sorted_by(|one, next| one < next)
            && names.iter().map(|name| dir_of(name)).all(|dir| dir.is_empty() || dirs.binary_search(&dir).is_ok())
    }
}

fn put_entry(bytes: &mut Vec<u8>, kind: u8, path: &str, len: u64, runs: &[(u32, u32)]) {
    bytes.extend([kind, 0]);
    bytes.extend((path.len() as u16).to_le_bytes());
    bytes.extend((runs.len() as u32).to_le_bytes());
    bytes.extend(len.to_le_bytes());
    bytes.extend([0; 8]);
    for (first, count) in runs {
        bytes.extend(first.to_le_bytes());
        bytes.extend(count.to_le_bytes());
    }
    bytes.extend(path.as_bytes());
    bytes.resize(bytes.len().next_multiple_of(8), 0);
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn small(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
