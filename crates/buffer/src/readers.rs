//! Threads that read pages ahead of a thread that will want them, so that it seldom waits and the device always has
//! something to do.
//!
//! They are started when something is asked for the first time. They sleep while nothing is asked for, without a clock.
//! Like the writer's thread, they keep no cache alive: they hold it only while they read.
//!
//! A1. What is asked for is no promise. Requests that do not fit into the queue are forgotten, and so is all of it when
//!     the readers are stopped. A thread that wants a page which did not come reads it itself.
//! A2. `call` is raised after what a reader shall see has happened, a stop included. A reader looks at `call` before it
//!     looks at the queue. So no call is lost.
//!
//! How a run of pages is read is in `read_ahead.rs`.

use crate::cache::Cache;
use ledgerstone_page::PageId;
use ledgerstone_region::atomic::AtomicU32;
use ledgerstone_region::{Mutex, sync};
use std::collections::VecDeque;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Weak};

/// Threads that read ahead. More of them read scattered pages no faster on the devices that this was measured on.
const READERS: usize = 8;
/// Runs that wait to be read, at most.
const RUNS_MAX: usize = 4096;

/// Pages in a row: the first, and how many there are.
type Run = (PageId, u64);

/// What the readers have to do, which outlives the cache for as long as one of them runs.
struct Requests {
    runs: Mutex<VecDeque<Run>>,
    call: AtomicU32,
    asleep: AtomicU32,
    is_stopped: AtomicU32,
}

/// The readers, if they may run.
pub(crate) struct Readers {
    requests: Arc<Requests>,
    /// None: they may not be started, or are stopped. Locked to put handles in or take them out, never while anything
    /// waits.
    threads: Mutex<Option<Vec<sync::JoinHandle<()>>>>,
    /// One of those below.
    state: AtomicU32,
}

const NOT_ALLOWED: u32 = 0;
/// To be started by the first request.
const ALLOWED: u32 = 1;
/// A thread starts them. Whoever wants to stop them waits until it has.
const STARTING: u32 = 2;
const STARTED: u32 = 3;
/// A thread waits for their end. Whoever wants to allow them, or to stop them too, waits until they have ended.
const STOPPING: u32 = 4;

impl Readers {
    pub(crate) fn new() -> Readers {
        let requests = Requests {
            runs: Mutex::new(VecDeque::new()),
            call: AtomicU32::new(0),
            asleep: AtomicU32::new(0),
            is_stopped: AtomicU32::new(0),
        };
        Readers { requests: Arc::new(requests), threads: Mutex::new(None), state: AtomicU32::new(NOT_ALLOWED) }
    }

    /// True in the thread of a reader.
    pub(crate) fn is_one(&self) -> bool {
        self.threads.lock().iter().flatten().any(sync::JoinHandle::is_current)
    }

    pub(crate) fn tell_to_stop(&self) {
        self.requests.is_stopped.store(1, SeqCst);
        self.requests.call.fetch_add(1, SeqCst);
        sync::futex_wake(&self.requests.call, u32::MAX);
    }
}

impl Cache {
    /// How many threads read ahead, at most. Each takes a thread slot, if there is one.
    pub const READER_COUNT: u32 = READERS as u32;

    /// Lets threads read ahead for those that ask ([`Cache::read_soon`]). Without this, nothing is read ahead by other
    /// threads.
    pub fn allow_readers(&self) {
        let state = &self.readers.state;
        loop {
            let mut threads = self.readers.threads.lock();
            match state.load(SeqCst) {
                NOT_ALLOWED => {
                    *threads = Some(Vec::new());
                    self.readers.requests.is_stopped.store(0, SeqCst);
                    return state.store(ALLOWED, SeqCst);
                }
                STOPPING => {
                    drop(threads);
                    sync::futex_wait(state, STOPPING, None);
                }
                _ => return,
            }
        }
    }

    /// Ends the threads that read ahead, and waits for them. What has not been read is forgotten.
    pub fn stop_readers(&self) {
        let state = &self.readers.state;
        loop {
            match state.load(SeqCst) {
                NOT_ALLOWED => return,
                seen @ (STARTING | STOPPING) => {
                    sync::futex_wait(state, seen, None);
                }
                seen if state.compare_exchange(seen, STOPPING, SeqCst, SeqCst).is_ok() => break,
                _ => {}
            }
        }
        let threads = self.readers.threads.lock().take();
        self.readers.tell_to_stop();
        for thread in threads.into_iter().flatten() {
            // A panic there was reported there; the cache goes on without readers.
            let _panicked = thread.join();
        }
        self.readers.requests.runs.lock().clear();
        state.store(NOT_ALLOWED, SeqCst);
        sync::futex_wake(state, u32::MAX);
    }

