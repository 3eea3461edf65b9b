//! Who waits for whom: the waits-for graph of the lock table, for people.

use ledgerstone_page::Xid;

use crate::Environment;

/// One transaction waits for another: an edge of the waits-for graph at the moment it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockWait {
    /// The transaction that waits: [`crate::Transaction::xid`]. For a transaction that is run again, it is the id of
    /// its first run.
    pub waiter: Xid,
    /// The transaction that stands in its way. It holds the lock, or asked for it before.
    pub waits_for: Xid,
    /// The mode that the waiter wants, as X or IS.
    pub mode: String,
    /// The table, if its name is known to this environment.
    pub table: Option<String>,
    /// What is locked: a table, a key of one, or a gap between keys, such as `key "apple" of table "stock"`.
    pub what: String,
    /// True if the waiter asks for no lock itself: inside one of its closures, `waits_for` does. `mode`, `table` and
    /// `what` are then what that one waits for.
    pub is_held_up: bool,
}

impl Environment {
    /// Which transactions wait for whose locks now. Empty when none waits.
    #[must_use]
    pub fn lock_waits(&self) -> Vec<LockWait> {
        let env = self.inner();
        let wait = |edge: ledgerstone_lock::DeadlockEdge| {
            let table = env.known.with_tree(edge.name.table_id()).map(|(info, _)| info.name.clone());
            let what = env.lock_text(edge.name).unwrap_or_else(|| edge.name.to_string());
            let mode = edge.mode.to_string();
            LockWait { waiter: edge.xid, waits_for: edge.waits_for, mode, table, what, is_held_up: edge.is_held_up }
        };
        env.engine.in_a_call(|| env.engine.locks.waits().into_iter().map(wait).collect())
    }
}
