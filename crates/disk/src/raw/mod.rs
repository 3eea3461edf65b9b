//! [`RawDisk`]: the files of an environment on a block device that has no file system.
//!
//! ```text
//!  superblock  copy  table, slot 0  table, slot 1  extent 0  extent 1  ...
//! ```
//! The device is cut into extents of equal size. A table says which names there are, how long each file is, and which
//! extents it has. The table is small and is in memory; it is written when a length, a set of extents or a name is to
//! become durable, and not when bytes are. The format is in docs/format/raw.md.
//!
//! | file | what |
//! | --- | --- |
//! | `flat` | what a raw store stands on: a device, or a file of another disk |
//! | `device` | a block device |
//! | `superblock`, `table`, `slots` | the format, and how the table is written so that a crash leaves a whole one |
//! | `space` | free extents |
//! | `inode` | the bytes of a file, and which of them were written (R1 to R4) |
//! | `shared` | names, and the commit of the table (W1 to W5) |
//! | `file` | reads and writes |
//! | `planted` | bugs that the crash harness must find |

mod device;
mod file;
mod flat;
mod inode;
mod names;
mod planted;
mod shared;
mod slots;
mod space;
mod superblock;
mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use ledgerstone_region::sync::random_u64;

use self::file::RawFile;
use self::inode::{Body, Inode};
use self::names::{dir_of, normal, with_those_above};
use self::shared::{FoundBlocks, Hold, Shared, State, lock};
use self::superblock::{Found, Superblock};
use self::table::{Table, entry_bytes, is_possible_path};
use crate::disk::{Disk, DiskFile, DiskLock, Open};
use crate::error::{DiskError, DiskErrorKind};

pub use device::Device;
pub use flat::{Claim, Flat, FlatFile};
pub use planted::RawBug;

/// The files of a raw store. Clones are the same store.
///
/// Nobody else has the device meanwhile. When the last lock is given back ([`Disk::lock`]), the device is free for
/// others, though handles may be left. Calls on those are refused once the device was locked again.
#[derive(Clone)]
pub struct RawDisk {
    shared: Arc<Shared>,
}

/// How a device is formatted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Format {
    /// Bytes of an extent, a power of two from 4096 to 1 GiB. Drawn from the size of the device if `None`.
    pub extent_bytes: Option<u64>,
    /// Formats a device that is not empty, too. What is on it is lost.
    pub overwrites: bool,
}

/// Whether two arcs are the same file.
fn is_same(one: &Arc<Inode>, other: &Arc<Inode>) -> bool {
    Arc::ptr_eq(one, other)
}

impl RawDisk {
    /// Opens a raw store.
    ///
    /// # Errors
    /// `NotOurs` if there is something else on the device. `NotFormatted` if there is nothing, or formatting was cut
    /// short. `Damaged` if neither copy of the superblock is whole, or neither slot of the table. `Locked` and `InUse`
    /// if somebody else has the device. Otherwise a failure of the device.
    pub fn open(flat: Box<dyn Flat>) -> Result<RawDisk, DiskError> {
        let claim = flat.claim()?;
        let superblock = find(&*flat)?;
        Ok(RawDisk { shared: Arc::new(Shared::load(flat, claim, superblock)?) })
    }

    /// Opens a raw store, and formats the device before if it is empty or formatting was cut short.
    ///
    /// # Errors
    /// As [`RawDisk::open`]. `OutOfRange` if the device is too small, or the extents are of a size that cannot be.
    pub fn open_or_format(flat: Box<dyn Flat>, format: Format) -> Result<RawDisk, DiskError> {
        let claim = flat.claim()?;
        let superblock = match find(&*flat) {
            Ok(_) if format.overwrites => write_format(&*flat, format)?,
            Err(error) if error.kind == DiskErrorKind::NotFormatted => write_format(&*flat, format)?,
            Err(error) if format.overwrites && is_about_contents(error.kind) => write_format(&*flat, format)?,
            found => found?,
        };
        Ok(RawDisk { shared: Arc::new(Shared::load(flat, claim, superblock)?) })
    }

    /// Bytes of extents that no file has.
    pub fn free_bytes(&self) -> u64 {
        self.shared.state.lock().space.free_count() * self.shared.superblock().extent_bytes
    }

    fn error(&self, path: &str, operation: &'static str, kind: DiskErrorKind) -> DiskError {
        DiskError::new(self.full(path), operation, kind)
    }