    /// True if what is asked for by [`Cache::read_soon`] may be read by others.
    #[must_use]
    pub fn reads_ahead(&self) -> bool {
        !matches!(self.readers.state.load(SeqCst), NOT_ALLOWED | STOPPING) && !self.is_failed()
    }

    /// Asks for pages that will be wanted soon, in this order. Pages that follow one another come by one read. Those
    /// that are in memory are passed over. Returns how many were asked for. Never waits, and promises nothing (A1).
    ///
    /// Ids that are no pages do no harm.
    pub fn read_soon(self: &Arc<Self>, pages: &[PageId]) -> usize {
        if !self.reads_ahead() {
            return 0;
        }
        let run_max = self.read_wanted().pages_max();
        let mut asked = 0;
        {
            let mut runs = self.readers.requests.runs.lock();
            let mut run: Option<Run> = None;
            for &page in pages {
                if self.is_here(page) {
                    continue;
                }
                match &mut run {
                    Some((first, count)) if first.0 + *count == page.0 && *count < run_max => *count += 1,
                    Some((first, count)) if first.0.checked_sub(1) == Some(page.0) && *count < run_max => {
                        *first = page;
                        *count += 1;
                    }
                    _ if runs.len() >= RUNS_MAX => break,
                    _ => runs.extend(run.replace((page, 1))),
                }
                asked += 1;
            }
            runs.extend(run);
        }
        if asked > 0 {
            self.start_readers();
            let requests = &self.readers.requests;
            requests.call.fetch_add(1, SeqCst);
            if requests.asleep.load(SeqCst) != 0 {
                sync::futex_wake(&requests.call, u32::MAX);
            }
        }
        asked
    }

    /// True if the page is in memory, or no page at all. It may have come or gone by the time the caller looks again.
    fn is_here(&self, id: PageId) -> bool {
        id.0 >= self.max_pages() || self.entry_there(id).is_some_and(|entry| entry.frame().is_some())
    }

    /// Starts them, or as many as the system has threads for.
    fn start_readers(self: &Arc<Self>) {
        let state = &self.readers.state;
        if state.compare_exchange(ALLOWED, STARTING, SeqCst, SeqCst).is_err() {
            return;
        }
        let started: Vec<_> = (0..READERS)
            .map_while(|_| {
                let (cache, requests) = (Arc::downgrade(self), Arc::clone(&self.readers.requests));
                sync::try_spawn("page reader", move || run(&cache, &requests)).ok()
            })
            .collect();
        let next = if started.is_empty() { ALLOWED } else { STARTED };
        if let Some(threads) = &mut *self.readers.threads.lock() {
            threads.extend(started);
        }
        state.store(next, SeqCst);
        sync::futex_wake(state, u32::MAX);
    }

    /// Reads what has been asked for, until nothing is left.
    fn reader_round(&self, requests: &Requests) {
        let _guard = self.pool.slots.guard_thread();
        let mut ahead = self.read_wanted();
        loop {
            let run = requests.runs.lock().pop_front();
            let Some((first, count)) = run else { return };
            if requests.is_stopped.load(SeqCst) != 0 || self.is_failed() {
                return;
            }
            sync::yield_point("page reader: about to read");
            ahead.run(first, count);
        }
    }
}

fn run(cache: &Weak<Cache>, requests: &Requests) {
    loop {
        let seen = requests.call.load(SeqCst);
        sync::yield_point("page reader: about to look");
        if requests.is_stopped.load(SeqCst) != 0 {
            break;
        }
        let Some(cache) = cache.upgrade() else { break };
        if cache.is_failed() {
            break;
        }
        // Where no thread slot is left, another reader has one, or the next call finds one.
        if cache.pool.slots.try_current().is_ok() {
            cache.reader_round(requests);
        }
        drop(cache);
        requests.asleep.fetch_add(1, SeqCst);
        sync::futex_wait(&requests.call, seen, None);
        requests.asleep.fetch_sub(1, SeqCst);
    }
}
