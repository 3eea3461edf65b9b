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
//! B2. All processes that have the region have one writer, which the word `writer` names. It is put there by the
//!     exchange that finds nobody, or somebody dead. A writer that does not find its name there ends. It does no harm
//!     beside another, since a page's write and a lane are one thread's anyway (W3, W4 in `write_back.rs`).
//! B3. A writer takes its name away as it ends, and who repairs does that for one that has died. So the word says
//!     whether somebody is to start one ([`Cache::has_writer`]).
//! B4. A process stops its own writer only: what says so is its own. Another process may start one then.

use crate::cache::Cache;
use crate::error::BufferError;
use crate::frame::Control;
use ledgerstone_region::atomic::AtomicU32;
use ledgerstone_region::{Handle, Mutex, SlotNo, sync};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Weak};

/// The writer of this process, if it was started.
pub(crate) struct Writer {
    /// Locked to put it in or take it out, never while anything waits.
    thread: Mutex<Option<Thread>>,
    /// Which thread it is or was.
    mark: Mutex<Option<sync::ThreadMark>>,
}

struct Thread {
    handle: sync::JoinHandle<()>,
    place: Arc<Place>,
    is_stopped: Arc<AtomicBool>,
}

impl Writer {
    pub(crate) fn new() -> Writer {
        Writer { thread: Mutex::new(None), mark: Mutex::new(None) }
    }
}

/// A name in the word, which is taken away when the thread ends, or with its cache (B3).
struct Place {
    control: Handle<[Control]>,
    who: AtomicU32,
}

fn word_of(slot: SlotNo) -> u32 {
    u32::from(slot.0) + 1
}

fn named(word: u32) -> Option<SlotNo> {
    word.checked_sub(1).map(|no| SlotNo(no as u16))
}

impl Place {
    /// The same under another name, unless somebody has taken it over.
    fn rename(&self, slot: SlotNo) {
        let (before, after) = (self.who.load(SeqCst), word_of(slot));
        if self.control[0].writer.compare_exchange(before, after, SeqCst, SeqCst).is_ok() {
            self.who.store(after, SeqCst);
        }
    }

    fn is_ours(&self) -> bool {
        self.control[0].writer.load(SeqCst) == self.who.load(SeqCst)
    }

    fn leave(&self) {
        let _another_has_it = self.control[0].writer.compare_exchange(self.who.load(SeqCst), 0, SeqCst, SeqCst);
    }
}

/// The thread's time as the writer, also if it panics.
struct InPlace<'p>(&'p Place);

impl Drop for InPlace<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Cache {
    /// Starts the background writer of all processes that have the region, in this one. Does nothing if another thread
    /// is it, and has not died.
    pub fn start_writer(self: &Arc<Self>) {
        let Some(place) = self.take_writers_place().map(Arc::new) else { return };
        let of_thread = Arc::clone(&place);
        let (cache, is_stopped) = (Arc::downgrade(self), Arc::new(AtomicBool::new(false)));
        let (slots, began) = (Arc::clone(&self.pool.slots), Arc::new(AtomicU32::new(0)));
        let (begins, stops) = (Arc::clone(&began), Arc::clone(&is_stopped));
        let handle = sync::spawn("page writer", move || {
            let in_place = InPlace(&of_thread);
            let place = in_place.0;
            // Without one it writes until the log has to be flushed first.
            if let Ok(slot) = slots.try_current() {
                place.rename(slot);
            }
            begins.store(1, SeqCst);
            sync::futex_wake(&begins, 1);
            let _guard = slots.guard_thread();
            run(&cache, place, &stops);
        });
        *self.writer.mark.lock() = Some(handle.mark());
        // One that was taken over has ended, or ends by itself.
        *self.writer.thread.lock() = Some(Thread { handle, place, is_stopped });
        // It has its slot before any thread that comes later.
        while began.load(SeqCst) == 0 {
            sync::futex_wait(&began, 0, None);
        }
    }

