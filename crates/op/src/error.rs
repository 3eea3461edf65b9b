//! Why an operation was refused, is unknown, or cannot be registered.

use ledgerstone_page::{Corrupt, OpId, SlottedError};

/// An operation refused its page or its arguments. On the forward path that is a bug or damage found in time; in redo it
/// means that page and log do not belong together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// The arguments are not what the operation writes.
    #[error("{op}: bad arguments of {len} bytes: {what}")]
    BadArgs {
        /// The operation.
        op: OpId,
        /// Bytes of the arguments.
        len: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// The page is not in the state that the change needs.
    #[error("{op} does not fit its page: {what}")]
    Unfit {
        /// The operation.
        op: OpId,
        /// What is wrong.
        what: &'static str,
    },
    /// The same, and a number says where: a change that was made already is made again, or one undone that was not made.
    #[error("{op} does not fit its page: {what} (number {at})")]
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
#[error("{op} is not registered")]
pub struct UnknownOperation {
    /// The operation.
    pub op: OpId,
}

/// Two operations claim one id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{op} is registered twice: as {first} and as {second}")]
pub struct DuplicateOperation {
    /// The id.
    pub op: OpId,
    /// The name under which it was registered first.
    pub first: &'static str,
    /// The name of the operation that was refused.
    pub second: &'static str,
}
