//! Redo on first touch: the environment opens before its pages have their changes, and each gets them as it comes in.
//!
//! The cache asks here for whatever page comes in (P1 to P4 in `pending.rs` of the buffer). Threads bring in the rest,
//! in the order of the ids.
//!
//! D1. Only what the analysis has gathered whole is put off, and only if all of its operations are known. Else redo is
//!     over before the opening returns.
//! D2. The changes of a page are forgotten under its exclusive latch, when they are made and its frame says so. From
//!     then on they are changes in memory like any other. No checkpoint is taken before all are (K6).
//! D3. What an opening would have refused fails the environment. It is found when a page comes in, by a transaction or
//!     by one of the threads. Both say which page and which record. Nothing is lost: the log is as it was.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Weak};

use ledgerstone_buffer::{BufferError, ExclusivePage, PendingChanges, PendingRedo};
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Lsn, PageId};
use ledgerstone_region::sync;
use ledgerstone_txn::Engine;

use crate::RecoveryError;
use crate::gathered::{Gathered, Window};
use crate::redo::{Redone, in_order};

/// How long a thread waits that found no frame, or a page latched for too long.
const TRY_AGAIN_NS: u64 = 10_000_000;

/// Changes that are left to be repeated.
pub struct Pending {
    /// The cache has this, and the engine the cache.
    engine: Weak<Engine>,
    window: Window,
    /// Where the log ended at the opening. A page at home is older (M5 in `miss.rs` of the buffer), however much log
    /// there is when it comes in.
    end: Lsn,
    worker_count: u64,
    /// Workers that have not come to their end.
    working_count: AtomicU64,
    applied_count: AtomicU64,
    skipped_count: AtomicU64,
}

impl Pending {
    /// Puts off what was gathered, before any page comes in. Gives it back if it cannot be put off (D1).
    ///
    /// # Errors
    /// What was gathered, to be repeated at once.
    pub fn put_off(engine: &Arc<Engine>, gathered: Gathered) -> Result<Arc<Pending>, Gathered> {
        let can_come_in = gathered.window.last_page().is_none_or(|page| page.0 < engine.cache.max_pages());
        if !gathered.is_whole() || !gathered.window.is_known(&engine.ops) || !can_come_in {
            return Err(gathered);
        }
        let pending = Arc::new(Pending {
            engine: Arc::downgrade(engine),
            window: gathered.window,
            end: engine.log.durable_lsn(),
            worker_count: gathered.worker_count,
            working_count: AtomicU64::new(gathered.worker_count),
            applied_count: AtomicU64::new(0),
            skipped_count: AtomicU64::new(0),
        });
        engine.cache.set_pending(Arc::clone(&pending) as _);
        Ok(pending)
    }

    /// How many workers it takes: each calls [`Pending::work`] once, with a number of its own.
    #[must_use]
    pub fn worker_count(&self) -> u64 {
        self.worker_count
    }

    /// How many changes were put off.
    #[must_use]
    pub fn change_count(&self) -> u64 {
        self.window.len() as u64
    }

    /// What was repeated up to now.
    #[must_use]
    pub fn redone(&self) -> Redone {
        let count = |count: &AtomicU64| count.load(Relaxed);
        Redone { applied_count: count(&self.applied_count), skipped_count: count(&self.skipped_count) }
    }

    /// Brings in the pages of one worker that nobody has asked for, until none is left or the environment has failed.
    /// What cannot be brought in fails it (D3).
    pub fn work(&self, no: u64) {
        let Some(engine) = self.engine.upgrade() else { return };
        let _ended = Ended(&engine);
        let pages: Vec<(PageId, bool)> = self.window.pages(no, self.worker_count).collect();
        let bring_in = |page| self.bring_in(&engine, page);
        let see = |_| if engine.is_failed() { Err(BufferError::Failed.into()) } else { Ok(()) };
        match in_order(&engine.cache, self.worker_count, &pages, see, bring_in) {
            Ok(()) if self.working_count.fetch_sub(1, SeqCst) == 1 => engine.cache.clear_pending(),
            Ok(()) => {}
            Err(_) if engine.is_failed() => {} // Whoever has failed it has said why.
            Err(error) => fail(&engine, &error.to_string()),
        }
    }

    fn bring_in(&self, engine: &Engine, page: PageId) -> Result<(), RecoveryError> {
        while self.window.has(page) {
            match engine.cache.exclusive_or_new(page) {
                Ok(_) => return Ok(()),
                Err(BufferError::CacheFull { .. } | BufferError::LatchTimeout { .. }) if !engine.is_failed() => {
                    sync::sleep_ns(TRY_AGAIN_NS); // Others hold what it needs, and they may do so.
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// D3.
fn fail(engine: &Engine, what: &str) {
    engine.fail(&format!("what the log says could not be repeated: {what}"));
}

/// Whoever panics here leaves pages without their changes: others would wait for them for ever.
struct Ended<'e>(&'e Engine);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("what the log says could not be repeated: redo panicked");
        }
    }
}

impl PendingRedo for Pending {
    fn of(&self, page: PageId) -> Option<PendingChanges> {
        if !self.window.has(page) {
            return None;
        }
        let engine = self.engine.upgrade()?;
        let list = self.window.changes_of(page);
        let needs = self.window.needs_of(&engine.ops, &list).ok()?; // D1
        Some(PendingChanges { needs, list })
    }

    fn redo(&self, page: &mut ExclusivePage<'_>, changes: &PendingChanges, is_void: bool) -> Result<(), BufferError> {
        let Some(engine) = self.engine.upgrade() else { return Err(BufferError::Failed) };
        let _ended = Ended(&engine);
        let id = page.id();
        let from = match is_void {
            true => self.window.first_format(&engine.ops, &changes.list).ok().flatten().unwrap_or(0), // E2
            false => 0,
        };
        if page.page_lsn() >= self.end && !planted::is_on(Bug::WriteAheadOff) {
            let what = format!("page {} has LSN {}, and the log ended at {}", id.0, page.page_lsn(), self.end);
            fail(&engine, &what);
            return Err(BufferError::NotRedone { page: id, what });
        }
        if planted::is_on(Bug::PendingMadeNow) {
            page.begin_change(engine.log.tail());
        }
        match self.window.apply(&engine.ops, page, &changes.list[from..]) {
            Ok(done) => {
                self.applied_count.fetch_add(done.applied_count, Relaxed);
                self.skipped_count.fetch_add(done.skipped_count + from as u64, Relaxed);
                self.window.forget(id);
                Ok(())
            }
            Err(error) => {
                let what = error.to_string();
                fail(&engine, &what);
                Err(BufferError::NotRedone { page: id, what })
            }
        }
    }
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").field("redone", &self.redone()).finish_non_exhaustive()
    }
}
