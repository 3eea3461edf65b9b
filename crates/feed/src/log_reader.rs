//! The log for readers: of an environment that is open, or of a directory that nobody has open.
//!
//! ```
//! # fn main() -> Result<(), ledgerstone::Error> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
//! use ledgerstone::{LogFilter, Lsn, RecordKind};
//!
//! env.transact(|txn| txn.bytes_or_create("fruit")?.put(b"apple", b"red"))?;
//! let mut commits = env.log_reader(Lsn(0))?.with_filter(LogFilter::default().kind(RecordKind::Commit));
//! while let Some(record) = commits.next()? {
//!     println!("{record}");
//! }
//! let newest = commits.prev()?.expect("something was committed");
//! assert_eq!(newest.kind(), RecordKind::Commit);
//! # Ok(())
//! # }
//! ```

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ledgerstone_core::Error;
use ledgerstone_core::base::Base;
use ledgerstone_core::catalog::Extensions;
use ledgerstone_core::directory::{check_control, disk_in, operations, state_of};
use ledgerstone_disk::Disk;
use ledgerstone_log::{Beginning, CONTROL_PATH, LogError, LogFiles};
use ledgerstone_page::{Lsn, PageId};
use ledgerstone_region::{ByNumber, sync};

use crate::archive::files_of;
use crate::log_record::Operations;
use crate::{LogFilter, LogRecord};

/// A cursor on a log, which stands between two records. It is owned. It reads durable records only, each of them whole.
///
/// A reader keeps no log. When a checkpoint has given up the part of the log that comes next, the reader returns
/// [`Error::LogGone`].
pub struct LogReader {
    cursor: ledgerstone_log::LogReader,
    operations: Operations,
    filter: LogFilter,
    /// Of which table a page was when it was last met.
    roots: ByNumber<PageId, PageId>,
}

/// A reader of the log: `Environment::log_reader` of the library.
///
/// Waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// [`Error::LogGone`], or a failure of the disk.
pub fn log_reader(env: &Base, from: Lsn) -> Result<LogReader, Error> {
    env.engine.check_process()?;
    let cursor = env.engine.in_a_call(|| ledgerstone_log::LogReader::new(&env.engine.log, from))?;
    Ok(LogReader::new(cursor, Operations::Of(Arc::clone(&env.engine))))
}

impl LogReader {
    pub(crate) fn new(cursor: ledgerstone_log::LogReader, operations: Operations) -> LogReader {
        LogReader { cursor, operations, filter: LogFilter::default(), roots: ByNumber::new() }
    }

    /// Shows only what `filter` lets pass.
    #[must_use]
    pub fn with_filter(mut self, filter: LogFilter) -> LogReader {
        self.filter = filter;
        self
    }

