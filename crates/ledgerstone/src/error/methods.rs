//! What an error can be asked, and how the library makes those that have rules.

use std::io;
use std::path::Path;

use ledgerstone_page::TableId;

use super::Error;

impl Error {
    /// A reason of the program's own for a closure to give up: a text, or an error of any type. It comes back as it is
    /// in [`Error::User`], after the roll-back.
    ///
    /// ```
    /// use ledgerstone::Error;
    ///
    /// let error = Error::user(std::fmt::Error);
    /// assert!(matches!(&error, Error::User(why) if why.is::<std::fmt::Error>()));
    /// assert_eq!(Error::user("sold out").to_string(), "sold out");
    /// ```
    #[must_use]
    pub fn user(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::User(why.into())
    }

    /// True if the same transaction may succeed when it is run again.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Deadlock { .. }
            | Error::LockRefused { .. }
            | Error::LockTimeout { .. }
            | Error::SnapshotConflict { .. }
            | Error::IndexesChanged { .. } => true,
            // Whoever needs most of the locks by itself will need them again.
            Error::LockTableFull { held, max } => *held <= max / 2,
            _ => false,
        }
    }

    /// The kind of error that the operating system reported for a file: of [`Error::Disk`], of [`Error::Permission`],
    /// and of [`Error::ReadOnly`] for lack of space. `None` if the system reported none.
    #[must_use]
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        match self {
            Error::Disk(error) => Some(error.kind()),
            Error::Permission { kind, .. } => Some(*kind),
            Error::ReadOnly { kind, .. } => *kind,
            _ => None,
        }
    }

    /// Says the name of the table that a lock is of, where the lock manager knows a number only.
    pub(crate) fn with_table_name(mut self, name_of: impl Fn(TableId) -> Option<String>) -> Error {
        if let Error::LockTimeout { what, .. }
        | Error::LockRefused { what, .. }
        | Error::HeldByCaller { what, .. }
        | Error::Deadlock { cycle: what, .. } = &mut self
        {
            *what = name_tables(what, name_of);
        }
        self
    }

    /// For lack of rights in this transaction, nested transaction or environment, not of space.
    pub(crate) fn read_only(why: &str) -> Error {
        Error::ReadOnly { why: why.into(), kind: None }
    }

    pub(crate) fn no_space(what: &dyn std::fmt::Display) -> Error {
        let why = format!("{what}; free some space and go on: nothing was lost");
        Error::ReadOnly { why, kind: Some(io::ErrorKind::StorageFull) }
    }

    /// Of a call of the system that failed at `path`, for instance `write`: full disks and missing rights keep their
    /// meaning.
    #[must_use]
    pub fn of_io(operation: &str, path: &Path, error: &io::Error) -> Error {
        Error::of_kind(error.kind(), format!("{operation} {}: {error}", path.display()))
    }

    /// Of a call on a file that `what` names.
    pub(crate) fn of_kind(
        kind: io::ErrorKind,
        what: impl Into<Box<dyn std::error::Error + Send + Sync>> + std::fmt::Display,
    ) -> Error {
        match kind {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Error::Permission { what: what.to_string(), kind }
            }
            io::ErrorKind::StorageFull => Error::no_space(&what),
            kind => Error::Disk(io::Error::new(kind, what)),
        }
    }
}

/// Puts names in the place of ids, each as `table 7`, as far as they are known.
fn name_tables(text: &str, name_of: impl Fn(TableId) -> Option<String>) -> String {
    let mut parts = text.split("table ");
    let mut named = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        named.push_str("table ");
        let (id, rest) = part.split_at(part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len()));
        match id.parse().ok().and_then(|id| name_of(TableId(id))) {
            Some(name) => named.push_str(&format!("{name:?}")),
            None => named.push_str(id),
        }
        named.push_str(rest);
    }
    named
}
