//! The background writer: keeps a reserve of clean frames ahead of the policy, so that a miss seldom waits for a write.
//!
//! It sleeps until a miss meets a dirty page, then writes what is dirty among the frames that come next, and sleeps
//! again. It has no clock: an idle environment is idle.
//!
//! The thread keeps no cache alive: it holds it only while it works. When a write fails it ends; the next miss says
//! why.
//!
//! B1. `writer_call` is raised after what the writer shall see has happened, a stop included; the writer reads it
//!     before it looks. So no call is lost.

use crate::cache::Cache;
use crate::error::BufferError;
use crate::frame::Control;
use ledgerstone_region::atomic::AtomicU32;
use ledgerstone_region::{Mutex, sync};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Weak};

/// The thread, if it was started.
pub(crate) struct Writer {
    /// Locked to put the handle in or take it out, never while anything waits.
    thread: Mutex<Option<sync::JoinHandle<()>>>,
    /// Which thread it is or was.
    mark: Mutex<Option<sync::ThreadMark>>,
    is_started: AtomicBool,
}

impl Writer {
    pub(crate) fn new() -> Writer {
        Writer { thread: Mutex::new(None), mark: Mutex::new(None), is_started: AtomicBool::new(false) }
    }

    pub fn is_started(&self) -> bool {
        self.is_started.load(SeqCst)
    }
}

impl Cache {
    /// Starts the background writer. Does nothing if it was started.
    pub fn start_writer(self: &Arc<Self>) {
        if self.writer.is_started.swap(true, SeqCst) {
            return;
        }
        self.pool.frames.control().writer_stop.store(0, SeqCst);
        let (cache, control) = (Arc::downgrade(self), self.pool.frames.control_handle());
        let (slots, began) = (Arc::clone(&self.pool.slots), Arc::new(AtomicU32::new(0)));
        let begins = Arc::clone(&began);
        let thread = sync::spawn("page writer", move || {
            // Without one it writes until the log has to be flushed first.
            let _slot = slots.try_current();
            begins.store(1, SeqCst);
            sync::futex_wake(&begins, 1);
            let _guard = slots.guard_thread();
            run(&cache, &control[0]);
        });
        *self.writer.mark.lock() = Some(thread.mark());
        *self.writer.thread.lock() = Some(thread);
        // It has its slot before any thread that comes later.
        while began.load(SeqCst) == 0 {
            sync::futex_wait(&began, 0, None);
        }
    }

    /// Ends the background writer and waits for it. Pages that are dirty stay so.
    pub fn stop_writer(&self) {
        let thread = self.writer.thread.lock().take();
        if let Some(thread) = thread {
            self.tell_writer_to_stop();
            // A panic there was reported there; the cache goes on without a writer.
            let _panicked = thread.join();
            self.writer.is_started.store(false, SeqCst);
        }
    }

    /// True in a thread of the cache's own, which must not stop it. One that has the log flushed may run wakers there.
    #[must_use]
    pub fn is_own_thread(&self) -> bool {
        self.writer.mark.lock().as_ref().is_some_and(sync::ThreadMark::is_current) || self.readers.is_one()
    }

    pub(crate) fn tell_writer_to_stop(&self) {
        let control = self.pool.frames.control();
        control.writer_stop.store(1, SeqCst);
        control.writer_call.fetch_add(1, SeqCst);
        sync::futex_wake(&control.writer_call, u32::MAX);
    }

    /// Wakes the writer if it sleeps.
    pub(crate) fn call_writer(&self) {
        let control = self.pool.frames.control();
        control.writer_call.fetch_add(1, SeqCst);
        if control.writer_asleep.load(SeqCst) != 0 && control.writer_asleep.swap(0, SeqCst) != 0 {
            sync::futex_wake(&control.writer_call, 1);
        }
    }

    /// Frames to keep clean: a part of the cache, but as much as a batch.
    fn writer_reserve(&self) -> u32 {
        let part = self.pool.frames.count() / self.tuning.clean_reserve_part.max(1);
        part.max(self.double_write.batch_pages() as u32)
    }

    /// Writes what was left behind, then until the reserve is clean or nothing in it can be written now. Memory comes
    /// first.
    fn writer_round(&self) -> Result<(), BufferError> {
        loop {
            self.populate_ahead();
            if self.write_behind()? {
                continue;
            }
            let dirty = self.dirty_ahead(self.writer_reserve());
            if dirty.is_empty() || self.write_back_frames(dirty)? == 0 {
                return Ok(());
            }
        }
    }
}

fn run(cache: &Weak<Cache>, control: &Control) {
    loop {
        let seen = control.writer_call.load(SeqCst);
        sync::yield_point("page writer: about to look");
        // Behind the call: the last call tells to stop, and no other comes after it (B1).
        if control.writer_stop.load(SeqCst) != 0 {
            break;
        }
        let Some(cache) = cache.upgrade() else { break };
        if cache.is_failed() || cache.writer_round().is_err() {
            break;
        }
        drop(cache);
        control.writer_asleep.store(1, SeqCst);
        sync::futex_wait(&control.writer_call, seen, None);
        control.writer_asleep.store(0, SeqCst);
    }
}