    /// The next record, or `None` if no further record is durable now. The reader moves behind it.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::LogGone`], [`Error::Corrupt`], or a failure of the disk.
    #[allow(clippy::should_implement_trait)] // Not an iterator: it fails, and can go on after its end.
    pub fn next(&mut self) -> Result<Option<LogRecord>, Error> {
        self.operations.check_process()?;
        while !self.filter.ends_before(self.cursor.position()) {
            let Some(record) = self.operations.in_a_call(|| self.cursor.next())? else { break };
            let record = LogRecord::new(record, self.operations.clone());
            if self.filter.passes(&record, &mut self.roots) {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// The record before, or `None` where the kept log begins. The reader moves before it.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`LogReader::next`].
    pub fn prev(&mut self) -> Result<Option<LogRecord>, Error> {
        self.operations.check_process()?;
        while !self.filter.begins_at_or_behind(self.cursor.position()) {
            let Some(record) = self.operations.in_a_call(|| self.cursor.prev())? else { break };
            let record = LogRecord::new(record, self.operations.clone());
            if self.filter.passes(&record, &mut self.roots) {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// The next record, waiting for it to become durable. `None` if `timeout` has passed, or if nothing more can come:
    /// in a directory that is not open, or at the end that the filter sets. Asks for no flush.
    ///
    /// Waits for the disk, and for new records up to `timeout`: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`LogReader::next`]. [`Error::Failed`] if the environment has failed or was closed.
    pub fn follow(&mut self, timeout: Option<Duration>) -> Result<Option<LogRecord>, Error> {
        let until = timeout.map(|timeout| sync::now_ns().saturating_add(sync::nanoseconds(timeout)));
        loop {
            if let Some(record) = self.next()? {
                return Ok(Some(record));
            }
            let left = until.map(|until| until.saturating_sub(sync::now_ns()));
            if self.filter.ends_before(self.cursor.position())
                || !self.operations.in_a_call(|| self.cursor.wait(left))?
            {
                return Ok(None);
            }
        }
    }

    /// Waits until any record behind the reader is durable, whatever the filter says. `false`: `timeout` went by, or
    /// nothing more can come.
    ///
    /// Waits up to `timeout`: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::Failed`] when the environment has failed or was closed.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, Error> {
        self.operations.check_process()?;
        Ok(self.operations.in_a_call(|| self.cursor.wait(timeout.map(sync::nanoseconds)))?)
    }

    /// The position of the reader. A later reader that begins here goes on without a gap.
    #[must_use]
    pub fn position(&self) -> Lsn {
        self.cursor.position()
    }

    /// Moves before the first record that begins at `to` or later, as `Environment::log_reader` does.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As there.
    pub fn seek(&mut self, to: Lsn) -> Result<(), Error> {
        self.operations.check_process()?;
        Ok(self.operations.in_a_call(|| self.cursor.seek(to))?)
    }

    /// Where the log ends now.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.cursor.end()
    }

    /// Where the kept log begins. Its first whole record begins there or a little behind.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// A failure of the disk.
    pub fn oldest(&self) -> Result<Lsn, Error> {
        self.operations.check_process()?;
        Ok(self.operations.in_a_call(|| self.cursor.oldest())?)
    }
}

/// The log of a directory that is not open, as it was when this was made. Changes nothing there, and recovers nothing.
pub struct LogDirectory {
    files: LogFiles,
    /// The log was durable up to here at least.
    durable: Lsn,
    operations: Operations,
}

impl LogDirectory {
    /// Opens the log in the directory of an environment, or in that of an archive. The environment may have lost its
    /// control file, because data and log have the same information.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NotAnEnvironment`], [`Error::Corrupt`], or a failure of the disk.
    pub fn open(path: impl AsRef<Path>) -> Result<LogDirectory, Error> {
        LogDirectory::open_on(disk_in(path)?)
    }

    /// The same on any [`Disk`].
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`LogDirectory::open`].
    pub fn open_on(disk: Arc<dyn Disk>) -> Result<LogDirectory, Error> {
        if !disk.exists(CONTROL_PATH)?
            && let Some(files) = files_of(&disk)?
        {
            return LogDirectory::of_files(files);
        }
        let state = state_of(&disk)?;
        check_control(&*disk, &state)?;
        let files = LogFiles {
            disk,
            environment: state.environment,
            segment_bytes: state.segment_bytes,
            known: Some(Beginning { lsn: state.scan_lsn, incarnation: state.scan_incarnation }),
            incarnation_max: state.incarnation_max,
            end: None,
        };
        let durable = state.durable_lsn.max(state.checkpoint_lsn);
        Ok(LogDirectory { durable, ..LogDirectory::of_files(files)? })
    }

    pub(crate) fn of_files(files: LogFiles) -> Result<LogDirectory, Error> {
        let operations = Operations::Own(Arc::new(operations(&Extensions::default())?));
        Ok(LogDirectory { durable: files.end.unwrap_or(Lsn(0)), files, operations })
    }

    /// A reader. See `Environment::log_reader`. Reads the log to its end first, from the last checkpoint on.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As `Environment::log_reader`, or damage before the end of the log.
    pub fn log_reader(&self, from: Lsn) -> Result<LogReader, Error> {
        Ok(LogReader::new(reader(self, from)?, self.operations.clone()))
    }
}

/// The files of the log of a directory.
#[must_use]
pub fn files(directory: &LogDirectory) -> &LogFiles {
    &directory.files
}

/// The log of a directory was durable up to here at least.
#[must_use]
pub fn durable(directory: &LogDirectory) -> Lsn {
    directory.durable
}

/// A reader of the records of a directory, which does not know what they mean.
///
/// Waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// As [`LogDirectory::log_reader`].
pub fn reader(directory: &LogDirectory, from: Lsn) -> Result<ledgerstone_log::LogReader, Error> {
    const TRIES: u32 = 3;
    for _ in 1..TRIES {
        match ledgerstone_log::LogReader::of_files(directory.files.clone(), from) {
            // A program that has the environment open wrote on while we looked.
            Err(LogError::Corrupt { .. }) => {}
            other => return reaching(other?, directory.durable),
        }
    }
    reaching(ledgerstone_log::LogReader::of_files(directory.files.clone(), from)?, directory.durable)
}

/// A log that ends too early has lost its end.
fn reaching(reader: ledgerstone_log::LogReader, durable: Lsn) -> Result<ledgerstone_log::LogReader, Error> {
    if reader.end() < durable {
        let end = reader.end();
        let what = format!("the log ends at LSN {end}, and was durable up to {durable}: its end is missing or damaged");
        return Err(Error::Corrupt { what });
    }
    Ok(reader)
}
