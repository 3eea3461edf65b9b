//! The futex under loom: a list of sleepers behind a mutex, as the kernel has it. No time-outs, no spinning.

use crate::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use loom::sync::{Condvar, Mutex};
use std::collections::VecDeque;

struct Sleepers {
    /// Address of the word and number of the sleeper, in the order of sleeping.
    queue: Mutex<(u64, VecDeque<(usize, u64)>)>,
    woken: Condvar,
}

loom::lazy_static! {
    static ref SLEEPERS: Sleepers = Sleepers { queue: Mutex::new((0, VecDeque::new())), woken: Condvar::new() };
}

fn wait(address: usize, is_expected: impl Fn() -> bool) -> bool {
    let mut queue = SLEEPERS.queue.lock().unwrap();
    if is_expected() {
        queue.0 += 1;
        let sleeper = (address, queue.0);
        queue.1.push_back(sleeper);
        while queue.1.contains(&sleeper) {
            queue = SLEEPERS.woken.wait(queue).unwrap();
        }
    }
    true
}

fn wake(address: usize, count: u32) {
    let mut queue = SLEEPERS.queue.lock().unwrap();
    for _ in 0..count {
        let Some(at) = queue.1.iter().position(|sleeper| sleeper.0 == address) else { break };
        queue.1.remove(at);
    }
    SLEEPERS.woken.notify_all();
}

/// Sleeps while `word` is `expected`, until woken.
pub fn futex_wait(word: &AtomicU32, expected: u32, _timeout_ns: Option<u64>) -> bool {
    wait(std::ptr::from_ref(word) as usize, || word.load(SeqCst) == expected)
}

/// Wakes up to `count` sleepers.
pub fn futex_wake(word: &AtomicU32, count: u32) {
    wake(std::ptr::from_ref(word) as usize, count);
}

/// Sleeps while the low half of `word` is `expected_low`, until woken.
pub fn futex_wait_low(word: &AtomicU64, expected_low: u32, _timeout_ns: Option<u64>) -> bool {
    wait(std::ptr::from_ref(word) as usize, || word.load(SeqCst) as u32 == expected_low)
}

/// Wakes up to `count` sleepers.
pub fn futex_wake_low(word: &AtomicU64, count: u32) {
    wake(std::ptr::from_ref(word) as usize, count);
}

/// Never spins: straight to sleep. A yield here would let the holder finish first, and no sleep would ever be modelled.
pub fn spin(_round: u32) -> bool {
    false
}

/// Lets others come first.
pub fn sleep_ns(_ns: u64) {
    loom::thread::yield_now();
}

/// Nothing: loom decides at every access.
pub fn yield_point(_what: &'static str) {}

/// Time stands still.
pub fn now_ns() -> u64 {
    0
}

/// Not by the seeded scheduler.
pub fn is_simulated() -> bool {
    false
}

/// No run of the scheduler is here to end.
pub fn ends_a_run(_payload: &(dyn std::any::Any + Send)) -> bool {
    false
}
