//! [`FaultDisk`]: stands before another disk and does harm at the n-th call of a kind.
//!
//! [`crate::SimDisk`] simulates crashes. This disk simulates what happens while the machine goes on. A device refuses,
//! runs full, answers with other bytes than were written, writes to another place, or says that a sync was done.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::disk::{Disk, DiskFile, DiskLock, Open};
use crate::error::{DiskError, DiskErrorKind};

/// A kind of call to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Call {
    /// [`DiskFile::read_at`]
    Read,
    /// [`DiskFile::write_at`] and [`DiskFile::write_durable_at`]
    Write,
    /// [`DiskFile::sync`] and [`DiskFile::write_durable_at`]
    Sync,
    /// [`DiskFile::allocate`] and [`DiskFile::set_len`]
    Allocate,
    /// [`Disk::open`]
    Open,
    /// [`Disk::remove`], [`Disk::rename`], [`Disk::create_dir`]
    Name,
    /// [`Disk::sync_dir`]
    SyncDir,
    /// [`Disk::lock`] and [`Disk::lock_shared`]
    Lock,
    /// Every one of these.
    Any,
}

/// What happens to the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Harm {
    /// It fails with this kind and does nothing.
    Fail(DiskErrorKind),
    /// A write does its first half and then fails with `EIO`. A read fails as at the end of the file.
    Short,
    /// One bit of what is read or written is flipped. The bit's number is taken modulo the length.
    FlipBit(u64),
    /// A write goes this many bytes further on and reports success.
    Misdirect(u64),
    /// A sync reports success and does nothing. A durable write is an ordinary one.
    Lie,
    /// The call panics with [`PLANNED_PANIC`] and does nothing.
    Panic,
}

/// What [`Harm::Panic`] panics with.
pub const PLANNED_PANIC: &str = "a planned panic of the disk";

/// One fault: the `nth` call of kind `call`, the first being 1, on files whose path contains `path`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Which calls count.
    pub call: Call,
    /// Which of them is hit.
    pub nth: u64,
    /// All that follow are hit too.
    pub sticky: bool,
    /// A part of the path. Empty for all files.
    pub path: String,
    /// A byte of the file: only reads and writes of it count. `None` for calls wherever they go.
    pub byte: Option<u64>,
    /// What happens.
    pub harm: Harm,
}

impl Fault {
    /// The `nth` call of a kind, on any file, once.
    pub fn at(call: Call, nth: u64, harm: Harm) -> Fault {
        Fault { call, nth, sticky: false, path: String::new(), byte: None, harm }
    }

    /// The same for all calls from then on.
    pub fn from_then_on(mut self) -> Fault {
        self.sticky = true;
        self
    }

    /// The same, for files whose path contains `part` only. Other calls are not counted.
    pub fn on(mut self, part: &str) -> Fault {
        self.path = part.to_owned();
        self
    }

    /// The same, for reads and writes of this byte only. Other calls are not counted.
    pub fn of_byte(mut self, byte: u64) -> Fault {
        self.byte = Some(byte);
        self
    }
}

/// A fault as text: `CALL:NTH:HARM`, with `+` behind the number for all calls from there on and `@PART` at the end for
/// files whose path contains that. Calls: `read write sync allocate open name sync-dir lock any`. Harms: `eio no-space
/// short flip=BIT misdirect=BYTES lie panic`. So `write:3+:no-space@log` leaves no space from the third write of a log
/// file on.
impl std::str::FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Fault, String> {
        let (what, path) = text.split_once('@').unwrap_or((text, ""));
        let parts: Vec<&str> = what.splitn(3, ':').collect();
        let &[call, nth, harm] = parts.as_slice() else { return Err("CALL:NTH:HARM is expected".into()) };
        let call = match call {
            "read" => Call::Read,
            "write" => Call::Write,
            "sync" => Call::Sync,
            "allocate" => Call::Allocate,
            "open" => Call::Open,
            "name" => Call::Name,
            "sync-dir" => Call::SyncDir,
            "lock" => Call::Lock,
            "any" => Call::Any,
            other => return Err(format!("{other} is not a kind of call")),
        };
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text} is not a number"));
        let (harm, argument) = harm.split_once('=').unwrap_or((harm, "0"));
        let harm = match harm {
            "eio" => Harm::Fail(DiskErrorKind::Io(EIO)),
            "no-space" => Harm::Fail(DiskErrorKind::NoSpace),
            "short" => Harm::Short,
            "flip" => Harm::FlipBit(number(argument)?),
            "misdirect" => Harm::Misdirect(number(argument)?),
            "lie" => Harm::Lie,
            "panic" => Harm::Panic,
            other => return Err(format!("{other} is not a harm")),
        };
        let fault = Fault::at(call, number(nth.trim_end_matches('+'))?, harm).on(path);
        Ok(if nth.ends_with('+') { fault.from_then_on() } else { fault })
    }
}

