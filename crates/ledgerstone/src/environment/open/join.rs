//! An environment that others have open, and share (A1 to A4 in `inner/among.rs`).

use std::sync::Arc;

use ledgerstone_disk::{Disk, Fence};
use ledgerstone_recovery::RecoveryReport;
use ledgerstone_space::Space;

use super::Opening;
use super::parts::{Parts, trees};
use crate::Error;
use crate::config::Options;
use crate::inner::{Among, Inner, Rollbacks, Undecided};

pub(super) fn join(options: &Options, disk: Arc<dyn Disk>, fence: Arc<Fence>, among: Among) -> Result<Inner, Error> {
    let (parts, effective, control) = Parts::join(options, (&disk, &fence), among)?;
    let engine = Arc::clone(&parts.engine);
    let opening = Opening(Some(Arc::clone(&engine)));
    let space = Space::join(&engine, Arc::clone(&parts.data))?;
    let (catalog, to_free) = trees(&engine, &space, &options.extensions);
    let report = RecoveryReport { was_clean: true, ..RecoveryReport::default() };
    let none = (Undecided::default(), Rollbacks::default());
    let inner = parts.into_inner(options, effective, disk, fence, space, catalog, to_free, control, report, none)?;
    opening.succeeded();
    Ok(inner)
}
