//! The operating system's threads that carry simulated ones, used again from run to run.
//!
//! A carrier sleeps on its baton. The giver of the baton has put a job there before, or knows that it is in the middle
//! of one. Starting a thread costs some 30 us, handing a baton over some 3: a simulation of 100,000 runs needs the
//! pool. Thread-locals of other crates live as long as the carrier: what a simulated thread does must not depend on
//! them.

use super::futex;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Release},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a carrier runs when it first gets the baton.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// The sleeping place of one thread.
pub(super) struct Carrier {
    has_baton: AtomicU32,
    job: Mutex<Option<Job>>,
}

/// Carriers without a job.
static IDLE: Mutex<Vec<Arc<Carrier>>> = Mutex::new(Vec::new());

impl Carrier {
    /// For the thread that calls `Scheduler::run`, which carries the root itself.
    pub(super) fn of_root() -> Arc<Carrier> {
        Arc::new(Carrier { has_baton: AtomicU32::new(0), job: Mutex::new(None) })
    }

    /// A carrier that will run the job made for it when it first gets the baton.
    pub(super) fn take(job: impl FnOnce(&Arc<Carrier>) -> Job) -> Arc<Carrier> {
        let idle = lock(&IDLE).pop();
        let carrier = idle.unwrap_or_else(|| {
            let carrier = Carrier::of_root();
            let carried = carrier.clone();
            std::thread::Builder::new()
                .name("simulated".into())
                .spawn(move || carried.carry())
                .expect("the system has a thread for the simulation");
            carrier
        });
        let job = job(&carrier);
        *lock(&carrier.job) = Some(job);
        carrier
    }

    fn carry(&self) {
        loop {
            while !self.wait_for_baton(None) {}
            let job = lock(&self.job).take();
            if let Some(job) = job {
                job();
            }
        }
    }

    /// Says that the job is all but over: the carrier may be given the next one. It will look for it after this one.
    pub(super) fn put_back(self: &Arc<Carrier>) {
        lock(&IDLE).push(self.clone());
    }

    /// Sleeps until this thread has the baton; `false` if `timeout_ns` of real time went by.
    pub(super) fn wait_for_baton(&self, timeout_ns: Option<u64>) -> bool {
        loop {
            // Acquire: pairs with the Release in `give_baton`: all that the last holder did is seen.
            if self.has_baton.swap(0, Acquire) == 1 {
                return true;
            }
            if !futex::wait_at(self.has_baton.as_ptr(), 0, timeout_ns) {
                return false;
            }
        }
    }

    /// Lets this carrier run.
    pub(super) fn give_baton(&self) {
        self.has_baton.store(1, Release); // Pairs with the Acquire in `wait_for_baton`.
        futex::wake_at(self.has_baton.as_ptr(), 1);
    }
}

/// The mutexes here guard single assignments: a panic leaves nothing half done.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
