//! Real processes share one environment, and are killed and stopped at random moments: do the others go on?
//!
//! A parent starts processes, each with some threads, which do what the users of [`soak`](crate::soak) do. It does not
//! have the environment open itself. From time to time it does to one of them, or to all, one of these:
//!
//! ```text
//!  kill      SIGKILL, often right after the process was started: so it may be joining, recovering or mending
//!  leave     the process closes the environment in order; it may be killed while it does
//!  stop      SIGSTOP for a while; then it goes on, or is killed
//!  all       SIGKILL for all at once: the next one recovers
//! ```
//! J1. Somebody commits within [`PATIENCE`] of each kill. It is counted how often that takes longer than a second.
//! J2. What a process was told is committed is there: the counts that each keeps in the environment are not below those
//!     that it was told.
//! J3. The money of the bank stays the same, snapshots do not change, values are whole: the users look.
//!     So it is with the numbers of a structure as users write them.
//! J4. In the end, and after each `all`, the environment is sound.
//! J5. The environment fails so seldom that it is counted, and why. Then all are killed, and the next one recovers.

mod child;
mod parent;

use std::path::Path;
use std::time::Duration;

use std::sync::Arc;

use ledgerstone::{Durability, Environment, Options, Sharing};
use ledgerstone_examples::counter_list::ListStructure;

pub use child::{ChildArgs, work};
pub use parent::{KillsArgs, Report, dir_in_memory, run};

/// Nobody waits so long for the next commit, or something hangs.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How long a look for the next commit is kept waiting before that is counted.
pub const SECOND: Duration = Duration::from_secs(1);

/// Counts of processes, by their names.
const COUNTS: &str = "counts";

/// A structure of a user's, whose numbers add up to nothing.
const LIST: &str = "list";

/// Small limits, so that every one of them is reached.
fn options(dir: &Path, region_dir: &Path) -> Options {
    Environment::options()
        .sharing(Sharing::Shared)
        .region_dir(region_dir)
        .cache_bytes(4 << 20)
        .log_segment_bytes(1 << 20)
        .log_buffer_bytes(1 << 20)
        .checkpoint_log_bytes(2 << 20)
        .version_store_bytes(4 << 20)
        .lock_count_max(16 << 10)
        .escalate_after(200)
        .transaction_count_max(128)
        .thread_count_max(256)
        .page_count_max(1 << 16)
        .lock_timeout(Duration::from_secs(2))
        .durability(Durability::Sync)
        .create(dir.exists())
        .structure(Arc::new(ListStructure))
}
