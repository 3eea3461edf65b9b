//! All keepers of an open environment, and what was kept for each.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ledgerstone_log::{FIRST_LSN, LOG_DIR, Log, LogPin, segment_name};
use ledgerstone_page::Lsn;
use ledgerstone_region::Mutex;

use super::{GoingSegment, LogKeeper};
use crate::Error;

/// Tells the keepers of an environment apart.
pub type KeeperId = u64;

/// A keeper that could not do its part, for which the log is kept meanwhile; or one that needs log that is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KeeperTrouble {
    /// The keeper.
    pub name: String,
    /// What it said, or what it lacks.
    pub what: String,
}

struct Kept {
    id: KeeperId,
    keeper: Arc<dyn LogKeeper>,
    /// What is kept for it. `None`: it needs nothing, or what it needs is gone.
    pin: Option<LogPin>,
    /// It has not said yet what it needs: the pin is of the newest part of the log.
    is_new: bool,
    /// How many questions had been asked when it said last that it needs log.
    said_at: u64,
    /// From where on.
    said: Lsn,
    /// What it needs and is gone.
    lacks: Option<String>,
    /// Why it could not say what it needs when it was asked last.
    does_not_know: Option<String>,
    /// Why it did not let go of what it was told of last.
    holds_on: Option<String>,
}

/// The keepers. No call of one is made with the mutex held.
#[derive(Default)]
pub struct Keepers {
    all: Mutex<All>,
    /// One of them did not let go of what lies below. 0: all did, when they were told last.
    held_below: AtomicU64,
}

#[derive(Default)]
struct All {
    last_id: KeeperId,
    /// Counts the questions that were asked.
    asked: u64,
    kept: Vec<Kept>,
}

impl All {
    fn find(&mut self, id: KeeperId) -> Option<&mut Kept> {
        self.kept.iter_mut().find(|kept| kept.id == id)
    }
}

impl Keepers {
    /// A new one. All log that is there is kept for it until it has said what it needs (K1), as far as it is worth that
    /// much to it.
    pub fn add(&self, log: &Arc<Log>, keeper: Arc<dyn LogKeeper>) -> KeeperId {
        let pin = log.pin_newest(&name_of(&*keeper), bytes_max_of(&*keeper));
        self.insert(keeper, Some(pin), true, (Lsn(0), None))
    }

    /// The same for one that says at once what it needs. If a part of that is gone, the rest is kept: it may be put
    /// back.
    pub fn add_at(&self, log: &Arc<Log>, keeper: Arc<dyn LogKeeper>, from: Lsn) -> KeeperId {
        let pin = log.pin_rest(&name_of(&*keeper), from, bytes_max_of(&*keeper));
        let lacks = lacks(log, from);
        self.insert(keeper, Some(pin), false, (from, lacks))
    }

    fn insert(
        &self,
        keeper: Arc<dyn LogKeeper>,
        pin: Option<LogPin>,
        is_new: bool,
        (said, lacks): (Lsn, Option<String>),
    ) -> KeeperId {
        let mut all = self.all.lock();
        all.last_id += 1;
        let (id, said_at) = (all.last_id, all.asked);
        all.kept.push(Kept { id, keeper, pin, is_new, said_at, said, lacks, does_not_know: None, holds_on: None });
        id
    }

    /// Forgets one, for which nothing is kept then.
    pub fn remove(&self, id: KeeperId) {
        let removed = {
            let kept = &mut self.all.lock().kept;
            kept.iter().position(|kept| kept.id == id).map(|at| kept.swap_remove(at))
        };
        drop(removed);
    }

    /// The keeper of this type, if there is one.
    pub fn find<K: LogKeeper>(&self) -> Option<Arc<K>> {
        let all = self.all.lock();
        let as_any = |kept: &Kept| -> Arc<dyn Any + Send + Sync> { Arc::clone(&kept.keeper) as _ };
        all.kept.iter().find_map(|kept| as_any(kept).downcast().ok())
    }

    fn everybody(&self) -> Vec<(KeeperId, Arc<dyn LogKeeper>)> {
        self.all.lock().kept.iter().map(|kept| (kept.id, Arc::clone(&kept.keeper))).collect()
    }

