//! Settings of an environment: in code, or in the optional file `ledgerstone.toml` beside the data.
//!
//! What the code sets wins over the file; what neither sets has the default below. Page size, segment size and the
//! environment's id are fixed when an environment is created and read from its control file afterwards.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ledgerstone_disk::{Disk, FileDisk};
use serde::{Deserialize, Serialize};

use crate::{Environment, Error};

pub use ledgerstone_txn::Durability;

/// Which page leaves the cache first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Replacement {
    /// Second chance: cheap, nearly as good as LRU.
    #[default]
    Clock,
    /// Least recently used, by the age of the last sweep that found the page in use.
    Lru,
}

/// The settings as they can stand in `ledgerstone.toml`. Every field is optional; unknown names are refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Memory for pages, in bytes.
    pub cache_bytes: Option<u64>,
    /// Size of a page in bytes, a power of two from 4096 to 32768; for creation only.
    pub page_bytes: Option<u32>,
    /// Size of a log segment file in bytes, a power of two from 64 KiB; for creation only.
    pub log_segment_bytes: Option<u64>,
    /// Size of the log buffer in bytes, a power of two.
    pub log_buffer_bytes: Option<u64>,
    /// A checkpoint is taken after this many bytes of log.
    pub checkpoint_log_bytes: Option<u64>,
    /// How long a lock is waited for, in milliseconds.
    pub lock_timeout_ms: Option<u64>,
    /// Key locks of one transaction on one table before it tries to lock the whole table.
    pub escalate_after: Option<u32>,
    /// Locks that all transactions together may hold.
    pub lock_count_max: Option<u32>,
    /// Transactions that may run at once.
    pub transaction_count_max: Option<u32>,
    /// Which page leaves the cache first.
    pub replacement: Option<Replacement>,
    /// How long an `Async` commit may stay in memory, in milliseconds.
    pub async_delay_ms: Option<u64>,
    /// Workers that redo the log at a restart.
    pub redo_worker_count: Option<u32>,
}

/// How to open an environment. See [`Environment::options`].
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) config: Config,
    pub(crate) durability: Durability,
    pub(crate) create: bool,
    pub(crate) read_only: bool,
    pub(crate) page_count_max: u64,
    pub(crate) thread_count_max: u32,
    pub(crate) has_background_threads: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            config: Config::default(),
            durability: Durability::Sync,
            create: true,
            read_only: false,
            page_count_max: 1 << 31,
            thread_count_max: 16_000,
            has_background_threads: true,
        }
    }
}

/// Every setting with the value in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Effective {
    /// See [`Config::cache_bytes`]. 64 MiB.
    pub cache_bytes: u64,
    /// See [`Config::page_bytes`]. 4096.
    pub page_bytes: u32,
    /// See [`Config::log_segment_bytes`]. 16 MiB.
    pub log_segment_bytes: u64,
    /// See [`Config::log_buffer_bytes`]. 8 MiB.
    pub log_buffer_bytes: u64,
    /// See [`Config::checkpoint_log_bytes`]. 64 MiB.
    pub checkpoint_log_bytes: u64,
    /// See [`Config::lock_timeout_ms`]. 10 s.
    pub lock_timeout_ms: u64,
    /// See [`Config::escalate_after`]. 4096.
    pub escalate_after: u32,
    /// See [`Config::lock_count_max`]. 131072 (8 MiB).
    pub lock_count_max: u32,
    /// See [`Config::transaction_count_max`]. 1024.
    pub transaction_count_max: u32,
    /// See [`Config::replacement`]. Clock.
    pub replacement: Replacement,
    /// See [`Config::async_delay_ms`]. 10 ms.
    pub async_delay_ms: u64,
    /// See [`Config::redo_worker_count`]. 2.
    pub redo_worker_count: u32,
}

