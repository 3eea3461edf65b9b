//! A new environment, and directories that hold none (O1).

use ledgerstone_region::NumberSet;
use std::sync::Arc;

use ledgerstone_core::directory::{DATA, DOUBLE_WRITE, LOCK, SHARING, new_id, refuse_cut_restore};
use ledgerstone_disk::{Disk, Fence, Open};
use ledgerstone_log::{
    CONTROL_SLOT_BYTES, CREATION_PATH, ControlFile, ControlSlot, ControlState, EnvironmentId, FIRST_LSN, LOG_DIR,
};
use ledgerstone_recovery::{Analysis, RecoveryReport};
use ledgerstone_space::{FileHeader, Space};
use ledgerstone_structures::Tree;
use ledgerstone_txn::Durability;

use super::Opening;
use super::parts::{Begins, Home, Parts, trees};
use crate::Error;
use crate::config::{self, Options};
use crate::inner::{Inner, Rollbacks, Undecided};

pub(super) fn create(options: &Options, disk: Arc<dyn Disk>, fence: Arc<Fence>, home: Home) -> Result<Inner, Error> {
    let effective = options.effective(None)?;
    if let Found::Unfinished = look_at(&disk)? {
        clear_unfinished(&disk)?;
    }
    let state = ControlState::new(new_id(), effective.page_bytes, effective.log_segment_bytes);
    let control = Arc::new(ControlFile::begin_creation(&*disk, state)?);
    let found = Analysis::of_new(FIRST_LSN, state.incarnation_max);
    let too_large = NumberSet::new();
    let begins = Begins { found: &found, too_large: &too_large, redo_threads: 0, next_incarnation: None };
    let parts = Parts::build(options, &effective, (&disk, &fence), &control, begins, &home)?;
    let engine = &parts.engine;
    let opening = Opening(Some(Arc::clone(engine)));

    let space = Space::format(engine, Arc::clone(&parts.data), state.environment)?;
    let mut txn = engine.begin()?;
    let (catalog, to_free) = trees(engine, &space, &options.extensions);
    Tree::format_root(&mut txn, &space, &catalog)?;
    Tree::format_root(&mut txn, &space, to_free.tree())?;
    txn.commit(Durability::Sync)?;
    // O1: what the control file will vouch for is durable before it has its name.
    engine.cache.write_back_all()?;
    disk.sync_dir("")?;
    control.end_creation(&*disk)?;
    let report = RecoveryReport::default();
    let none = (Undecided::default(), Rollbacks::default());
    let inner = parts.into_inner(options, effective, disk, fence, space, catalog, to_free, control, report, none)?;
    inner.make_keepers_unless_shared()?;
    opening.succeeded();
    Ok(inner)
}

/// What a directory without a control file is.
pub(super) enum Found {
    /// There is nothing, or settings only.
    Empty,
    /// There are files, but none under our names.
    Free,
    /// A creation was cut short (O1).
    Unfinished,
}

/// Looks at a directory without a control file, and refuses one that holds files under our names which no creation left
/// there. Changes nothing.
pub(super) fn look_at(disk: &Arc<dyn Disk>) -> Result<Found, Error> {
    let refuse = |why| Err(Error::NotAnEnvironment { path: disk.describe(), why });
    refuse_cut_restore(disk)?;
    let has_log = disk.exists(LOG_DIR)?;
    let logs = if has_log { disk.list(LOG_DIR)? } else { Vec::new() };
    if logs.iter().any(|name| !ledgerstone_log::is_log_file(name)) {
        return refuse("its directory named log holds files that are not ours; choose another directory");
    }
    let foreign_data = "it has a file named data that is not ours; choose another directory";
    if !begins_as_ours(disk, DATA, 40, b"LSTNDATA")? {
        return refuse(foreign_data);
    }
    if !begins_as_ours(disk, DOUBLE_WRITE, 0, b"LSTDWRIT")? {
        return refuse("it has a file named double_write that is not ours; choose another directory");
    }
    let (has_data, has_double_write) = (disk.exists(DATA)?, disk.exists(DOUBLE_WRITE)?);
    let holds_ours = has_data || has_double_write || !logs.is_empty();
    if disk.exists(CREATION_PATH)? {
        // The file comes first and is whole before anything else is made; another environment's vouches for nothing.
        let begun = read_unfinished(disk)?;
        let of_data = if has_data { FileHeader::read(&*disk.open(DATA, Open::READ)?)? } else { None };
        let is_its_own = of_data.is_none_or(|header| Some(header.environment) == begun);
        if !holds_ours || begun.is_some() && is_its_own {
            return Ok(Found::Unfinished);
        }
    }
    if has_data && !has_log {
        return refuse(foreign_data);
    }
    if holds_ours {
        let what = "is missing, although there is data or log".to_string();
        return Err(Error::ControlFile { path: disk.describe(), what });
    }
    let is_settings = |name: &String| name == config::CONFIG_FILE || name == LOCK || name == SHARING || name == LOG_DIR;
    let is_empty = !disk.exists("")? || disk.list("").is_ok_and(|names| names.iter().all(is_settings));
    Ok(if is_empty { Found::Empty } else { Found::Free })
}

/// The environment that was being made.
fn read_unfinished(disk: &Arc<dyn Disk>) -> Result<Option<EnvironmentId>, Error> {
    let file = disk.open(CREATION_PATH, Open::READ)?;
    let mut slot = [0; CONTROL_SLOT_BYTES];
    if file.len()? < slot.len() as u64 {
        return Ok(None);
    }
    file.read_at(0, &mut slot)?;
    Ok(match ControlSlot::decode(&slot) {
        ControlSlot::Valid { state, .. } => Some(state.environment),
        _ => None,
    })
}

/// True if the file is missing, has its magic number, or begins with zeros because nothing was written yet.
fn begins_as_ours(disk: &Arc<dyn Disk>, name: &str, at: usize, magic: &[u8; 8]) -> Result<bool, Error> {
    if !disk.exists(name)? {
        return Ok(true);
    }
    let file = disk.open(name, Open::READ)?;
    let mut head = [0; 512];
    let there = file.len()?.min(512) as usize;
    file.read_at(0, &mut head[..there])?;
    Ok(head[at..at + 8] == *magic || head.iter().all(|&byte| byte == 0))
}

/// Removes what a creation that was cut short has left behind, and last the file that says so (O1).
fn clear_unfinished(disk: &Arc<dyn Disk>) -> Result<(), Error> {
    for file in [DATA, DOUBLE_WRITE] {
        if disk.exists(file)? {
            disk.remove(file)?;
        }
    }
    if disk.exists(LOG_DIR)? {
        for segment in disk.list(LOG_DIR)? {
            disk.remove(&format!("{LOG_DIR}/{segment}"))?;
        }
        disk.sync_dir(LOG_DIR)?;
    }
    disk.sync_dir("")?;
    disk.remove(CREATION_PATH)?;
    Ok(disk.sync_dir("")?)
}
