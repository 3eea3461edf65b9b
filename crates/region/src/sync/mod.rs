//! The only way to time, sleeping, waking and threads. They are the system's, or those of a seeded scheduler.
//!
//! Every call first looks at one thread-local word: is this thread simulated ([`Scheduler`])? If not, the call does
//! what the system does: a futex, the monotonic clock, a thread. If so, it gives the scheduler a decision to make.
//!
//! Y1. A woken waiter looks at its condition again. A wake may be spurious, in both worlds.
//! Y2. Nothing here is called while a `std::sync::Mutex` or the like is held, except [`now_ns`], [`rough_now_ns`],
//!     [`unix_time_ns`], [`random_u64`] and [`is_simulated`]. Under the scheduler the holder could lose its turn, and
//!     the next thread that wants the mutex would really block the whole simulation.
//! Y3. Simulated threads wait on shared words only with threads of the same run.
//!
//! Under loom, the futex is a model of itself, and the rest is absent.

#[cfg(not(loom))]
mod carrier;
#[cfg(not(loom))]
pub mod deaths;
#[cfg(not(loom))]
mod futex;
#[cfg(loom)]
mod modelled;
#[cfg(not(loom))]
mod processes;
#[cfg(not(loom))]
mod scheduler;
#[cfg(not(loom))]
mod thread;
#[cfg(not(loom))]
mod views;

#[cfg(all(not(loom), feature = "deaths"))]
pub(crate) use deaths::step;
#[cfg(loom)]
pub use modelled::{
    ends_a_run, futex_wait, futex_wait_low, futex_wake, futex_wake_low, is_simulated, now_ns, sleep_ns, spin,
    yield_point,
};
#[cfg(not(loom))]
pub use real_or_simulated::*;
#[cfg(not(loom))]
pub use scheduler::{STEPS_MAX, Scheduler, Stuck, StuckThread, Waits, WhyStuck, ends_a_run};
#[cfg(not(loom))]
pub use thread::{JoinHandle, Panicked, ThreadMark, spawn, try_spawn};
#[cfg(not(any(loom, miri)))]
pub(crate) use views::{add_view, remove_view};

#[cfg(not(loom))]
mod real_or_simulated {
    use super::{futex, scheduler, views::FutexKey};
    use crate::atomic::{AtomicU32, AtomicU64};

    /// A length of time in nanoseconds, as this module's calls take it. A longer one becomes the largest number.
    #[must_use]
    pub fn nanoseconds(time: std::time::Duration) -> u64 {
        u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Nanoseconds on a clock that only rises. Its zero means nothing. Under the scheduler the time is virtual.
    #[inline]
    pub fn now_ns() -> u64 {
        match scheduler::current() {
            Some(member) => member.now_ns(),
            None => futex::clock_ns(libc::CLOCK_MONOTONIC),
        }
    }

    /// As [`now_ns`], but up to some milliseconds late. It took 5 ns instead of 22 on the machine measured.
    #[inline]
    pub fn rough_now_ns() -> u64 {
        match scheduler::current() {
            Some(member) => member.now_ns(),
            None => futex::clock_ns(libc::CLOCK_MONOTONIC_COARSE),
        }
    }

    /// Nanoseconds since 1970. Under the scheduler the time is virtual, and begins at the same moment in every run.
    pub fn unix_time_ns() -> u64 {
        match scheduler::current() {
            Some(member) => scheduler::UNIX_TIME_NS_AT_START + member.now_ns(),
            None => futex::clock_ns(libc::CLOCK_REALTIME),
        }
    }

    /// A random number: the kernel's, or the seed's under the scheduler.
    pub fn random_u64() -> u64 {
        match scheduler::current() {
            Some(member) => member.random_u64(),
            None => futex::kernel_random_u64(),
        }
    }

    /// Sleeps while `word` is `expected`, until woken. `false`: `timeout_ns` went by. `true`: woken, or the word was
    /// another, or for no reason.
    #[track_caller]
    pub fn futex_wait(word: &AtomicU32, expected: u32, timeout_ns: Option<u64>) -> bool {
        match scheduler::current() {
            Some(member) => {
                let is_expected = || word.load(std::sync::atomic::Ordering::SeqCst) == expected;
                member.futex_wait(FutexKey::of(word.as_ptr() as usize), is_expected, timeout_ns)
            }
            None => futex::wait(word, expected, timeout_ns),
        }
    }

    /// Wakes up to `count` threads that sleep on `word`.
    #[track_caller]
    pub fn futex_wake(word: &AtomicU32, count: u32) {
        match scheduler::current() {
            Some(member) => member.futex_wake(FutexKey::of(word.as_ptr() as usize), count),
            None => futex::wake(word, count),
        }
    }

    /// As [`futex_wait`], on the low half of `word`.
    #[track_caller]
    pub fn futex_wait_low(word: &AtomicU64, expected_low: u32, timeout_ns: Option<u64>) -> bool {
        match scheduler::current() {
            Some(member) => {
                let is_expected = || word.load(std::sync::atomic::Ordering::SeqCst) as u32 == expected_low;
                member.futex_wait(FutexKey::of(word.as_ptr() as usize), is_expected, timeout_ns)
            }
            None => futex::wait_low(word, expected_low, timeout_ns),
        }
    }

    /// As [`futex_wake`], for threads that sleep on the low half of `word`.
    #[track_caller]
    pub fn futex_wake_low(word: &AtomicU64, count: u32) {
        match scheduler::current() {
            Some(member) => member.futex_wake(FutexKey::of(word.as_ptr() as usize), count),
            None => futex::wake_low(word, count),
        }
    }

    /// One round of a spinning wait. `round` counts from 0. Returns `false` when it was long enough and the caller
    /// should sleep.
    #[inline]
    #[track_caller]
    pub fn spin(round: u32) -> bool {
        match scheduler::current() {
            Some(member) => member.spin(round),
            None => futex::spin(round),
        }
    }

    /// A place where another thread may come first. It costs a look at a thread-local word. Under the scheduler it is a
    /// decision. `what` appears in [`super::Stuck`].
    #[inline]
    #[track_caller]
    pub fn yield_point(what: &'static str) {
        if let Some(member) = scheduler::current() {
            member.yield_point(what);
        }
    }

    /// Sleeps.
    #[track_caller]
    pub fn sleep_ns(ns: u64) {
        match scheduler::current() {
            Some(member) => member.sleep_ns(ns),
            None => futex::sleep_ns(ns),
        }
    }

    /// Whether the scheduler runs this thread.
    #[inline]
    pub fn is_simulated() -> bool {
        scheduler::current().is_some()
    }

    /// Wakes all that sleep on any futex of this run, once. After a simulated crash: each looks at its condition again
    /// and finds the disk gone. Does nothing outside a simulation.
    #[track_caller]
    pub fn wake_all_waiters() {
        if let Some(member) = scheduler::current() {
            member.wake_all_waiters();
        }
    }
}
