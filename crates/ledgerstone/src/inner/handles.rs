//! Who keeps an environment open, and its close.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use ledgerstone_core::directory::await_turn;
use ledgerstone_region::{Mutex, sync};

use super::{CLOSED, Inner, Shares};
use crate::Error;

/// How long a close waits for what other threads are writing: as long as a latch is waited for.
const WRITES_WAIT_NS: u64 = 60_000_000_000;
/// How long one sleep for that lasts at first, and at most: each lasts twice as long as the one before.
const WRITES_LOOK_NS: std::ops::RangeInclusive<u64> = 50_000..=20_000_000;

/// Held once by all clones of a handle, and by each running transaction: when the last goes, the environment is closed.
/// Background threads, tables and iterators hold [`Inner`] only.
pub(crate) struct Handles {
    pub(crate) env: Arc<Inner>,
    threads: Mutex<Vec<sync::JoinHandle<()>>>,
    /// Which these are, also while a close waits for them.
    own: Vec<sync::ThreadMark>,
    /// The thread that closes. The keepers work there once more.
    closing: Mutex<Option<sync::ThreadMark>>,
    /// Of the close: `NOT_YET`, or how it has ended.
    ended: AtomicU32,
    /// Others use the region. So nothing ends there that is not this process's own.
    #[cfg(feature = "deaths")]
    is_view: bool,
}

/// A close has not ended yet.
const NOT_YET: u32 = 0;
/// A close has ended, and everything is written.
const IN_ORDER: u32 = 1;
/// A close has ended, and not everything is.
const NOT_IN_ORDER: u32 = 2;

impl Handles {
    pub(crate) fn of(env: Arc<Inner>, threads: Vec<sync::JoinHandle<()>>) -> Handles {
        let own = threads.iter().map(sync::JoinHandle::mark).collect();
        Handles {
            env,
            threads: Mutex::new(threads),
            own,
            closing: Mutex::new(None),
            ended: AtomicU32::new(NOT_YET),
            #[cfg(feature = "deaths")]
            is_view: false,
        }
    }

    /// Of a process that shares the region with others.
    #[cfg(feature = "deaths")]
    pub(crate) fn of_view(env: Arc<Inner>) -> Handles {
        let mut handles = Handles::of(env, Vec::new());
        handles.is_view = true;
        handles
    }

    /// Ends what the process has of its own.
    #[cfg(feature = "deaths")]
    fn leave(&self) {
        self.env.is_closed.store(true, Relaxed);
        self.env.engine.clear_undos();
    }

    /// Ends the background threads. The environment stays open without them.
    #[cfg(feature = "deaths")]
    pub(crate) fn end_background(&self) {
        self.env.bell.stop();
        let threads = std::mem::take(&mut *self.threads.lock());
        threads.into_iter().for_each(|thread| thread.join().unwrap_or_else(|panic| panic.resume()));
        self.env.engine.cache.stop_readers();
        self.env.engine.cache.stop_writer();
        self.env.engine.log.stop_flusher();
    }

    /// True in a thread whose end a close waits for, and inside of a close. Code of the program's runs there: wakers,
    /// and keepers of the log.
    pub(crate) fn is_own_thread(&self) -> bool {
        let engine = &self.env.engine;
        let is_closing = || self.closing.lock().as_ref().is_some_and(sync::ThreadMark::is_current);
        let is_own = || self.own.iter().any(sync::ThreadMark::is_current);
        let is_leads = || self.env.sharing.as_ref().is_some_and(Shares::is_own_thread);
        engine.log.is_flusher() || engine.cache.is_own_thread() || is_own() || is_leads() || is_closing()
    }

    /// The last handle goes in a thread whose end a close waits for. So another thread closes.
    fn shut_down_elsewhere(&mut self) {
        let threads = std::mem::take(self.threads.get_mut());
        let handles = Arc::new(Mutex::new(Some(Handles::of(Arc::clone(&self.env), threads))));
        let theirs = Arc::clone(&handles);
        let close = move || {
            let handles = theirs.lock().take();
            drop(handles); // No mutex is held meanwhile.
        };
        if sync::try_spawn("close", close).is_ok() {
            return;
        }
        // There is no thread to be had. The next open recovers.
        self.env.is_closed.store(true, Relaxed);
        self.env.bell.stop();
        self.env.rollbacks.stop();
        self.env.engine.fail(CLOSED);
        self.env.fence.close();
    }

