//! From a crash to a running system: analysis, redo, undo (ARIES), and the checkpoints that keep them short.
//!
//! This crate calls operations without knowing one, and rolls back by the transactions' own rollback. It does not know
//! which files an environment has or how it is opened; the facade puts the phases together:
//!
//! ```text
//!  torn pages restored ─► analysis ─► incarnation raised ─► redo ─► undo ─► checkpoint
//! ```
#![forbid(unsafe_code)]

mod analysis;
mod checkpoint;
mod error;
mod redo;
mod report;
mod undo;

pub use analysis::{Analysis, Loser, analyse};
pub use checkpoint::{Checkpoint, checkpoint};
pub use error::RecoveryError;
pub use redo::{Redone, redo};
pub use report::RecoveryReport;
pub use undo::undo;
