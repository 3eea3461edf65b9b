//! Names of files in an environment's directory (`environment/open/mod.rs` says what each is).

pub(crate) const LOCK: &str = "lock";
pub(crate) const DATA: &str = "data";
pub(crate) const DOUBLE_WRITE: &str = "double_write";
/// A restore is being made, or was, and what it made has not taken a checkpoint yet.
pub(crate) const RESTORE: &str = "restore.new";