    /// Closes, or waits for the end of the close that another thread has begun.
    pub(crate) fn shut_down(&self) -> Result<(), Error> {
        #[cfg(feature = "deaths")]
        if self.is_view {
            self.leave();
            return Ok(());
        }
        self.env.engine.end_begins(|_| true);
        if self.env.is_closed.swap(true, Relaxed) {
            return self.wait_until_ended();
        }
        let ending = Ending(&self.ended);
        *self.closing.lock() = Some(sync::ThreadMark::current());
        let closed = catch_unwind(AssertUnwindSafe(|| self.env.engine.in_a_call(|| self.close())));
        let closed = closed.unwrap_or_else(|panic| {
            self.let_go();
            *self.closing.lock() = None;
            resume_unwind(panic)
        });
        *self.closing.lock() = None;
        if closed.is_ok() {
            self.ended.store(IN_ORDER, Release);
        }
        drop(ending);
        closed
    }

    fn wait_until_ended(&self) -> Result<(), Error> {
        let (begun_ns, mut look_ns) = (sync::now_ns(), *WRITES_LOOK_NS.start());
        loop {
            match self.ended.load(Acquire) {
                IN_ORDER => return Ok(()),
                NOT_YET if sync::now_ns().saturating_sub(begun_ns) > WRITES_WAIT_NS => return Err(Error::Busy),
                NOT_YET => sync::sleep_ns(look_ns),
                _ => return Err(Error::Failed { why: format!("{CLOSED}, and not in order") }),
            }
            look_ns = (look_ns * 2).min(*WRITES_LOOK_NS.end());
        }
    }

    /// Leaves those that share the environment, or closes it as the last of them.
    fn leave_others(&self, shares: &Shares) -> Result<(), Error> {
        let env = &self.env;
        shares.end_looks();
        let threads = std::mem::take(&mut *self.threads.lock());
        let has_panicked = threads.into_iter().filter_map(|thread| thread.join().err()).count() > 0;
        env.stop_leading(shares);
        // A checkpoint that another clone has begun ends first: if it failed, all would fail. None begins any more.
        drop(env.latch_checkpoints());
        // Nobody comes or goes meanwhile. Without a turn this one goes all the same, not as the last. If it is that,
        // the next one to open the environment recovers.
        let (turn, refused) = match shares.disk().map(await_turn).transpose() {
            Ok(turn) => (turn, Ok(())),
            Err(error) => (None, Err(error)),
        };
        let mended = if env.engine.is_failed() { Ok(()) } else { env.mend() };
        let is_last = turn.is_some() && !shares.among.has_others();
        let mut result = if has_panicked { Err(Error::Panicked("looks for the dead")) } else { Ok(()) };
        if is_last {
            // What the keepers of this program need is copied first.
            let kept = env.make_keepers();
            shares.may_give_up(kept.is_ok());
            result = result.and(mended).and(kept);
            let closed = self.close_parts(result.is_ok());
            result = result.and(closed);
            env.engine.fail(CLOSED);
        } else {
            if !self.await_own_transactions() || env.in_doubt.count() > 0 {
                std::mem::forget(Arc::clone(env)); // They are the others' when this process ends.
            }
            env.engine.clear_undos();
            // Its slots go to other processes. A death here leaves them to whoever mends.
            let _ = env.engine.log.even_out();
            env.engine.leave(CLOSED);
        }
        env.in_doubt.clear();
        let given_back = self.give_lock_back();
        shares.among.has_closed();
        if is_last && let Some(disk) = shares.disk() {
            result = result.and(shares.among.give_up(disk));
        }
        drop(turn);
        refused.and(given_back).and(result)
    }

    /// Waits until the transactions have ended that calls of other clones have under way: frees and compactions begin
    /// their own, and none begins any more. False: some have not. Those in doubt are left.
    fn await_own_transactions(&self) -> bool {
        let engine = &self.env.engine;
        let running = || engine.table.owners().filter(|owner| engine.slots.is_of_us(*owner)).count() as u64;
        let (begun_ns, mut look_ns) = (sync::now_ns(), *WRITES_LOOK_NS.start());
        while running() > self.env.in_doubt.count() {
            if engine.is_failed() || sync::now_ns().saturating_sub(begun_ns) > WRITES_WAIT_NS {
                return false;
            }
            sync::sleep_ns(look_ns);
            look_ns = (look_ns * 2).min(*WRITES_LOOK_NS.end());
        }
        true
    }