    fn full(&self, path: &str) -> String {
        format!("{}/{path}", self.shared.flat.name())
    }

    /// Changes names.
    fn change<T>(
        &self,
        path: &str,
        operation: &'static str,
        change: impl FnOnce(&mut State) -> Result<T, DiskErrorKind>,
    ) -> Result<T, DiskError> {
        let mut state = self.shared.state.lock();
        change(&mut state).map_err(|kind| self.error(path, operation, kind))
    }

    /// A new name takes space in the table.
    fn add_name(&self, state: &mut State, path: &str) -> Result<(), DiskErrorKind> {
        if !is_possible_path(path) {
            return Err(DiskErrorKind::OutOfRange);
        }
        if state.names_bytes + entry_bytes(path) > self.shared.superblock().names_bytes_max() {
            return Err(DiskErrorKind::NoSpace);
        }
        state.names_bytes += entry_bytes(path);
        touch(state);
        Ok(())
    }
}

fn touch(state: &mut State) {
    state.seq += 1;
    state.names_changed_at = state.seq;
}

fn take_name(state: &mut State, path: &str) -> Option<Arc<Inode>> {
    let inode = state.files.remove(path)?;
    state.names_bytes -= entry_bytes(path);
    touch(state);
    Some(inode)
}

fn is_dir(state: &State, path: &str) -> bool {
    path.is_empty() || state.dirs.contains(path)
}

/// The superblock of a raw store.
fn find(flat: &dyn Flat) -> Result<FoundBlocks, DiskError> {
    match Superblock::find(flat)? {
        Found::Ours { superblock, is_pair } => Ok(FoundBlocks { superblock, is_pair }),
        Found::Blank | Found::Unfinished => Err(DiskError::new(flat.name(), "open", DiskErrorKind::NotFormatted)),
    }
}

/// Whether formatting makes the error good.
fn is_about_contents(kind: DiskErrorKind) -> bool {
    matches!(kind, DiskErrorKind::NotOurs | DiskErrorKind::Damaged | DiskErrorKind::NewerFormat)
}

/// Formats a device. The superblock says that it is not finished until all else is durable.
fn write_format(flat: &dyn Flat, format: Format) -> Result<FoundBlocks, DiskError> {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&random_u64().to_le_bytes());
    id[8..].copy_from_slice(&random_u64().to_le_bytes());
    let superblock = Superblock::new(flat, format.extent_bytes, id)?;
    Superblock { is_finished: false, ..superblock }.write(flat)?;
    superblock::zero_ends(flat)?;
    for generation in [1, 2] {
        slots::write(flat, &superblock, &Table { generation, ..Table::default() })?;
    }
    flat.sync()?;
    superblock.write(flat)?;
    Ok(FoundBlocks { superblock, is_pair: true })
}

impl Disk for RawDisk {
    fn open(&self, path: &str, how: Open) -> Result<Arc<dyn DiskFile>, DiskError> {
        let name = normal(path);
        let inode = self.change(path, "open", |state| {
            let found = state.files.get(&name).cloned();
            let inode = match found {
                _ if is_dir(state, &name) => return Err(DiskErrorKind::NotRegular),
                Some(_) if how.create_new => return Err(DiskErrorKind::Exists),
                Some(inode) => inode,
                None if !how.create && !how.create_new || !is_dir(state, dir_of(&name)) => {
                    return Err(DiskErrorKind::NotFound);
                }
                None => {
                    self.add_name(state, &name)?;
                    let inode = Arc::new(Inode::new(self.shared.epoch(), Body::default()));
                    state.files.insert(&name, Arc::clone(&inode));
                    inode
                }
            };
            inode.handle_count.fetch_add(1, SeqCst);
            Ok(inode)
        })?;
        let (shared, name) = (Arc::clone(&self.shared), self.full(path));
        Ok(Arc::new(RawFile { shared, inode, name, read_only: how.read_only }))
    }

    fn exists(&self, path: &str) -> Result<bool, DiskError> {
        let (name, state) = (normal(path), self.shared.state.lock());
        Ok(state.files.contains(&name) || is_dir(&state, &name))
    }

