//! The flusher thread: serves those that do not wait themselves. Tickets of `Pipelined` commits are flushed back to
//! back while there are any; `Async` commits within their delay; segments are made before they are needed.
//!
//! ```text
//!            nothing wanted                  something wanted soon
//!  ASLEEP ◄──────────────────── AWAKE ────────────────────────────► DOZING
//!     │   any request             ▲        a request for now, or time    │
//!     └───────────────────────────┴──────────────────────────────────────┘
//! ```
//! Requests are words in the region; a caller that raises one wakes the thread only if it finds it asleep, and only one
//! that does makes the system call. While it is busy, a request costs an atomic maximum and a load.
//!
//! H1. Processes that share a log have one flusher, which its owner's word in the region names. Whoever starts one
//!     while another's lives starts none. The place of one that has died is free, also before the repair has emptied
//!     it. A process that is only stopped keeps its place: what it is to flush is flushed by those that wait for it.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use ledgerstone_page::Lsn;
use ledgerstone_region::sync::{self, ThreadMark};
use ledgerstone_region::{RegionError, SlotNo};

use crate::error::LogError;
use crate::log::Log;

/// How the thread has begun. With its place and a slot, it is the number of that slot, above these.
const HAS_NO_SLOT: u32 = 1;
const HAS_NO_PLACE: u32 = 2;
const HAS_PLACE: u32 = 3;

pub(crate) const ABSENT: u32 = 0;
const AWAKE: u32 = 1;
const DOZING: u32 = 2;
const ASLEEP: u32 = 3;

impl Log {
    /// Starts the thread, unless it runs. It keeps the log alive until [`Log::stop_flusher`], and has a thread slot.
    /// `false`: another process has one that lives (H1), and none was started.
    ///
    /// # Errors
    /// [`LogError::Region`]: all slots are taken.
    pub fn start_flusher(self: &Arc<Log>) -> Result<bool, LogError> {
        {
            let mut flusher = self.flusher.lock();
            if flusher.is_some() {
                return Ok(true);
            }
            if self.has_living_flusher() {
                return Ok(false);
            }
            self.flusher_stops.store(false, SeqCst);
            self.flusher_began.store(0, SeqCst);
            let log = Arc::clone(self);
            let thread = sync::spawn("log flusher", move || {
                let slot = log.slots.try_current();
                let _guard = log.slots.guard_thread();
                let place = slot.as_ref().ok().copied().filter(|me| log.take_flushers_place(*me));
                let began = match (&slot, place) {
                    (_, Some(me)) => HAS_PLACE + u32::from(me.0),
                    (Ok(_), None) => HAS_NO_PLACE,
                    (Err(_), None) => HAS_NO_SLOT,
                };
                log.flusher_began.store(began, SeqCst);
                sync::futex_wake(&log.flusher_began, u32::MAX);
                if let Some(me) = place {
                    log.run_flusher(me);
                }
            });
            *self.flusher_mark.lock() = Some(thread.mark());
            *flusher = Some(thread);
        }
        // The thread has its slot before any that comes later.
        while self.flusher_began.load(SeqCst) == 0 {
            sync::futex_wait(&self.flusher_began, 0, None);
        }
        let began = self.flusher_began.load(SeqCst);
        if began >= HAS_PLACE {
            return Ok(true);
        }
        self.stop_flusher();
        match began {
            HAS_NO_PLACE => Ok(false),
            _ => Err(RegionError::NoThreadSlot { count: self.slots.max_threads() }.into()),
        }
    }

    /// Ends the thread that this process has started, and waits for that. What it has not flushed stays for the next
    /// flush. Another process's goes on.
    pub fn stop_flusher(&self) {
        let Some(flusher) = self.flusher.lock().take() else { return };
        self.flusher_stops.store(true, SeqCst);
        self.wake_flusher();
        let ended = flusher.join();
        if let Some(slot) = self.flusher_began.load(SeqCst).checked_sub(HAS_PLACE) {
            self.leave_flushers_place(SlotNo(slot as u16)); // If it could not do so itself.
        }
        // While another panic unwinds, that one is the news; a second would abort the process.
        let is_told = self.is_failed() || std::thread::panicking();
        assert!(ended.is_ok() || is_told, "the log's flusher thread has panicked");
    }

    /// Whether there is a flusher, in any process, and that process lives. One that is stopped counts as alive. Costs a
    /// few system calls if it is another process's.
    #[must_use]
    pub fn has_living_flusher(&self) -> bool {
        let Some(owner) = self.flushers_slot() else { return false };
        !self.slots.is_dead(owner)
    }

