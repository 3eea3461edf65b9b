//! Why an operation refuses.

use ledgerstone_page::{Corrupt, OpId};

/// An operation cannot be applied: its arguments do not fit, or do not fit the page. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// The arguments are not what the operation writes.
    #[error("operation {op}: {len} bytes of arguments are not valid: {what}")]
    BadArgs {
        /// The operation.
        op: OpId,
        /// Length of the arguments.
        len: usize,
        /// What is wrong with them.
        what: &'static str,
    },
    /// The page is not in the state that the operation needs.
    #[error("operation {op} does not fit the page: {what}")]
    Unfit {
        /// The operation.
        op: OpId,
        /// What does not fit.
        what: &'static str,
    },
    /// The page's bytes break an invariant.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

/// Nobody registered this operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
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