impl Options {
    /// Memory for pages, in bytes: a hard limit. Default 64 MiB, at least 64 pages.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.config.cache_bytes = Some(bytes);
        self
    }

    /// Page size for a new environment: a power of two from 4096 to 32768. Default 4096.
    ///
    /// Opening an existing environment with another size is refused.
    #[must_use]
    pub fn page_bytes(mut self, bytes: u32) -> Self {
        self.config.page_bytes = Some(bytes);
        self
    }

    /// Durability of commits that do not choose their own. Default [`Durability::Sync`].
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// How long a lock is waited for before [`Error::LockTimeout`]. Default 10 s.
    #[must_use]
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.config.lock_timeout_ms = Some(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// Size of log segment files for a new environment: a power of two from 64 KiB. Default 16 MiB.
    #[must_use]
    pub fn log_segment_bytes(mut self, bytes: u64) -> Self {
        self.config.log_segment_bytes = Some(bytes);
        self
    }

    /// Size of the log buffer: a power of two from 128 KiB. Default 8 MiB.
    #[must_use]
    pub fn log_buffer_bytes(mut self, bytes: u64) -> Self {
        self.config.log_buffer_bytes = Some(bytes);
        self
    }

    /// Bytes of log between checkpoints; bounds the log's size and the time of a restart. Default 64 MiB.
    #[must_use]
    pub fn checkpoint_log_bytes(mut self, bytes: u64) -> Self {
        self.config.checkpoint_log_bytes = Some(bytes);
        self
    }

    /// Key locks of one transaction on one table before it tries to lock the table instead. Default 4096.
    #[must_use]
    pub fn escalate_after(mut self, lock_count: u32) -> Self {
        self.config.escalate_after = Some(lock_count);
        self
    }

    /// Locks that all transactions together may hold (64 bytes each). Default 131072.
    #[must_use]
    pub fn lock_count_max(mut self, count: u32) -> Self {
        self.config.lock_count_max = Some(count);
        self
    }

    /// Transactions that may run at once. Default 1024.
    #[must_use]
    pub fn transaction_count_max(mut self, count: u32) -> Self {
        self.config.transaction_count_max = Some(count);
        self
    }

    /// Which page leaves the cache first. Default [`Replacement::Clock`].
    #[must_use]
    pub fn replacement(mut self, replacement: Replacement) -> Self {
        self.config.replacement = Some(replacement);
        self
    }

    /// How long an [`Durability::Async`] commit may stay in memory. Default 10 ms.
    #[must_use]
    pub fn async_delay(mut self, delay: Duration) -> Self {
        self.config.async_delay_ms = Some(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// Workers that redo the log at a restart. Default 2.
    #[must_use]
    pub fn redo_worker_count(mut self, count: u32) -> Self {
        self.config.redo_worker_count = Some(count);
        self
    }

    /// Create the environment if there is none. Default true.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Open for reading only: every write is refused with [`Error::ReadOnly`]. The directory must be writable all the
    /// same: opening takes the lock there and raises the log's incarnation, and recovers after a crash. Default false.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Pages that the data file may ever have; bounds the address space reserved (16 bytes a page, not memory).
    /// Default 2^31, which is 8 TiB of 4096-byte pages.
    #[must_use]
    pub fn page_count_max(mut self, count: u64) -> Self {
        self.page_count_max = count;
        self
    }

    /// Threads that may use the environment at once, those of the library included; 4 to 16000. Default 16000.
    ///
    /// A thread counts from its first call to its end.
    #[must_use]
    pub fn thread_count_max(mut self, count: u32) -> Self {
        self.thread_count_max = count;
        self
    }

    /// Opens the environment in directory `path`, recovering it if it was not closed in order.
    ///
    /// # Errors
    /// [`Error::NotAnEnvironment`], [`Error::NewerFormat`], [`Error::WrongPageSize`], [`Error::AlreadyOpen`],
    /// [`Error::Permission`], [`Error::Corrupt`], [`Error::Setting`] and whatever the files say.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Environment, Error> {
        let path = path.as_ref();
        if self.create {
            std::fs::create_dir_all(path).map_err(|e| match e.kind() {
                std::io::ErrorKind::AlreadyExists | std::io::ErrorKind::NotADirectory => {
                    Error::NotAnEnvironment { path: path.display().to_string(), why: "it is not a directory" }
                }
                _ => Error::from_io("create directory", path, &e),
            })?;
        } else if !path.is_dir() {
            return Err(Error::NotAnEnvironment { path: path.display().to_string(), why: "no such directory" });
        }
        let file = path.join("ledgerstone.toml");
        let from_file = match std::fs::read_to_string(&file) {
            Ok(text) => toml::from_str(&text).map_err(|e| Error::Setting {
                name: file.display().to_string(),
                what: e.to_string().trim().to_string(),
            })?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Config::default(),
            Err(e) => return Err(Error::from_io("read", &file, &e)),
        };
        let mut options = self;
        options.config = options.config.over(from_file);
        options.open_on(Arc::new(FileDisk::new(path)))
    }

    /// Opens an environment on any [`Disk`]: a simulated one in tests, one of your own.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open_on(self, disk: Arc<dyn Disk>) -> Result<Environment, Error> {
        Environment::open_with(&self, disk)
    }

    pub(crate) fn effective(&self, page_bytes: u32, log_segment_bytes: u64) -> Result<Effective, Error> {
        let c = &self.config;
        let effective = Effective {
            cache_bytes: c.cache_bytes.unwrap_or(64 << 20),
            page_bytes,
            log_segment_bytes,
            log_buffer_bytes: c.log_buffer_bytes.unwrap_or(8 << 20),
            checkpoint_log_bytes: c.checkpoint_log_bytes.unwrap_or(64 << 20),
            lock_timeout_ms: c.lock_timeout_ms.unwrap_or(10_000),
            escalate_after: c.escalate_after.unwrap_or(4096),
            lock_count_max: c.lock_count_max.unwrap_or(131_072),
            transaction_count_max: c.transaction_count_max.unwrap_or(1024),
            replacement: c.replacement.unwrap_or_default(),
            async_delay_ms: c.async_delay_ms.unwrap_or(10),
            redo_worker_count: c.redo_worker_count.unwrap_or(2),
        };
        check(effective.cache_bytes >= 64 * u64::from(page_bytes), "cache_bytes", "at least 64 pages are needed")?;
        check(
            effective.log_buffer_bytes.is_power_of_two() && (128 << 10..=1 << 32).contains(&effective.log_buffer_bytes),
            "log_buffer_bytes",
            "a power of two from 131072 to 4294967296 is needed",
        )?;
        check((1..=16_000).contains(&effective.transaction_count_max), "transaction_count_max", "1 to 16000")?;
        check((4..=16_000).contains(&self.thread_count_max), "thread_count_max", "4 to 16000")?;
        check(effective.lock_count_max >= 1024, "lock_count_max", "at least 1024 is needed")?;
        check((1..=64).contains(&effective.redo_worker_count), "redo_worker_count", "1 to 64")?;
        Ok(effective)
    }

    /// Page and segment size for a new environment, checked.
    pub(crate) fn sizes_for_creation(&self) -> Result<(u32, u64), Error> {
        let page = self.config.page_bytes.unwrap_or(4096);
        let segment = self.config.log_segment_bytes.unwrap_or(16 << 20);
        check(page_bytes_fit(page), "page_bytes", "a power of two from 4096 to 32768 is needed")?;
        check(segment_bytes_fit(segment), "log_segment_bytes", "a power of two from 65536 to 4294967296 is needed")?;
        Ok((page, segment))
    }
}

