//! What a survivor calls when processes may have died.

use std::sync::Arc;

use ledgerstone_region::{AnotherDied, Dead};
use ledgerstone_txn::{Engine, TxnError};

use crate::PageRebuild;

/// Mends what the dead have left, with pages built again from the log. Then somebody calls [`Engine::end_orphans`], in
/// another thread. `also` is called last, for what stands on the engine. True if anybody had died.
///
/// # Errors
/// As [`Engine::repair`].
pub fn repair(engine: &Arc<Engine>, also: impl Fn(&Dead<'_>) -> Result<(), AnotherDied>) -> Result<bool, TxnError> {
    engine.repair(|until| PageRebuild::new(&engine.ops, &engine.log, until), also)
}
