//! Why an operation was refused, is unknown, or cannot be registered.

use ledgerstone_page::{Corrupt, OpId, SlottedError};

/// An operation refused its page or its arguments. On the forward path that is a bug or damage found in time; in redo it
/// means that page and log do not belong together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// The arguments are not what the operation writes.
    #[error("operation {op}: bad arguments of {len} bytes: {what}")]
    BadArgs {
        /// The operation.
        op: OpId,
        /// Bytes of the arguments.
        len: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// The page is not in the state that the change needs.
    #[error("operation {op} does not fit its page: {what}")]
    Unfit {
        /// The operation.
        op: OpId,
        /// What is wrong.
        what: &'static str,
    },
    /// The same, and a number says where: a change that was made already is made again, or one undone that was not made.
    #[error("operation {op} does not fit its page: {what} (number {at})")]
    UnfitAt {
        /// The operation.
        op: OpId,
        /// What is wrong.
        what: &'static str,
        /// The slot, bit or page it is about.
        at: u64,
    },
    /// The page breaks an invariant of its layout.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// A slotted page refused.
    #[error(transparent)]
    Slotted(#[from] SlottedError),
}

/// Nobody registered this operation. Records of it can be neither redone nor undone: open with whoever wrote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("operation {op} is not registered")]
pub struct UnknownOperation {
    /// The operation.
    pub op: OpId,
}

/// The number of an operation is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("operation {op} is registered already, as {name}")]
pub struct DuplicateOperation {
    /// The number.
    pub op: OpId,
    /// Who has it.
    pub name: &'static str,
}