    fn remove(&self, path: &str) -> Result<(), DiskError> {
        let name = normal(path);
        self.change(path, "remove", |state| {
            if let Some(inode) = take_name(state, &name) {
                Shared::unname(state, &inode);
                return Ok(());
            }
            let inside = format!("{name}/");
            if !state.dirs.contains(&name) {
                return Err(DiskErrorKind::NotFound);
            }
            if state.files.keys().chain(state.dirs.keys()).any(|path| path.starts_with(&inside)) {
                return Err(DiskErrorKind::Io(libc::ENOTEMPTY));
            }
            state.dirs.remove(&name);
            state.names_bytes -= entry_bytes(&name);
            touch(state);
            Ok(())
        })
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        let (old, new) = (normal(from), normal(to));
        self.change(from, "rename", |state| {
            if !state.files.contains(&old) || !is_dir(state, dir_of(&new)) || is_dir(state, &new) {
                return Err(DiskErrorKind::NotFound);
            }
            if old == new {
                return Ok(());
            }
            if !state.files.contains(&new) {
                self.add_name(state, &new)?;
            }
            let inode = take_name(state, &old).ok_or(DiskErrorKind::NotFound)?;
            if let Some(replaced) = state.files.insert(&new, inode) {
                Shared::unname(state, &replaced);
            }
            Ok(())
        })
    }

    fn list(&self, dir: &str) -> Result<Vec<String>, DiskError> {
        let name = normal(dir);
        self.change(dir, "list", |state| {
            if !is_dir(state, &name) {
                return Err(DiskErrorKind::NotFound);
            }
            let all = state.files.keys().chain(state.dirs.keys()).filter(|path| dir_of(path) == name.as_str());
            let mut names: Vec<String> =
                all.map(|path| path.rsplit_once('/').map_or(path, |(_, name)| name).to_owned()).collect();
            names.sort_unstable();
            Ok(names)
        })
    }

    fn create_dir(&self, dir: &str) -> Result<(), DiskError> {
        let name = normal(dir);
        self.change(dir, "create directory", |state| {
            for part in with_those_above(&name) {
                if state.files.contains(part) {
                    return Err(DiskErrorKind::Exists);
                }
                if !state.dirs.contains(part) {
                    self.add_name(state, part)?;
                    state.dirs.insert(part, ());
                }
            }
            Ok(())
        })
    }

    fn sync_dir(&self, dir: &str) -> Result<(), DiskError> {
        let name = normal(dir);
        let changed_at = self.change(dir, "sync directory", |state| match is_dir(state, &name) {
            true => Ok(state.names_changed_at),
            false => Err(DiskErrorKind::NotFound),
        })?;
        match changed_at > self.shared.durable_seq() && !RawBug::NamesUnsynced.is_on() {
            true => self.shared.commit("sync directory"),
            false => self.shared.check(), // The opening has found it durable.
        }
    }

    fn lock(&self, path: &str) -> Result<Box<dyn DiskLock>, DiskError> {
        let mut hold = lock(&self.shared.claim);
        if matches!(*hold, Hold::GivenBack) {
            let claim = self.shared.flat.claim()?;
            self.shared.reload(find(&*self.shared.flat)?)?;
            *hold = Hold::Held(claim);
        }
        drop(Disk::open(self, path, Open::CREATE)?);
        let name = normal(path);
        let inode = self.change(path, "lock", |state| {
            let inode = Arc::clone(state.files.get(&name).ok_or(DiskErrorKind::NotFound)?);
            if state.locked.iter().any(|locked| is_same(locked, &inode)) {
                return Err(DiskErrorKind::Locked);
            }
            state.locked.push(Arc::clone(&inode));
            Ok(inode)
        })?;
        Ok(Box::new(RawLock { shared: Arc::clone(&self.shared), path: name, name: self.full(path), inode }))
    }

    fn describe(&self) -> String {
        self.shared.flat.name().to_owned()
    }

    fn damaged_slot(&self) -> Option<u64> {
        self.shared.state.lock().damaged_slot
    }
}

/// A held lock. The last one keeps the device.
struct RawLock {
    shared: Arc<Shared>,
    path: String,
    name: String,
    inode: Arc<Inode>,
}

impl DiskLock for RawLock {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_in_place(&self) -> Result<bool, DiskError> {
        Ok(self.shared.state.lock().files.get(&self.path).is_some_and(|there| is_same(there, &self.inode)))
    }
}

impl Drop for RawLock {
    fn drop(&mut self) {
        let mut hold = lock(&self.shared.claim);
        let is_last = {
            let locked = &mut self.shared.state.lock().locked;
            locked.retain(|locked| !is_same(locked, &self.inode));
            locked.is_empty()
        };
        if is_last {
            *hold = Hold::GivenBack;
        }
    }
}
