//! The contract of an operation (Lemon 4.1, 4.3).
//!
//! O1. *The forward path is the redo function*: a page changes nowhere else, so what was tried once before the crash is
//!     what is tried again after it.
//! O2. Redo is a function of the page's bytes and the arguments. It reads no clock, no other page, no setting, no memory
//!     but these, and iterates over nothing whose order may differ.
//! O3. Redo is called exactly once for a record and a page: the caller compares the page LSN. It need not be idempotent.
//! O4. A change that is refused has changed nothing.
//! O5. An operation's id and the meaning of its arguments are on disk. They never change; a better one gets another id.

use crate::{OpError, PageMut};
use ledgerstone_page::{OpId, PageId};

/// A registered way to change one page.
pub trait Operation: Send + Sync + 'static {
    /// The number in the log.
    fn id(&self) -> OpId;

    /// A word for messages and log prints, such as `counter.add`.
    fn name(&self) -> &'static str;

    /// Whether redo begins with [`PageMut::format`] and so does not care for the page's old bytes. Restart then does not
    /// read the page, which may not be readable.
    fn formats(&self) -> bool {
        false
    }

    /// Changes the page.
    ///
    /// Runs under the page's exclusive latch: it must not wait, lock, or touch another page. It must not panic on any
    /// page and any arguments.
    ///
    /// # Errors
    /// Before the first change (O4), if the page or the arguments are not what they should be.
    fn redo(&self, page: &mut PageMut<'_>, args: &[u8]) -> Result<(), OpError>;

    /// How to take the change back, from the arguments that made it.
    fn undo(&self, args: &[u8]) -> Undo {
        let _ = args;
        Undo::Nothing
    }

    /// Whether an undo by [`Undo::Page`] minds nothing but what else was changed on its page. A restart may then undo it before
    /// changes of other pages that were made later, and so visit each page once. All operations that change pages of that kind
    /// must say the same.
    fn is_undone_by_page(&self) -> bool {
        false
    }

    /// The root page of the structure that is changed, if the arguments name it: what a reader of the log filters by. Must
    /// not panic on any bytes.
    fn root(&self, args: &[u8]) -> Option<PageId> {
        let _ = args;
        None
    }

    /// The arguments for people. Must not panic on any bytes.
    fn print(&self, args: &[u8]) -> String;
}

/// How a change is taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undo {
    /// Not at all: the change stays although its transaction ends (groups, and what nobody can see).
    Nothing,
    /// By this operation on the same page. Right only if nobody else can have moved what it is about.
    Page {
        /// The operation that inverts this one.
        op: OpId,
        /// Its arguments.
        args: Vec<u8>,
    },
    /// By whatever is right when the time comes: the logical undo that is registered for this operation with the engine
    /// looks for the record, which may be on another page by then.
    Logical,
}
