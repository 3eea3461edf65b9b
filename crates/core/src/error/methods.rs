//! What an error can be asked, and how the library makes those that have rules.

use std::io;
use std::path::Path;

use ledgerstone_lock::LockName;
use ledgerstone_page::{TableId, Xid};

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
            | Error::TableChanged { .. } => true,
            // A transaction that needs most of the locks by itself will need them again.
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

    /// Says what a lock is of, where the lock manager knows numbers only.
    #[doc(hidden)] // For the crates of this workspace.
    pub fn with_locks_named(mut self, text_of: &dyn Fn(LockName) -> Option<String>) -> Error {
        if let Error::LockTimeout { what, .. }
        | Error::LockRefused { what, .. }
        | Error::HeldByCaller { what, .. }
        | Error::Deadlock { cycle: what, .. } = &mut self
        {
            *what = name_locks(what, text_of);
        }
        self
    }

    /// Says more of those who hold a lock that was not granted.
    #[doc(hidden)] // For the crates of this workspace.
    pub fn with_holders_told(mut self, told_of: &dyn Fn(&[Xid]) -> Option<String>) -> Error {
        if let Error::LockTimeout { what, holders, .. } | Error::LockRefused { what, holders, .. } = &mut self
            && let Some(told) = told_of(holders)
        {
            what.push_str(": ");
            what.push_str(&told);
        }
        self
    }

    /// For lack of rights in this transaction, nested transaction or environment, not of space.
    #[doc(hidden)] // For the crates of this workspace.
    pub fn read_only(why: &str) -> Error {
        Error::ReadOnly { why: why.into(), kind: None }
    }

    #[doc(hidden)] // For the crates of this workspace.
    pub fn no_space(what: &dyn std::fmt::Display) -> Error {
        let why = format!("{what}; free some space and go on: nothing was lost");
        Error::ReadOnly { why, kind: Some(io::ErrorKind::StorageFull) }
    }

    /// Of a call of the system that failed at `path`, for instance `write`: full disks and missing rights keep their
    /// meaning.
    #[must_use]
    pub fn of_io(operation: &str, path: &Path, error: &io::Error) -> Error {
        Error::of_kind(error.kind(), error.raw_os_error(), format!("{operation} {}: {error}", path.display()))
    }

    /// Of a call on a file that `what` names; with the system's number of the error, where it is known.
    #[doc(hidden)] // For the crates of this workspace.
    pub fn of_kind(kind: io::ErrorKind, number: Option<i32>, what: String) -> Error {
        match kind {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Error::Permission { what, kind },
            io::ErrorKind::StorageFull => Error::no_space(&what),
            kind => {
                let source = number.map(io::Error::from_raw_os_error);
                Error::Disk(io::Error::new(kind, FileError { what, source }))
            }
        }
    }
}

/// What [`Error::Disk`] holds: the words, and the system's own error as their source.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
struct FileError {
    what: String,
    source: Option<io::Error>,
}

/// Puts texts in the place of locks, each as [`LockName`] shows it: `table 7`, or `key 0x5f of table 7`, `gap ...`,
/// `item ...`. A lock without a text stays as it is.
fn name_locks(text: &str, text_of: &dyn Fn(LockName) -> Option<String>) -> String {
    const TABLE: &str = "table ";
    let mut named = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(TABLE) {
        let (before, table) = rest.split_at(at);
        let id = &table[TABLE.len()..];
        let (id, behind) = id.split_at(id.find(|c: char| !c.is_ascii_digit()).unwrap_or(id.len()));
        let (before, part) = split_part(before);
        let found =
            id.parse().ok().and_then(|id| text_of(part.map_or(LockName::table(TableId(id)), |of| of(TableId(id)))));
        match found {
            Some(found) => named.extend([before, &found]),
            None => named.push_str(&rest[..rest.len() - behind.len()]),
        }
        rest = behind;
    }
    named + rest
}

/// Takes `key 0x5f of `, `gap 0x5f of ` or `item 0x5f of ` off the end of a text, and says which part of a table it is.
fn split_part(text: &str) -> (&str, Option<impl Fn(TableId) -> LockName>) {
    let found = text.strip_suffix(" of ").and_then(|head| {
        let (head, item) = head.rsplit_once(" 0x")?;
        let item = u64::from_str_radix(item, 16).ok()?;
        let part = |kind, make: fn(TableId, u64) -> LockName| {
            head.strip_suffix(kind).map(|before| (before, move |table| make(table, item)))
        };
        part("key", LockName::key).or_else(|| part("gap", LockName::gap)).or_else(|| part("item", LockName::other))
    });
    found.map_or((text, None), |(before, part)| (before, Some(part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_in_a_message_are_named_and_all_else_stays() {
        let text_of =
            |name: LockName| (name.table_id() != TableId(9)).then(|| format!("<{} {}>", name.space, name.item));
        let locks = [
            LockName::table(TableId(7)),
            LockName::key(TableId(7), 0x5f),
            LockName::gap(TableId(8), u64::MAX),
            LockName::other(TableId(8), 3),
            LockName::key(TableId(9), 0x5f),
        ];
        let [a, b, c, d, e] = locks.map(|lock| lock.to_string());
        let text = format!("X on {a} and {b}, of {c}; {d} table {e} of table");
        let expected = format!("X on <28 0> and <29 95>, of <34 {}>; <35 3> table {e} of table", u64::MAX);
        assert_eq!(name_locks(&text, &text_of), expected);
        assert_eq!(name_locks("", &text_of), "");
    }
}
