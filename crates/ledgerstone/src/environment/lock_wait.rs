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
    /// What is locked: the table, a key of it by its hash, or a gap between keys.
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
            let (id, what) = (edge.name.table_id(), edge.name.to_string());
            let table = env.known.name_of(id);
            let what = match &table {
                Some(name) => what.replace(&format!("table {}", id.0), &format!("table {name}")),
                None => what,
            };
            let mode = edge.mode.to_string();
            LockWait { waiter: edge.xid, waits_for: edge.waits_for, mode, table, what, is_held_up: edge.is_held_up }
        };
        env.engine.locks.waits().into_iter().map(wait).collect()
    }
}