/// A disk that does harm on purpose. Clones are the same disk.
#[derive(Clone)]
pub struct FaultDisk {
    inner: Arc<dyn Disk>,
    plan: Arc<Plan>,
}

#[derive(Default)]
struct Plan {
    faults: Mutex<Vec<(Fault, u64)>>,
    hits: Mutex<u64>,
    /// Called at the first hit.
    tell: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Plan {
    /// Counts a call of the given kinds and tells what is to happen to it.
    fn harm(&self, calls: &[Call], path: &str) -> Option<Harm> {
        self.harm_at(calls, path, 0..0)
    }

    /// The same for a call that goes to these bytes.
    fn harm_at(&self, calls: &[Call], path: &str, bytes: Range<u64>) -> Option<Harm> {
        let mut found = None;
        let mut faults = self.faults.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for (fault, count) in faults.iter_mut() {
            let counts = fault.call == Call::Any || calls.contains(&fault.call);
            let is_there = path.contains(fault.path.as_str()) && fault.byte.is_none_or(|byte| bytes.contains(&byte));
            if !counts || !is_there {
                continue;
            }
            *count += 1;
            if *count == fault.nth || fault.sticky && *count > fault.nth {
                found = found.or(Some(fault.harm));
            }
        }
        if found.is_some() {
            *self.hits.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) += 1;
            let tell = self.tell.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
            if let Some(tell) = tell {
                tell();
            }
        }
        drop(faults);
        assert!(found != Some(Harm::Panic), "{PLANNED_PANIC}");
        found
    }

    /// For calls that can only fail or not.
    fn refuse(&self, calls: &[Call], path: &str, operation: &'static str) -> Result<(), DiskError> {
        match self.harm(calls, path) {
            Some(Harm::Fail(kind)) => Err(DiskError::new(path, operation, kind)),
            Some(Harm::Short) => Err(DiskError::new(path, operation, DiskErrorKind::Io(EIO))),
            _ => Ok(()),
        }
    }
}

const EIO: i32 = 5;

impl FaultDisk {
    /// A disk that behaves until [`FaultDisk::add`] is called.
    pub fn new(inner: Arc<dyn Disk>) -> FaultDisk {
        FaultDisk { inner, plan: Arc::default() }
    }

    /// The same faults before another disk: calls on both are counted together.
    pub fn before(&self, inner: Arc<dyn Disk>) -> FaultDisk {
        FaultDisk { inner, plan: self.plan.clone() }
    }

    /// Calls `tell` when the first fault is met.
    pub fn telling(self, tell: impl FnOnce() + Send + 'static) -> FaultDisk {
        *self.plan.tell.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(Box::new(tell));
        self
    }

    /// Adds a fault. Calls are counted from now on.
    pub fn add(&self, fault: Fault) {
        self.plan.faults.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((fault, 0));
    }

    /// Removes all faults.
    pub fn behave(&self) {
        self.plan.faults.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clear();
    }

