//! The contract of an operation (Lemon 4.1, 4.3).
//!
//! O1. *Normal work calls redo.* A page changes nowhere else. So a restart runs the same code that ran before the
//!     crash.
//! O2. Redo is a function of the page's bytes and the arguments. It reads no clock, no other page, no setting and no
//!     other memory. It iterates over nothing whose order may differ.
//! O3. Redo is called exactly once for a record and a page, because the caller compares the page LSN. It need not be
//!     idempotent.
//! O4. A refused change has changed nothing.
//! O5. The id of an operation and the meaning of its arguments are on disk. They never change. An improved operation
//!     gets another id.

use crate::{OpError, PageMut};
use ledgerstone_page::{OpId, PageId};

/// A registered way to change one page.
pub trait Operation: Send + Sync + 'static {
    /// The number in the log.
    fn id(&self) -> OpId;

    /// A word for messages and log prints, such as `counter.add`.
    fn name(&self) -> &'static str;

    /// True if redo begins with [`PageMut::format`] and does not need the page's old bytes. A restart then does not
    /// read the page, which may be unreadable.
    fn formats(&self) -> bool {
        false
    }

    /// Changes the page.
    ///
    /// Runs under the page's exclusive latch: it must not wait, lock, or touch another page. It must not panic on any
    /// page and any arguments.
    ///
    /// # Errors
    /// The page or the arguments are not what they should be. This is found before the first change (O4).
    fn redo(&self, page: &mut PageMut<'_>, args: &[u8]) -> Result<(), OpError>;

    /// How to undo the change, from the arguments that made it.
    fn undo(&self, args: &[u8]) -> Undo {
        let _ = args;
        Undo::Nothing
    }

    /// True if an undo by [`Undo::Page`] depends only on what else was changed on its page. A restart may then undo it
    /// before later changes of other pages, and so visits each page once. All operations that change pages of one kind
    /// must say the same.
    fn is_undone_by_page(&self) -> bool {
        false
    }

    /// The root page of the structure that is changed, if the arguments name it. A reader of the log filters by it.
    /// Must not panic on any bytes.
    fn root(&self, args: &[u8]) -> Option<PageId> {
        let _ = args;
        None
    }

    /// The arguments as text for people. Must not panic on any bytes.
    fn print(&self, args: &[u8]) -> String;
}

/// How a change is undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undo {
    /// Not at all: the change stays although its transaction is rolled back. For changes in groups, and for changes
    /// that nobody can see.
    Nothing,
    /// By this operation on the same page. Right only if no other transaction can have moved what it is about.
    Page {
        /// The operation that inverts this one.
        op: OpId,
        /// Its arguments.
        args: Vec<u8>,
    },
    /// By a function that looks when the time comes. The engine calls the logical undo that is registered for this
    /// operation. That finds the record, which may be on another page by then.
    Logical,
}
