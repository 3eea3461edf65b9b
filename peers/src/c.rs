//! The peers that are written in C, behind one table of calls: `c/peer.h` says what each call promises.
//!
//! C1. A store and its workers come from the calls of one table, and are only given back to that table.
//! C2. Calls of a store may come from several threads at once; those of a worker come from the thread that holds it.
//!     A `Worker` borrows the peer, so it is retired before the store is closed.
//! C3. A callback of `scan` runs within that call, with bytes that are valid until it returns.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use anyhow::{Context, anyhow};

use crate::peer::{Durability, Failure, Kind, Peer, Settings, Step, Steps, Txn, VALUE_MAX, Visit, Worker};

const OK: c_int = 0;
const NONE: c_int = 1;
const AGAIN: c_int = 2;

#[repr(C)]
struct CSettings {
    dir: *const c_char,
    cache_bytes: u64,
    file_bytes_max: u64,
    is_larger_than_memory: c_int,
    is_durable: c_int,
}

type CVisit = unsafe extern "C" fn(*mut c_void, u64, *const c_void, usize) -> c_int;

/// `struct peer` of `c/peer.h`, field by field.
#[repr(C)]
struct Calls {
    version: unsafe extern "C" fn() -> *const c_char,
    open: unsafe extern "C" fn(*const CSettings, *mut *mut c_void) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
    checkpoint: unsafe extern "C" fn(*mut c_void) -> c_int,
    worker: unsafe extern "C" fn(*mut c_void, c_int, *mut *mut c_void) -> c_int,
    retire: unsafe extern "C" fn(*mut c_void),
    begin: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
    commit: unsafe extern "C" fn(*mut c_void) -> c_int,
    abort: unsafe extern "C" fn(*mut c_void) -> c_int,
    get: unsafe extern "C" fn(*mut c_void, c_int, u64, *mut c_void, *mut usize) -> c_int,
    put: unsafe extern "C" fn(*mut c_void, c_int, u64, *const c_void, usize) -> c_int,
    append: unsafe extern "C" fn(*mut c_void, c_int, u64, *const c_void, usize) -> c_int,
    add: unsafe extern "C" fn(*mut c_void, c_int, u64, i64) -> c_int,
    scan: unsafe extern "C" fn(*mut c_void, c_int, u64, u64, CVisit, *mut c_void) -> c_int,
}

unsafe extern "C" {
    static peer_bdb: Calls;
    static peer_lmdb: Calls;
    static peer_rocksdb: Calls;
    static peer_sqlite: Calls;
    static peer_wiredtiger: Calls;
    fn peer_error() -> *const c_char;
}

/// A peer written in C.
#[derive(Clone, Copy, Debug)]
pub enum Which {
    /// Berkeley DB.
    BerkeleyDb,
    /// LMDB.
    Lmdb,
    /// RocksDB.
    RocksDb,
    /// SQLite.
    Sqlite,
    /// WiredTiger.
    WiredTiger,
}

impl Which {
    fn calls(self) -> &'static Calls {
        // SAFETY: the tables are constants of the objects that `build.rs` links, complete and never written.
        unsafe {
            match self {
                Which::BerkeleyDb => &peer_bdb,
                Which::Lmdb => &peer_lmdb,
                Which::RocksDb => &peer_rocksdb,
                Which::Sqlite => &peer_sqlite,
                Which::WiredTiger => &peer_wiredtiger,
            }
        }
    }
}

/// What the library says of itself.
pub fn version(which: Which) -> String {
    // SAFETY: the call takes nothing and returns a text that lives as long as the program.
    unsafe { CStr::from_ptr((which.calls().version)()) }.to_string_lossy().into_owned()
}

fn last_error() -> anyhow::Error {
    // SAFETY: a text of this thread, which ends with a zero and is copied before the thread's next call.
    anyhow!("{}", unsafe { CStr::from_ptr(peer_error()) }.to_string_lossy())
}

/// True for a record, false for none.
fn found(code: c_int) -> Step<bool> {
    match code {
        OK => Ok(true),
        NONE => Ok(false),
        AGAIN => Err(Failure::Again),
        _ => Err(Failure::Other(last_error())),
    }
}

fn done(code: c_int) -> Step {
    match found(code)? {
        true => Ok(()),
        false => Err(Failure::Other(anyhow!("a call that looks for nothing found nothing"))),
    }
}

/// A store of a peer written in C.
pub struct CPeer {
    calls: &'static Calls,
    store: *mut c_void,
}

// SAFETY: C2, the libraries allow calls of a store from all threads at once.
unsafe impl Send for CPeer {}
// SAFETY: as above.
unsafe impl Sync for CPeer {}

impl CPeer {
    /// Opens, or makes, a store.
    ///
    /// # Errors
    /// The peer's.
    pub fn open(which: Which, settings: Settings<'_>) -> anyhow::Result<Box<dyn Peer>> {
        let dir = CString::new(settings.dir.as_os_str().as_bytes()).context("a path with a zero")?;
        let own = CSettings {
            dir: dir.as_ptr(),
            cache_bytes: settings.cache_bytes,
            file_bytes_max: settings.file_bytes_max,
            is_larger_than_memory: c_int::from(settings.is_larger_than_memory),
            is_durable: c_int::from(settings.is_durable),
        };
        let mut peer = CPeer { calls: which.calls(), store: ptr::null_mut() };
        // SAFETY: both outlive the call, which keeps neither.
        done(unsafe { (peer.calls.open)(&own, &mut peer.store) }).map_err(Failure::into_error)?;
        Ok(Box::new(peer))
    }
}