    /// How many calls were harmed.
    pub fn hits(&self) -> u64 {
        *self.plan.hits.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Disk for FaultDisk {
    fn open(&self, path: &str, how: Open) -> Result<Arc<dyn DiskFile>, DiskError> {
        self.plan.refuse(&[Call::Open], path, "open")?;
        let file = self.inner.open(path, how)?;
        Ok(Arc::new(FaultFile { file, path: path.to_owned(), plan: self.plan.clone() }))
    }

    fn exists(&self, path: &str) -> Result<bool, DiskError> {
        self.inner.exists(path)
    }

    fn remove(&self, path: &str) -> Result<(), DiskError> {
        self.plan.refuse(&[Call::Name], path, "remove")?;
        self.inner.remove(path)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.plan.refuse(&[Call::Name], from, "rename")?;
        self.inner.rename(from, to)
    }

    fn list(&self, dir: &str) -> Result<Vec<String>, DiskError> {
        self.inner.list(dir)
    }

    fn create_dir(&self, dir: &str) -> Result<(), DiskError> {
        self.plan.refuse(&[Call::Name], dir, "create directory")?;
        self.inner.create_dir(dir)
    }

    fn sync_dir(&self, dir: &str) -> Result<(), DiskError> {
        match self.plan.harm(&[Call::SyncDir], dir) {
            Some(Harm::Lie) => Ok(()),
            Some(Harm::Fail(kind)) => Err(DiskError::new(dir, "sync directory", kind)),
            _ => self.inner.sync_dir(dir),
        }
    }

    fn lock(&self, path: &str) -> Result<Box<dyn DiskLock>, DiskError> {
        self.plan.refuse(&[Call::Lock], path, "lock")?;
        self.inner.lock(path)
    }

    fn lock_shared(&self, path: &str) -> Result<Box<dyn DiskLock>, DiskError> {
        self.plan.refuse(&[Call::Lock], path, "lock")?;
        self.inner.lock_shared(path)
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn damaged_slot(&self) -> Option<u64> {
        self.inner.damaged_slot()
    }
}

struct FaultFile {
    file: Arc<dyn DiskFile>,
    path: String,
    plan: Arc<Plan>,
}

fn place(offset: u64, bytes: &[u8]) -> Range<u64> {
    offset..offset.saturating_add(bytes.len() as u64)
}

fn flip(bytes: &mut [u8], bit: u64) {
    if !bytes.is_empty() {
        let bit = bit % (bytes.len() as u64 * 8);
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    }
}

impl FaultFile {
    fn sync_by(&self, sync: impl FnOnce(&dyn DiskFile) -> Result<(), DiskError>) -> Result<(), DiskError> {
        match self.plan.harm(&[Call::Sync], &self.path) {
            Some(Harm::Lie) => Ok(()),
            Some(Harm::Fail(kind)) => Err(DiskError::new(self.file.name(), "sync", kind)),
            _ => sync(&*self.file),
        }
    }

    fn write(&self, offset: u64, bytes: &[u8], durable: bool) -> Result<(), DiskError> {
        let through = |offset, bytes: &[u8], durable| {
            if durable { self.file.write_durable_at(offset, bytes) } else { self.file.write_at(offset, bytes) }
        };
        let calls: &[Call] = if durable { &[Call::Write, Call::Sync] } else { &[Call::Write] };
        let fail = |kind| Err(DiskError::new(self.file.name(), "write", kind).at(offset));
        match self.plan.harm_at(calls, &self.path, place(offset, bytes)) {
            None => through(offset, bytes, durable),
            Some(Harm::Fail(kind)) => fail(kind),
            Some(Harm::Short) => {
                through(offset, &bytes[..bytes.len() / 2], durable)?;
                fail(DiskErrorKind::Io(EIO))
            }
            Some(Harm::FlipBit(bit)) => {
                let mut bytes = bytes.to_vec();
                flip(&mut bytes, bit);
                through(offset, &bytes, durable)
            }
            Some(Harm::Misdirect(by)) => through(offset.saturating_add(by), bytes, durable),
            Some(Harm::Lie) => through(offset, bytes, false),
            Some(Harm::Panic) => unreachable!("it has panicked"),
        }
    }
}

impl DiskFile for FaultFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        let fail = |kind| Err(DiskError::new(self.file.name(), "read", kind).at(offset));
        match self.plan.harm_at(&[Call::Read], &self.path, place(offset, buf)) {
            Some(Harm::Fail(kind)) => fail(kind),
            Some(Harm::Short) => fail(DiskErrorKind::ShortRead),
            Some(Harm::FlipBit(bit)) => {
                self.file.read_at(offset, buf)?;
                flip(buf, bit);
                Ok(())
            }
            _ => self.file.read_at(offset, buf),
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.write(offset, bytes, false)
    }

    fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.write(offset, bytes, true)
    }

    fn sync(&self) -> Result<(), DiskError> {
        self.sync_by(|file| file.sync())
    }

    fn settle(&self) -> Result<(), DiskError> {
        self.sync_by(|file| file.settle())
    }

    fn len(&self) -> Result<u64, DiskError> {
        self.file.len()
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.plan.refuse(&[Call::Allocate], &self.path, "allocate")?;
        self.file.allocate(offset, len)
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.plan.refuse(&[Call::Allocate], &self.path, "set length")?;
        self.file.set_len(len)
    }

    fn name(&self) -> &str {
        self.file.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_read_from_text() {
        let check = |text: &str, expected: Fault| assert_eq!(text.parse(), Ok(expected), "{text}");
        check(
            "write:3+:no-space@log",
            Fault::at(Call::Write, 3, Harm::Fail(DiskErrorKind::NoSpace)).on("log").from_then_on(),
        );
        check("read:1:flip=77", Fault::at(Call::Read, 1, Harm::FlipBit(77)));
        check("sync:9:lie", Fault::at(Call::Sync, 9, Harm::Lie));
        for text in ["", "write", "write:x:eio", "write:1:nothing", "grow:1:eio", "write:1:flip=x"] {
            assert!(text.parse::<Fault>().is_err(), "{text}");
        }
    }
}
