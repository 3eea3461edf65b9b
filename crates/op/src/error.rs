//! Why an operation was refused, is unknown, or cannot be registered.

use ledgerstone_page::{Corrupt, OpId, SlottedError};

/// An operation refused its page or its arguments. During normal work that is a bug, or damage that was found in time.
/// During redo it means that the page and the log do not belong together.
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
    /// The same, with a number that says where. For example, a change is made a second time, or a change is undone that
    /// was never made.
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

/// No operation with this number is registered. Its records can be neither redone nor undone. Open the environment with
/// the program that wrote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("operation {op} is not registered")]
pub struct UnknownOperation {
    /// The operation.
    pub op: OpId,
}

/// The number of an operation is already taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("operation {op} is registered already, as {name}")]
pub struct DuplicateOperation {
    /// The number.
    pub op: OpId,
    /// The operation that has it.
    pub name: &'static str,
}