    fn flushers_slot(&self) -> Option<SlotNo> {
        self.state.flusher_owner.load(SeqCst).checked_sub(1).map(|slot| SlotNo(slot as u16))
    }

    /// H1. False: another one has it.
    fn take_flushers_place(&self, me: SlotNo) -> bool {
        let word = &self.state.flusher_owner;
        loop {
            let owner = word.load(SeqCst);
            if owner.checked_sub(1).is_some_and(|slot| !self.slots.is_dead(SlotNo(slot as u16))) {
                return false;
            }
            if word.compare_exchange(owner, u32::from(me.0) + 1, SeqCst, Relaxed).is_ok() {
                return true;
            }
        }
    }

    /// Of a thread that has ended, or died: nobody is the flusher. In this order, so that whoever repairs after a death
    /// in here finds the name. A flusher that is started meanwhile stores its state again when it sleeps.
    pub(crate) fn leave_flushers_place(&self, owner: SlotNo) {
        if self.flushers_slot() == Some(owner) {
            self.state.flusher_state.store(ABSENT, SeqCst);
            let _ = self.state.flusher_owner.compare_exchange(u32::from(owner.0) + 1, 0, SeqCst, Relaxed);
        }
    }

    /// True in the flusher's thread, which must not stop the flusher. A waker runs there, perhaps, and perhaps while
    /// another thread stops the flusher.
    #[must_use]
    pub fn is_flusher(&self) -> bool {
        self.flusher_mark.lock().as_ref().is_some_and(ThreadMark::is_current)
    }

    fn run_flusher(&self, me: SlotNo) {
        let state = &*self.state;
        state.flusher_state.store(AWAKE, SeqCst);
        let mut soon_since = None;
        while !self.flusher_stops.load(SeqCst) && !self.is_failed() {
            // A refusal meets the claimer that needs the segment; what is worse has failed the log (F5).
            let _ = self.prepare_ahead(me);
            let durable = state.durable.load(SeqCst);
            let (now, soon) = (state.wanted_now.load(SeqCst), state.wanted_soon.load(SeqCst));
            if now > durable {
                if self.flush_to(Lsn(now - 1)).is_err() {
                    break;
                }
                continue;
            }
            if soon <= durable {
                soon_since = None;
                self.flusher_sleep(ASLEEP, None);
                continue;
            }
            let time = sync::now_ns();
            let deadline = *soon_since.get_or_insert(time) + self.async_delay_ns;
            if time < deadline {
                self.flusher_sleep(DOZING, Some(deadline - time));
                continue;
            }
            soon_since = None;
            if self.flush_to(Lsn(soon - 1)).is_err() {
                break;
            }
        }
        self.leave_flushers_place(me);
    }

    fn flusher_sleep(&self, how: u32, timeout_ns: Option<u64>) {
        let state = &*self.state;
        let word = state.flusher_word.load(SeqCst);
        state.flusher_state.store(how, SeqCst);
        // Again, after saying that we sleep: a caller that raises a word after this look finds us asleep, and wakes us.
        let durable = state.durable.load(SeqCst);
        let is_wanted = state.wanted_now.load(SeqCst) > durable
            || how == ASLEEP && state.wanted_soon.load(SeqCst) > durable
            || self.flusher_stops.load(SeqCst)
            || self.is_failed();
        if !is_wanted {
            sync::futex_wait(&state.flusher_word, word, timeout_ns);
        }
        state.flusher_state.store(AWAKE, SeqCst);
    }

    #[inline]
    pub(crate) fn wake_flusher(&self) {
        if self.state.flusher_state.load(SeqCst) >= DOZING {
            self.wake_flusher_from(DOZING);
        }
    }

    #[inline]
    pub(crate) fn wake_flusher_if_asleep(&self) {
        if self.state.flusher_state.load(SeqCst) == ASLEEP {
            self.wake_flusher_from(ASLEEP);
        }
    }

    /// Called after a claim that leaves little room in the segments that are ready.
    #[inline]
    pub(crate) fn wake_flusher_to_prepare(&self) {
        self.wake_flusher();
    }

    #[cold]
    fn wake_flusher_from(&self, least: u32) {
        let state = &*self.state;
        let seen = state.flusher_state.load(SeqCst);
        // Only the thread that turns the state makes the system call.
        if seen >= least && state.flusher_state.compare_exchange(seen, AWAKE, SeqCst, Relaxed).is_ok() {
            state.flusher_word.fetch_add(1, SeqCst);
            sync::futex_wake(&state.flusher_word, 1);
        }
    }
}