impl Peer for CPeer {
    fn worker(&self, durability: Durability) -> anyhow::Result<Box<dyn Worker + '_>> {
        anyhow::ensure!(durability != Durability::Pipelined, "this peer has no pipelined commits");
        let mut worker = CWorker { peer: self, worker: ptr::null_mut() };
        let is_sync = c_int::from(durability == Durability::Sync);
        // SAFETY: C1; a worker that could not be made whole is retired all the same.
        done(unsafe { (self.calls.worker)(self.store, is_sync, &mut worker.worker) }).map_err(Failure::into_error)?;
        Ok(Box::new(worker))
    }

    fn checkpoint(&self) -> anyhow::Result<()> {
        // SAFETY: C1.
        done(unsafe { (self.calls.checkpoint)(self.store) }).map_err(Failure::into_error)
    }

    fn close(self: Box<Self>) -> anyhow::Result<()> {
        // SAFETY: C1; the box ends here, and C2 says that no worker is left.
        done(unsafe { (self.calls.close)(self.store) }).map_err(Failure::into_error)
    }
}

struct CWorker<'a> {
    peer: &'a CPeer,
    worker: *mut c_void,
}

impl Drop for CWorker<'_> {
    fn drop(&mut self) {
        if !self.worker.is_null() {
            // SAFETY: C1, and nothing uses it any more.
            unsafe { (self.peer.calls.retire)(self.worker) }
        }
    }
}

impl Worker for CWorker<'_> {
    fn once(&mut self, kind: Kind, steps: Steps<'_>) -> Step {
        let kind = match kind {
            Kind::Write => 0,
            Kind::Read | Kind::Snapshot => 1,
            Kind::One => 2,
        };
        let calls = self.peer.calls;
        // SAFETY: C1 and C2, here and below.
        done(unsafe { (calls.begin)(self.worker, kind) })?;
        // SAFETY: as above.
        let ended = steps(self).and_then(|()| done(unsafe { (calls.commit)(self.worker) }));
        if ended.is_err() {
            // The first failure counts. SAFETY: as above.
            unsafe { (calls.abort)(self.worker) };
        }
        ended
    }
}

impl Txn for CWorker<'_> {
    fn get(&mut self, table: usize, key: u64, value: &mut Vec<u8>) -> Step<bool> {
        value.clear();
        value.reserve(VALUE_MAX);
        let mut length = VALUE_MAX;
        // SAFETY: C1 and C2; the call writes at most `length` bytes and says how many, or fails.
        let code =
            unsafe { (self.peer.calls.get)(self.worker, table as c_int, key, value.as_mut_ptr().cast(), &mut length) };
        let is_there = found(code)?;
        if is_there {
            // SAFETY: so many bytes have been written, and there was room for VALUE_MAX.
            unsafe { value.set_len(length.min(VALUE_MAX)) };
        }
        Ok(is_there)
    }

    fn put(&mut self, table: usize, key: u64, value: &[u8]) -> Step {
        let (calls, bytes) = (self.peer.calls, value.as_ptr().cast());
        // SAFETY: C1 and C2; the value is read within the call.
        done(unsafe { (calls.put)(self.worker, table as c_int, key, bytes, value.len()) })
    }

    fn append(&mut self, table: usize, key: u64, value: &[u8]) -> Step {
        let (calls, bytes) = (self.peer.calls, value.as_ptr().cast());
        // SAFETY: as for `put`.
        done(unsafe { (calls.append)(self.worker, table as c_int, key, bytes, value.len()) })
    }

    fn add(&mut self, table: usize, key: u64, delta: i64) -> Step<bool> {
        // SAFETY: C1 and C2.
        found(unsafe { (self.peer.calls.add)(self.worker, table as c_int, key, delta) })
    }

    fn scan(&mut self, table: usize, from: u64, count_max: u64, mut visit: Visit<'_>) -> Step {
        let context: *mut Visit<'_> = &mut visit;
        let calls = self.peer.calls;
        // A range may be empty: "nothing found" is no failure here.
        // SAFETY: C1, C2, and C3: `visit` outlives the call, which alone uses it.
        found(unsafe { (calls.scan)(self.worker, table as c_int, from, count_max, visited, context.cast()) }).map(drop)
    }
}

/// Hands a record of a scan to the closure. A panic in it ends the program, as it cannot pass through C.
///
/// # Safety
/// `context` is the pointer that `scan` was given, and `value` has `length` bytes.
unsafe extern "C" fn visited(context: *mut c_void, key: u64, value: *const c_void, length: usize) -> c_int {
    // SAFETY: what this function asks for. An empty value may come without a place.
    let (visit, value) = unsafe {
        let value: &[u8] = if length == 0 { &[] } else { std::slice::from_raw_parts(value.cast(), length) };
        (&mut *context.cast::<Visit<'_>>(), value)
    };
    c_int::from(!visit(key, value))
}