pub(crate) fn page_bytes_fit(bytes: u32) -> bool {
    bytes.is_power_of_two() && (4096..=32768).contains(&bytes)
}

pub(crate) fn segment_bytes_fit(bytes: u64) -> bool {
    bytes.is_power_of_two() && (64 << 10..=1 << 32).contains(&bytes)
}

fn check(holds: bool, name: &str, what: &str) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(Error::Setting { name: name.into(), what: what.into() }) }
}

impl Config {
    /// These settings, and those of `other` where these say nothing.
    #[must_use]
    pub fn over(self, other: Config) -> Config {
        Config {
            cache_bytes: self.cache_bytes.or(other.cache_bytes),
            page_bytes: self.page_bytes.or(other.page_bytes),
            log_segment_bytes: self.log_segment_bytes.or(other.log_segment_bytes),
            log_buffer_bytes: self.log_buffer_bytes.or(other.log_buffer_bytes),
            checkpoint_log_bytes: self.checkpoint_log_bytes.or(other.checkpoint_log_bytes),
            lock_timeout_ms: self.lock_timeout_ms.or(other.lock_timeout_ms),
            escalate_after: self.escalate_after.or(other.escalate_after),
            lock_count_max: self.lock_count_max.or(other.lock_count_max),
            transaction_count_max: self.transaction_count_max.or(other.transaction_count_max),
            replacement: self.replacement.or(other.replacement),
            async_delay_ms: self.async_delay_ms.or(other.async_delay_ms),
            redo_worker_count: self.redo_worker_count.or(other.redo_worker_count),
        }
    }
}
