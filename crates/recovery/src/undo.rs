//! Undo: the losers rolled back, as their programs could have done themselves.
//!
//! U1. First, for every loser, the updates of its open nested top actions are undone on their pages. Only then are the
//!     structures whole, and only then may a logical undo walk through them (design 6).
//! U2. Then all losers are undone together, newest record first.
//! U3. Whatever is undone leaves compensation records, so that a crash in here costs nothing but time.
//! U4. Prepared transactions are taken over before that, with their locks: no checkpoint may pass them, and nobody may begin
//!     before them.

use std::collections::BTreeMap;
use std::sync::Arc;

use ledgerstone_log::Backwards;
use ledgerstone_page::{Lsn, Xid};
use ledgerstone_txn::{Engine, Txn};

use crate::RecoveryError;
use crate::analysis::{InDoubt, Loser};

/// Takes the prepared transactions over, each with its locks (U4).
///
/// # Errors
/// No slot for one of them, or no space for its rollback.
pub fn keep_prepared(
    engine: &Arc<Engine>,
    in_doubt: &BTreeMap<Xid, InDoubt>,
) -> Result<Vec<(InDoubt, Txn)>, RecoveryError> {
    let keep = |(&xid, found): (&Xid, &InDoubt)| {
        let txn = engine.adopt_prepared(xid, found.first, found.last, &found.record)?;
        Ok((found.clone(), txn))
    };
    in_doubt.iter().map(keep).collect()
}

/// Rolls all losers back and ends them. Returns how many records were visited.
///
/// # Errors
/// The log or a page cannot be read or written; an undo is missing or refuses.
pub fn undo(engine: &Arc<Engine>, losers: &BTreeMap<Xid, Loser>) -> Result<u64, RecoveryError> {
    let mut open: BTreeMap<Lsn, Txn> = BTreeMap::new(); // by the next record to undo
    for (&xid, loser) in losers {
        let mut txn = engine.adopt(xid, loser.first, loser.last)?;
        txn.begin_undo();
        if let Some(&outermost) = loser.open_nested.first() {
            txn.undo_back_to(outermost)?; // U1
        }
        open.insert(txn.last_lsn(), txn);
    }
    let low = losers.values().map(|loser| loser.first).min().unwrap_or(Lsn(0));
    let mut back = Backwards::new(&engine.log, low, u64::MAX); // Together they want most of it.
    let mut visited_count = 0;
    while let Some((next, mut txn)) = open.pop_last() {
        let before = txn.undo_one(&mut back, next)?; // U2
        visited_count += 1;
        if before == Lsn(0) {
            txn.end_loser()?;
        } else {
            open.insert(before, txn);
        }
    }
    Ok(visited_count)
}