    /// Asks each what it needs, and keeps no more for it than that.
    pub fn ask(&self, log: &Arc<Log>) {
        for (id, keeper) in self.everybody() {
            let asked = self.question();
            match unless_it_panics(|| keeper.needs_log_from()) {
                Ok(Some(from)) => self.needs(log, id, &*keeper, (from, asked)),
                Ok(None) => self.needs_nothing(id, asked),
                Err(what) => self.does_not_know(id, what),
            }
        }
    }

    fn does_not_know(&self, id: KeeperId, what: String) {
        if let Some(kept) = self.all.lock().find(id) {
            kept.does_not_know = Some(what);
        }
    }

    /// Counts a question that is about to be asked.
    fn question(&self) -> u64 {
        let mut all = self.all.lock();
        all.asked += 1;
        all.asked
    }

    /// One of them has let go, or needs log for the first time.
    pub fn moved(&self, log: &Arc<Log>, id: KeeperId, from: Lsn) {
        let keeper = self.everybody().into_iter().find(|(there, _)| *there == id);
        if let Some((_, keeper)) = keeper {
            self.needs(log, id, &*keeper, (from, self.question()));
        }
    }

    /// Keeps the log from there on for one that was asked before. Unless it has said something later since: what lies
    /// between the two may be gone.
    fn needs(&self, log: &Arc<Log>, id: KeeperId, keeper: &dyn LogKeeper, (from, was_asked): (Lsn, u64)) {
        let lacks_pin = |kept: &Kept| kept.is_new || kept.pin.is_none();
        let is_late = |kept: &Kept| from < kept.said && kept.said_at >= was_asked;
        let bytes_max = match unless_it_panics(|| Ok(keeper.log_bytes_max())) {
            Ok(bytes_max) => bytes_max,
            Err(what) => return self.does_not_know(id, what),
        };
        let mut new = None;
        loop {
            let mut all = self.all.lock();
            let asked = all.asked;
            let Some(kept) = all.find(id).filter(|kept| !is_late(kept)) else {
                drop(all);
                return drop(new);
            };
            if lacks_pin(kept) && new.is_none() {
                drop(all);
                new = Some(pin_from(log, &name_of(keeper), from, bytes_max));
                continue; // With the pin: an earlier answer may let go of what was kept, until this one is noted.
            }
            // Below the first LSN it names what was there when it named that first.
            let named = new.as_ref().or(kept.pin.as_ref()).map_or(from, LogPin::lsn);
            let lacks = lacks(log, if from < FIRST_LSN { named } else { from });
            let is_kept = lacks.is_none() || bytes_max != u64::MAX; // K4
            (kept.does_not_know, kept.lacks, kept.said_at, kept.said) = (None, lacks, asked, from);
            let dropped = if !is_kept {
                [kept.pin.take(), new]
            } else if lacks_pin(kept) {
                [std::mem::replace(&mut kept.pin, new), None]
            } else {
                [new, None] // Another thread has asked, too.
            };
            kept.is_new = false;
            if let Some(pin) = &kept.pin {
                pin.advance(from);
            }
            drop(all);
            return drop(dropped);
        }
    }

    /// Lets go of what is kept for one of them. Unless it has said since it was asked that it needs something. It may
    /// have thought so after it gave this answer, or before, and what is kept can still be given up later.
    fn needs_nothing(&self, id: KeeperId, asked: u64) {
        let mut all = self.all.lock();
        let Some(kept) = all.find(id).filter(|kept| kept.said_at < asked) else { return };
        (kept.does_not_know, kept.lacks, kept.is_new) = (None, None, false);
        let dropped = kept.pin.take();
        drop(all);
        drop(dropped);
    }

