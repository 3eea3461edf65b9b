//! What the cache promises, proved on a simulated disk with a log that is a vector.
//!
//! Pages are filled with one repeated word, so that a page read half old and half new shows.

mod basics;
mod behind;
mod crash;
#[cfg(all(feature = "deaths", not(miri)))]
mod deaths;
mod faults;
mod pressure;
mod readers;
#[cfg(not(miri))]
mod shared;
mod simulated;
mod threads;
mod torn;

use crate::{BufferError, Cache, CacheConfig, ExclusivePage, Policy, Tuning, WriteAhead};
use ledgerstone_disk::{Disk, DiskFile, Open, SimDisk};
use ledgerstone_log::LogError;
use ledgerstone_page::{HEADER_BYTES, LayoutId, Lsn, PageId, header};
use ledgerstone_region::{Mutex, Random, Region, SlotTable, Words, sync};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};

const PAGE_BYTES: u32 = 4096;

/// "The page is full of this word since this LSN."
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    lsn: Lsn,
    page: PageId,
    value: u64,
}

/// A log in a vector; what lies below `durable` survives a crash.
struct FakeLog {
    records: Mutex<Vec<Record>>,
    tail: AtomicU64,
    durable: AtomicU64,
    flushes: AtomicU64,
    has_failed: AtomicBool,
    /// Raised before a record is appended: a step at which a simulated process may die.
    appends: ledgerstone_region::atomic::AtomicU64,
}

const RECORD_BYTES: u64 = 64;

impl FakeLog {
    fn new() -> FakeLog {
        FakeLog {
            records: Mutex::new(Vec::new()),
            tail: AtomicU64::new(4096),
            durable: AtomicU64::new(4096),
            flushes: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
            appends: Default::default(),
        }
    }

    fn append(&self, page: PageId, value: u64) -> Lsn {
        self.appends.fetch_add(1, Relaxed);
        let mut records = self.records.lock();
        let lsn = Lsn(self.tail.fetch_add(RECORD_BYTES, SeqCst));
        records.push(Record { lsn, page, value });
        lsn
    }

    /// The log after a crash: what was durable, and as much of the rest as `more` says.
    fn after_crash(&self, more: u64) -> FakeLog {
        let durable = self.durable.load(SeqCst);
        let end = durable + (self.tail.load(SeqCst) - durable) / RECORD_BYTES * more / 4 * RECORD_BYTES;
        let records = self.records.lock().iter().copied().filter(|record| record.lsn.0 < end).collect();
        FakeLog { records: Mutex::new(records), tail: end.into(), durable: end.into(), ..FakeLog::new() }
    }
}

impl WriteAhead for FakeLog {
    fn tail(&self) -> Lsn {
        Lsn(self.tail.load(SeqCst))
    }

    fn durable_lsn(&self) -> Lsn {
        Lsn(self.durable.load(SeqCst))
    }

    fn flush_to(&self, lsn: Lsn) -> Result<(), LogError> {
        if self.durable_lsn() <= lsn {
            let tail = self.tail.load(SeqCst);
            if sync::is_simulated() {
                sync::sleep_ns(50_000);
            }
            self.flushes.fetch_add(1, Relaxed);
            self.durable.fetch_max(tail, SeqCst);
        }
        Ok(())
    }

    fn is_failed(&self) -> bool {
        self.has_failed.load(SeqCst)
    }

    fn fail(&self) {
        self.has_failed.store(true, SeqCst);
    }
}

/// A cache on files of a disk.
struct Fixture {
    cache: Arc<Cache>,
    log: Arc<FakeLog>,
    data: Arc<dyn DiskFile>,
}

struct Setup {
    frames: u64,
    policy: Policy,
    tuning: Tuning,
}

impl Default for Setup {
    fn default() -> Self {
        Setup { frames: 64, policy: Policy::Clock, tuning: Tuning::default() }
    }
}

fn try_fixture(disk: &dyn Disk, log: Arc<FakeLog>, setup: Setup) -> Result<Fixture, BufferError> {
    let region = Region::anonymous(64 << 20).unwrap();
    let slots = Arc::new(SlotTable::place(&region, 64).unwrap());
    let data = disk.open("data", Open::CREATE)?;
    let double_write = disk.open("double-write", Open::CREATE)?;
    disk.sync_dir("")?;
    let config = CacheConfig {
        region,
        slots,
        data: Arc::clone(&data),
        double_write,
        log: Arc::clone(&log) as _,
        page_bytes: PAGE_BYTES,
        cache_bytes: setup.frames * (u64::from(PAGE_BYTES) + 40),
        max_pages: 10_000,
        policy: setup.policy,
    };
    Ok(Fixture { cache: Cache::with_tuning(config, setup.tuning)?, log, data })
}

fn fixture(disk: &dyn Disk, log: Arc<FakeLog>, setup: Setup) -> Fixture {
    try_fixture(disk, log, setup).unwrap()
}

fn new_fixture() -> Fixture {
    fixture(&SimDisk::new(), Arc::new(FakeLog::new()), Setup::default())
}

impl Fixture {
    /// Logs that the page is full of `value`, and makes it so.
    fn change(&self, page: &mut ExclusivePage<'_>, value: u64) -> Lsn {
        page.begin_change_with(self.log.tail(), is_formatted(page.id()));
        let lsn = self.log.append(page.id(), value);
        apply(page, value);
        page.finish_change(lsn);
        lsn
    }

    fn write(&self, id: PageId, value: u64) -> Result<Lsn, BufferError> {
        let (mut page, _) = self.cache.exclusive_or_new(id)?;
        Ok(self.change(&mut page, value))
    }

    /// Reads optimistically until that succeeds.
    fn read(&self, id: PageId) -> Result<u64, BufferError> {
        loop {
            let page = self.cache.optimistic(id)?;
            let read = read_value(page.words());
            if page.check().is_ok() {
                return Ok(read.unwrap_or_else(|what| panic!("{id} was read torn: {what}")));
            }
        }
    }
}

/// Every fourth page is only changed by records that format it, and is so in the log.
fn is_formatted(id: PageId) -> bool {
    id.0 % 4 == 3
}

fn apply(page: &mut ExclusivePage<'_>, value: u64) {
    let id = page.id();
    let mut words = page.page_mut();
    header::format(&mut words, id, LayoutId::RAW, 0, PageId::NONE);
    for at in (HEADER_BYTES..PAGE_BYTES as usize).step_by(8) {
        words.put_u64(at, value);
    }
}

/// The word that the page is full of.
fn read_value(words: Words<'_>) -> Result<u64, String> {
    let first = words.u64(HEADER_BYTES);
    for at in (HEADER_BYTES..PAGE_BYTES as usize).step_by(8) {
        let found = words.u64(at);
        if found != first {
            return Err(format!("{first} at the beginning, {found} at {at}"));
        }
    }
    Ok(first)
}
