//! The contract of an operation (Lemon 3.1): redo is the forward path, and the only place that changes page bytes.
//!
//! An operation has a number that never changes, arguments that go into the log, a redo that works on one page, and an
//! undo: another operation on the same page, or a logical one that its structure performs.

use ledgerstone_page::OpId;

use crate::{OpError, PageMut};

/// How an update is taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undo {
    /// Nothing need be done: the update may stay.
    Nothing,
    /// By another operation on the same page.
    Page {
        /// The inverse operation.
        op: OpId,
        /// Its arguments.
        args: Vec<u8>,
    },
    /// By the structure, which finds the place anew.
    Logical,
}

/// A change of one page that can be logged, redone and undone.
pub trait Operation: Send + Sync + 'static {
    /// Its number, stored in the log; never changed, never used again.
    fn id(&self) -> OpId;

    /// Its name, for people.
    fn name(&self) -> &'static str;

    /// True if redo makes the page anew and does not care what was there: such a page is not read from disk.
    fn formats(&self) -> bool {
        false
    }

    /// Applies the operation to a page that is latched exclusively, when it happens and when it is repeated.
    ///
    /// Deterministic: page bytes and arguments alone decide. It never panics on any bytes.
    ///
    /// # Errors
    /// The arguments or the page do not fit; then nothing has changed.
    fn redo(&self, page: &mut PageMut<'_>, args: &[u8]) -> Result<(), OpError>;

    /// How the update with these arguments is taken back.
    fn undo(&self, args: &[u8]) -> Undo {
        let _ = args;
        Undo::Nothing
    }

    /// The arguments in words.
    fn print(&self, args: &[u8]) -> String;
}
