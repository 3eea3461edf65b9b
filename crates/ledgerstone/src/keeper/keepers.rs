//! All keepers of an open environment, and what was kept for each.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ledgerstone_log::{LOG_DIR, Log, LogError, LogPin, segment_name};
use ledgerstone_page::Lsn;
use ledgerstone_region::Mutex;

use super::{GoingSegment, LogKeeper};
use crate::Error;

/// Tells the keepers of an environment apart.
pub(crate) type KeeperId = u64;

/// A keeper that could not do its part. Meanwhile the log is kept for it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KeeperTrouble {
    /// The keeper.
    pub name: String,
    /// What it said.
    pub what: String,
}

struct Kept {
    id: KeeperId,
    keeper: Arc<dyn LogKeeper>,
    /// What is kept for it. `None`: it needs nothing, or what it needs is gone.
    pin: Option<LogPin>,
    /// Why it could not say what it needs when it was asked last.
    does_not_know: Option<String>,
    /// Why it did not let go of what it was told of last.
    holds_on: Option<String>,
}

/// The keepers. No call of one is made with the mutex held.
#[derive(Default)]
pub(crate) struct Keepers {
    all: Mutex<(KeeperId, Vec<Kept>)>,
}

impl Keepers {
    /// A new one. All log that is there is kept for it until it is asked (K1).
    pub(crate) fn add(&self, log: &Arc<Log>, keeper: Arc<dyn LogKeeper>) -> Result<KeeperId, Error> {
        let (name, bytes_max) = (keeper.name(), keeper.log_bytes_max());
        let pin = loop {
            match log.pin(&name, log.oldest_lsn(), bytes_max) {
                Err(LogError::Recycled { .. }) => {} // A checkpoint was faster.
                pinned => break Some(pinned?),
            }
        };
        Ok(self.insert(keeper, pin))
    }

    /// The same for one that says at once what it needs. If that is gone, nothing is kept for it.
    pub(crate) fn add_at(&self, log: &Arc<Log>, keeper: Arc<dyn LogKeeper>, from: Lsn) -> KeeperId {
        let pin = log.pin(&keeper.name(), from, keeper.log_bytes_max()).ok();
        self.insert(keeper, pin)
    }

    fn insert(&self, keeper: Arc<dyn LogKeeper>, pin: Option<LogPin>) -> KeeperId {
        let (last, all) = &mut *self.all.lock();
        *last += 1;
        all.push(Kept { id: *last, keeper, pin, does_not_know: None, holds_on: None });
        *last
    }

    pub(crate) fn remove(&self, id: KeeperId) {
        let removed = {
            let (_, all) = &mut *self.all.lock();
            all.iter().position(|kept| kept.id == id).map(|at| all.swap_remove(at))
        };
        drop(removed);
    }

    /// The keeper of this type, if there is one.
    pub(crate) fn find<K: LogKeeper>(&self) -> Option<Arc<K>> {
        let (_, all) = &*self.all.lock();
        let as_any = |kept: &Kept| -> Arc<dyn Any + Send + Sync> { Arc::clone(&kept.keeper) as _ };
        all.iter().find_map(|kept| as_any(kept).downcast().ok())
    }

    fn everybody(&self) -> Vec<(KeeperId, Arc<dyn LogKeeper>)> {
        self.all.lock().1.iter().map(|kept| (kept.id, Arc::clone(&kept.keeper))).collect()
    }

    /// Asks each what it needs, and keeps no more for it than that.
    pub(crate) fn ask(&self, log: &Arc<Log>) {
        for (id, keeper) in self.everybody() {
            let needs = unless_it_panics(|| keeper.needs_log_from());
            self.note(log, id, &*keeper, needs);
        }
    }

    /// One of them has let go, or needs log for the first time.
    pub(crate) fn moved(&self, log: &Arc<Log>, id: KeeperId, from: Lsn) {
        let keeper = self.everybody().into_iter().find(|(there, _)| *there == id);
        if let Some((_, keeper)) = keeper {
            self.note(log, id, &*keeper, Ok(Some(from)));
        }
    }

    fn note(&self, log: &Arc<Log>, id: KeeperId, keeper: &dyn LogKeeper, needs: Result<Option<Lsn>, String>) {
        let is_pinned = |kept: &Kept| kept.id == id && kept.pin.is_some();
        let lacks_pin = !self.all.lock().1.iter().any(is_pinned);
        // What it needs may be gone already, because it is too far behind or let it go before.
        let new = match needs {
            Ok(Some(from)) if lacks_pin => log.pin(&keeper.name(), from, keeper.log_bytes_max()).ok(),
            _ => None,
        };
        let mut all = self.all.lock();
        let Some(kept) = all.1.iter_mut().find(|kept| kept.id == id) else { return };
        let let_go = match needs {
            Ok(from) => {
                kept.does_not_know = None;
                if let (Some(from), Some(pin)) = (from, &kept.pin) {
                    pin.advance(from);
                }
                if from.is_none() { kept.pin.take() } else { None }
            }
            Err(what) => {
                kept.does_not_know = Some(what);
                None
            }
        };
        if let Some(new) = new {
            kept.pin = Some(new);
        }
        drop(all);
        drop(let_go);
    }

    /// Tells each that this part of the log goes, and says whether it may (K2).
    pub(crate) fn tell(&self, start: Lsn, end: Lsn, segment_bytes: u64) -> bool {
        let mut may_go = true;
        let everybody = self.everybody();
        if everybody.is_empty() {
            return may_go;
        }
        let segment = |start: u64| GoingSegment {
            file: format!("{LOG_DIR}/{}", segment_name(start)),
            start: Lsn(start),
            end: Lsn(start + segment_bytes),
        };
        let count = (end.0 - start.0) / segment_bytes;
        let segments: Vec<GoingSegment> = (0..count).map(|no| segment(start.0 + no * segment_bytes)).collect();
        for (id, keeper) in everybody {
            let holds_on = unless_it_panics(|| keeper.log_goes(&segments)).err();
            may_go &= holds_on.is_none();
            if let Some(kept) = self.all.lock().1.iter_mut().find(|kept| kept.id == id) {
                kept.holds_on = holds_on;
            }
        }
        may_go
    }

    pub(crate) fn troubles(&self) -> Vec<KeeperTrouble> {
        let in_trouble = |kept: &Kept| {
            kept.does_not_know.as_ref().or(kept.holds_on.as_ref()).map(|what| (Arc::clone(&kept.keeper), what.clone()))
        };
        let all: Vec<_> = self.all.lock().1.iter().filter_map(in_trouble).collect();
        all.into_iter().map(|(keeper, what)| KeeperTrouble { name: keeper.name(), what }).collect()
    }
}

/// K2.
fn unless_it_panics<T>(f: impl FnOnce() -> Result<T, Error>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err("it panicked".to_string()),
    }
}