    /// B2.
    fn take_writers_place(&self) -> Option<Place> {
        let slots = &self.pool.slots;
        let control = self.pool.frames.control_handle();
        let who = word_of(slots.try_current().unwrap_or(SlotNo(0)));
        loop {
            let before = control[0].writer.load(SeqCst);
            if named(before).is_some_and(|slot| !slots.is_dead(slot)) {
                return None;
            }
            if control[0].writer.compare_exchange(before, who, SeqCst, SeqCst).is_ok() {
                return Some(Place { control, who: AtomicU32::new(who) });
            }
        }
    }

    /// Whether a thread of some process is the background writer. One that has died counts until that is mended. To be
    /// asked now and then by each process that can start one ([`Cache::start_writer`]), and after each repair.
    #[inline]
    #[must_use]
    pub fn has_writer(&self) -> bool {
        self.pool.frames.control().writer.load(SeqCst) != 0
    }

    /// After a death (B3).
    pub(crate) fn forget_dead_writer(&self, is_dead: impl Fn(SlotNo) -> bool) {
        let word = &self.pool.frames.control().writer;
        let before = word.load(SeqCst);
        if named(before).is_some_and(is_dead) {
            let _taken_over = word.compare_exchange(before, 0, SeqCst, SeqCst);
        }
    }

    /// Ends the background writer and waits for it, if it is one of this process. Pages that are dirty stay so.
    pub fn stop_writer(&self) {
        let thread = self.writer.thread.lock().take();
        if let Some(Thread { handle, is_stopped, .. }) = thread {
            self.tell_to_stop(&is_stopped);
            // A panic there was reported there; the cache goes on without a writer.
            let _panicked = handle.join();
        }
    }

    /// True in a thread of the cache's own, which must not stop it. One that has the log flushed may run wakers there.
    #[must_use]
    pub fn is_own_thread(&self) -> bool {
        self.writer.mark.lock().as_ref().is_some_and(sync::ThreadMark::is_current) || self.readers.is_one()
    }

    /// The cache goes, and with it the writer of this process, if there is one. Nobody waits for its end: the process
    /// may end before, and leave the region in order.
    pub(crate) fn leave_writers_place(&self) {
        if let Some(Thread { place, is_stopped, .. }) = self.writer.thread.lock().take() {
            self.tell_to_stop(&is_stopped);
            place.leave();
        }
    }

    fn tell_to_stop(&self, is_stopped: &AtomicBool) {
        let control = self.pool.frames.control();
        is_stopped.store(true, SeqCst);
        control.writer_call.fetch_add(1, SeqCst);
        sync::futex_wake(&control.writer_call, u32::MAX);
    }

    /// Wakes the writer if it sleeps.
    pub(crate) fn call_writer(&self) {
        let control = self.pool.frames.control();
        control.writer_call.fetch_add(1, SeqCst);
        if control.writer_asleep.load(SeqCst) != 0 && control.writer_asleep.swap(0, SeqCst) != 0 {
            // One that is not the writer any more may sleep there, too.
            sync::futex_wake(&control.writer_call, u32::MAX);
        }
    }

    /// Frames to keep clean: a part of the cache, but as much as a batch.
    pub(crate) fn writer_reserve(&self) -> u32 {
        let part = self.pool.frames.count() / self.tuning.clean_reserve_part.max(1);
        part.max(self.double_write.batch_pages() as u32)
    }

    /// Writes what was left behind, then until the reserve is clean or nothing in it can be written now. Memory comes
    /// first.
    fn writer_round(&self, is_stopped: &AtomicBool) -> Result<(), BufferError> {
        loop {
            self.populate_ahead(is_stopped);
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

fn run(cache: &Weak<Cache>, place: &Place, is_stopped: &AtomicBool) {
    let control = &place.control[0];
    loop {
        let seen = control.writer_call.load(SeqCst);
        sync::yield_point("page writer: about to look");
        // Behind the call: the last call tells to stop, and no other comes after it (B1).
        if is_stopped.load(SeqCst) || !place.is_ours() {
            break;
        }
        let Some(cache) = cache.upgrade() else { break };
        if cache.is_failed() || cache.writer_round(is_stopped).is_err() {
            break;
        }
        drop(cache);
        control.writer_asleep.store(1, SeqCst);
        sync::futex_wait(&control.writer_call, seen, None);
        control.writer_asleep.store(0, SeqCst);
    }
}
