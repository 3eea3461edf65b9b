//! Wakes the tasks of this process when another one has made durable what they wait for.
//!
//! A1. In a log that processes share, a handle whose tasks wait has a thread for that, from the first one that waits
//!     on. In a log that nobody shares, whoever flushes wakes them.
//! A2. A handle says in its entry which LSN is the lowest that its tasks wait for, and looks afterwards at what is
//!     durable. Whoever flushes raises what is durable, and looks afterwards at the entries. So one of them sees the
//!     other.
//! A3. Whoever was going to ring may have died. So the thread looks every [`LOOK_NS`] while somebody waits.

use ledgerstone_region::Handle;
use ledgerstone_region::sync::{self, JoinHandle};
use ledgerstone_region::{Mutex, SlotTable};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use crate::handle_table::HandleTable;
use crate::room::LOOK_NS;
use crate::state::LogState;
use crate::wakers::{self, Wakers};

/// Who waits in this process, and the thread that wakes them.
pub(crate) struct Waiting {
    state: Handle<LogState>,
    slots: Arc<SlotTable>,
    handles: Arc<HandleTable>,
    wakers: Mutex<Wakers>,
    /// The smallest LSN that somebody waits for; `u64::MAX` if nobody does.
    low: AtomicU64,
    /// The handle has ended: nobody waits any more.
    has_left: AtomicBool,
    notifier: Mutex<Option<JoinHandle<()>>>,
    has_notifier: AtomicBool,
    stops: AtomicBool,
    /// The thread sleeps until it is rung for.
    is_idle: AtomicBool,
}

impl Waiting {
    pub fn new(state: Handle<LogState>, slots: Arc<SlotTable>, handles: Arc<HandleTable>) -> Waiting {
        Waiting {
            state,
            slots,
            handles,
            wakers: Mutex::default(),
            low: AtomicU64::new(u64::MAX),
            has_left: AtomicBool::new(false),
            notifier: Mutex::new(None),
            has_notifier: AtomicBool::new(false),
            stops: AtomicBool::new(false),
            is_idle: AtomicBool::new(false),
        }
    }

    /// Changes who waits; `low` is no higher than what anybody does who is put in.
    pub fn change<T>(self: &Arc<Waiting>, low: u64, change: impl FnOnce(&mut Wakers) -> T) -> T {
        let changed = {
            let mut wakers = self.wakers.lock();
            self.low.fetch_min(low, SeqCst);
            let changed = change(&mut wakers);
            self.tell(&wakers);
            changed
        };
        if low != u64::MAX && self.slots.is_shared() {
            self.start(); // A1
        }
        changed
    }

    /// A2.
    fn tell(&self, wakers: &Wakers) {
        if self.slots.is_shared() {
            let low = wakers.low();
            self.handles.publish_awaited((low != u64::MAX).then_some(low));
        }
    }

    /// Wakes the wakers of what is durable, or all if the log has failed or this handle has ended.
    pub fn wake_ready(&self, is_failed: bool) {
        let is_over = is_failed || self.has_left.load(SeqCst) || self.state.failed.load(SeqCst) != 0;
        let durable = if is_over { u64::MAX } else { self.state.durable.load(SeqCst) };
        if self.low.load(SeqCst) >= durable {
            return;
        }
        let ready = {
            let mut wakers = self.wakers.lock();
            let ready = wakers.take_below(durable);
            self.low.store(wakers.low(), SeqCst);
            self.tell(&wakers);
            ready
        };
        // Outside of the mutex: a waker may do anything, but for calls that wait for the log.
        ready.for_each(wakers::wake);
    }

    /// Has the other handles wake theirs. One load if no log of the region ever had a notifier.
    pub fn ring_others(&self) {
        if self.state.has_notifiers.load(SeqCst) != 0 {
            let has_failed = self.state.failed.load(SeqCst) != 0;
            self.handles.ring_below(if has_failed { u64::MAX } else { self.state.durable.load(SeqCst) });
        }
    }

    /// Wakes all that wait, now and later.
    pub fn leave(&self) {
        self.has_left.store(true, SeqCst);
        self.wake_ready(true);
    }

    fn start(self: &Arc<Waiting>) {
        if !self.has_notifier.load(SeqCst) {
            let mut notifier = self.notifier.lock();
            if notifier.is_none() {
                self.state.has_notifiers.store(1, SeqCst);
                let waiting = Arc::clone(self);
                // Without a thread, those wait that only others flush for, and the next that waits tries again.
                *notifier = sync::try_spawn("log notifier", move || waiting.run()).ok();
                self.has_notifier.store(notifier.is_some(), SeqCst);
            }
        }
        if self.is_idle.load(SeqCst) {
            self.handles.ring_own();
        }
    }

    fn run(&self) {
        while !self.stops.load(SeqCst) {
            // Whoever starts the thread has an entry, unless there is none left.
            let Some(bell) = self.handles.bell() else {
                self.wake_ready(false);
                sync::sleep_ns(LOOK_NS);
                continue;
            };
            let seen = bell.load(SeqCst);
            self.wake_ready(false);
            if self.low.load(SeqCst) != u64::MAX {
                sync::futex_wait(bell, seen, Some(LOOK_NS)); // A3
                continue;
            }
            self.is_idle.store(true, SeqCst);
            // Again, after saying so: whoever comes to wait rings if it finds us idle.
            if self.low.load(SeqCst) == u64::MAX && !self.stops.load(SeqCst) {
                sync::futex_wait(bell, seen, None);
            }
            self.is_idle.store(false, SeqCst);
        }
    }

    /// Ends the thread. To be called once, when nobody waits any more.
    pub fn stop(&self) {
        let Some(notifier) = self.notifier.lock().take() else { return };
        self.stops.store(true, SeqCst);
        self.handles.ring_own();
        // A task that it has woken may have let the last handle go.
        if !notifier.is_current() {
            let _ = notifier.join(); // Wakers' panics end where they are woken.
        }
    }
}