    fn close(&self) -> Result<(), Error> {
        if let Some(shares) = &self.env.sharing {
            return self.leave_others(shares);
        }
        self.env.bell.stop();
        self.env.rollbacks.stop();
        let threads = std::mem::take(&mut *self.threads.lock());
        let mut result = Ok(());
        for thread in threads {
            if thread.join().is_err() {
                result = Err(Error::Panicked("housekeeper"));
            }
        }
        let closed = self.close_parts(result.is_ok());
        result = result.and(closed);
        // Tables and iterators that outlive this handle touch nothing any more; others may open the environment.
        self.env.engine.fail(CLOSED);
        self.env.in_doubt.clear();
        self.give_lock_back().and(result)
    }

    /// Writes everything, unless the environment has failed, and ends what it has of threads.
    fn close_parts(&self, may_write: bool) -> Result<(), Error> {
        let mut result = Ok(());
        self.env.engine.cache.stop_readers();
        self.env.engine.cache.stop_writer();
        if let Err(error) = self.env.engine.check() {
            // Nothing can be written any more; what was acknowledged as durable is, and the next open recovers.
            result = Err(error.into());
        } else if may_write && !self.env.is_read_only {
            // None begins any more. A transaction that is just being refused has a slot for a moment, and no record.
            // Those in doubt are left, and those that are rolled back since the restart.
            let is_clean = self.env.engine.table.first_lsn_low().is_none();
            self.env.work_for_keepers();
            result = self.env.checkpoint_of_close(is_clean).map(|_| ());
        }
        self.env.engine.log.stop_flusher();
        self.env.engine.clear_undos();
        result
    }

    /// A panic has ended the close, which has failed the environment. Whoever opens it next recovers, and this program
    /// may be it.
    #[cold]
    fn let_go(&self) {
        let engine = &self.env.engine;
        match &self.env.sharing {
            Some(shares) if shares.among.has_others() => engine.leave(CLOSED),
            _ => engine.fail(CLOSED),
        }
        engine.cache.stop_readers();
        engine.cache.stop_writer();
        engine.log.stop_flusher();
        engine.clear_undos();
        self.env.in_doubt.clear();
        let _ = self.give_lock_back();
    }

    /// What another thread is writing could come after what the next one to open the environment writes. So it has to
    /// end first.
    fn give_lock_back(&self) -> Result<(), Error> {
        let fence = &self.env.fence;
        fence.close();
        let (begun_ns, mut look_ns) = (sync::now_ns(), *WRITES_LOOK_NS.start());
        while !fence.is_released() {
            if sync::now_ns().saturating_sub(begun_ns) > WRITES_WAIT_NS {
                return Err(Error::WritesInFlight { count: fence.writes_in_flight() });
            }
            sync::sleep_ns(look_ns);
            look_ns = (look_ns * 2).min(*WRITES_LOOK_NS.end());
        }
        Ok(())
    }
}

/// Whatever becomes of a close: it has ended when this goes.
struct Ending<'h>(&'h AtomicU32);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        // Unless it says already that all is well.
        let _ = self.0.compare_exchange(NOT_YET, NOT_IN_ORDER, Release, Relaxed);
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        #[cfg(feature = "deaths")]
        if self.is_view {
            self.leave();
            return;
        }
        if self.env.engine.is_inherited() {
            // Everything below is kept for good: the threads are not here, and what the files are believed to hold is
            // the parent's. The parent's lock is not ours since the fork (`held.rs` of the disk).
            std::mem::forget(Arc::clone(&self.env));
            std::mem::forget(std::mem::take(self.threads.get_mut()));
            return;
        }
        if self.is_own_thread() {
            if !self.env.is_closed() {
                self.shut_down_elsewhere();
            }
            return;
        }
        // Whatever fails here is found and mended by the next open.
        let _ = self.shut_down();
    }
}
