//! Names of files in an environment's directory (`environment/open/mod.rs` says what each is).

/// Locked by the process that has the environment open.
pub const LOCK: &str = "lock";
/// Locked, and not exclusively, by each of the processes that share the environment.
pub const SHARING: &str = "sharing";
/// The pages.
pub const DATA: &str = "data";
/// Copies of pages in flight.
pub const DOUBLE_WRITE: &str = "double_write";
/// A restore is being made, or was, and what it made has not taken a checkpoint yet.
pub const RESTORE: &str = "restore.new";