    /// Tells each that this part of the log goes, and says whether it may (K2).
    pub fn tell(&self, start: Lsn, end: Lsn, segment_bytes: u64) -> bool {
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
            if let Some(kept) = self.all.lock().find(id) {
                kept.holds_on = holds_on;
            }
        }
        self.held_below.store(if may_go { 0 } else { end.0 }, Relaxed);
        may_go
    }

    /// Up to where the log would have gone when they were told last, if one of them had not held on to it.
    #[must_use]
    pub fn held_below(&self) -> Option<Lsn> {
        Some(Lsn(self.held_below.load(Relaxed))).filter(|held| *held != Lsn(0))
    }

    /// Those that are in trouble, and why.
    #[must_use]
    pub fn troubles(&self) -> Vec<KeeperTrouble> {
        let in_trouble = |kept: &Kept| {
            let what = kept.does_not_know.as_ref().or(kept.holds_on.as_ref()).or(kept.lacks.as_ref());
            what.map(|what| (Arc::clone(&kept.keeper), what.clone()))
        };
        let all: Vec<_> = self.all.lock().kept.iter().filter_map(in_trouble).collect();
        all.into_iter().map(|(keeper, what)| KeeperTrouble { name: name_of(&*keeper), what }).collect()
    }
}

/// Keeps the log from there on. Below the first LSN, that is all that is there now: a bound counts from its beginning,
/// not from that of a log that has long been given up.
fn pin_from(log: &Arc<Log>, name: &str, from: Lsn, bytes_max: u64) -> LogPin {
    if from >= FIRST_LSN {
        return log.pin_rest(name, from, bytes_max);
    }
    loop {
        if let Ok(pin) = log.pin(name, log.oldest_lsn(), bytes_max) {
            return pin; // Otherwise a checkpoint gave something up meanwhile.
        }
    }
}

/// What is gone of the log from there on.
fn lacks(log: &Log, from: Lsn) -> Option<String> {
    let oldest = log.oldest_lsn();
    (from >= FIRST_LSN && from < oldest)
        .then(|| format!("it needs the log from LSN {from}, which begins at {oldest} now"))
}

/// What it is called. One that panics when it is asked has no name (K2).
fn name_of(keeper: &dyn LogKeeper) -> String {
    unless_it_panics(|| Ok(keeper.name())).unwrap_or_else(|_| "a keeper whose name panics".into())
}

/// The most that is kept for it until it is asked. If it panics, there is no bound: nothing goes behind its back (K1).
fn bytes_max_of(keeper: &dyn LogKeeper) -> u64 {
    unless_it_panics(|| Ok(keeper.log_bytes_max())).unwrap_or(u64::MAX)
}

/// K2.
fn unless_it_panics<T>(f: impl FnOnce() -> Result<T, Error>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err("it panicked".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use ledgerstone_disk::SimDisk;
    use ledgerstone_log::LogConfig;
    use ledgerstone_region::Region;

    use super::*;

    /// Needs all of the log. When it is asked how much of that is kept, something else happens, once.
    #[derive(Default)]
    struct Own(Mutex<Option<Box<dyn FnOnce() + Send>>>);

    impl LogKeeper for Own {
        fn name(&self) -> String {
            "own".into()
        }

        fn needs_log_from(&self) -> Result<Option<Lsn>, Error> {
            Ok(Some(FIRST_LSN))
        }

        fn log_bytes_max(&self) -> u64 {
            let happens = self.0.lock().take();
            happens.into_iter().for_each(|happens| happens());
            u64::MAX
        }
    }

    /// Two threads have asked. The answer to the earlier question, that nothing is needed, is heard in the middle of
    /// the later one.
    #[test]
    fn what_is_needed_is_kept_though_an_earlier_answer_lets_go_of_it() {
        let region = Region::anonymous(16 << 20).unwrap();
        let config = LogConfig::new(Arc::new(SimDisk::new()), region, *b"test environment");
        let log = Log::open(LogConfig { segment_bytes: 16 << 10, buffer_bytes: 16 << 10, ..config }).unwrap();
        let (keepers, own) = (Arc::new(Keepers::default()), Arc::new(Own::default()));
        let id = keepers.add_at(&log, Arc::clone(&own) as _, FIRST_LSN);
        let (asked, all) = (keepers.question(), Arc::clone(&keepers));
        *own.0.lock() = Some(Box::new(move || all.needs_nothing(id, asked)));
        keepers.ask(&log);
        assert_eq!(log.pinned().iter().map(|pin| pin.lsn).collect::<Vec<_>>(), [FIRST_LSN]);
        keepers.ask(&log);
        assert_eq!((log.pinned().len(), keepers.troubles()), (1, vec![]), "no other one is made");
    }
}
