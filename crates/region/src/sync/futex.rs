//! The system's side of the door: futex, clocks, randomness, spinning. The only place that calls `futex`.
//!
//! A futex is private to the process, which saves the kernel a look-up, unless its word lies in memory that other
//! processes map, too (`views.rs`).

use super::views::FutexKey;
use crate::atomic::{AtomicU32, AtomicU64};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

/// Rounds of spinning: 1, 2, 4, ... pauses up to 32 a round, some 10 us in all. Waking a sleeper on another processor
/// costs three times as much.
const SPIN_ROUNDS: u32 = 11;
/// After these rounds of spinning, rounds of yielding: the holder may be waiting for our processor.
const YIELD_ROUNDS: u32 = 2;
/// A yield that took so long went to somebody who computes: another program, or a thread that nobody waits for.
const DEAR_YIELD_NS: u64 = 1_000_000;
/// For so long after a dear yield, nobody yields.
const NO_YIELDS_NS: u64 = 50_000_000;

pub(super) fn wait(word: &AtomicU32, expected: u32, timeout_ns: Option<u64>) -> bool {
    wait_at(word.as_ptr(), expected, timeout_ns)
}

pub(super) fn wake(word: &AtomicU32, count: u32) {
    wake_at(word.as_ptr(), count);
}

pub(super) fn wait_low(word: &AtomicU64, expected_low: u32, timeout_ns: Option<u64>) -> bool {
    wait_at(low_half(word), expected_low, timeout_ns)
}

pub(super) fn wake_low(word: &AtomicU64, count: u32) {
    wake_at(low_half(word), count);
}

fn low_half(word: &AtomicU64) -> *mut u32 {
    let halves = word.as_ptr().cast::<u32>();
    if cfg!(target_endian = "big") { halves.wrapping_add(1) } else { halves }
}

pub(super) fn wait_at(word: *mut u32, expected: u32, timeout_ns: Option<u64>) -> bool {
    let timeout = timeout_ns.map(to_timespec);
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the kernel reads the word atomically and writes nothing; the word and the time-out outlive the call.
    let result = unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT | flag_of(word), expected, timeout) };
    result == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ETIMEDOUT)
}

pub(super) fn wake_at(word: *mut u32, count: u32) {
    let count = count.min(i32::MAX as u32);
    // SAFETY: the kernel uses the address as a name and touches nothing.
    unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE | flag_of(word), count) };
}

fn flag_of(word: *mut u32) -> i32 {
    if FutexKey::of(word.addr()).is_shared() { 0 } else { libc::FUTEX_PRIVATE_FLAG }
}

pub(super) fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours to be written.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub(super) fn kernel_random_u64() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: the 8 bytes are ours to be written.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    assert_eq!(got, 8, "the kernel has no random bytes");
    u64::from_le_bytes(bytes)
}

#[inline]
pub(super) fn spin(round: u32) -> bool {
    if round < SPIN_ROUNDS && has_processors() {
        for _ in 0..1u32 << round.min(5) {
            std::hint::spin_loop();
        }
        true
    } else {
        round < SPIN_ROUNDS + YIELD_ROUNDS && yield_if_cheap()
    }
}

/// Yields, unless that was dear a moment ago. Where others compute, the kernel gives them the rest of the slice, some
/// milliseconds, and whoever sleeps instead is woken before them.
fn yield_if_cheap() -> bool {
    static NOT_BEFORE_NS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let began_ns = clock_ns(libc::CLOCK_MONOTONIC);
    if began_ns < NOT_BEFORE_NS.load(Relaxed) {
        return false;
    }
    std::thread::yield_now();
    let now_ns = clock_ns(libc::CLOCK_MONOTONIC);
    if now_ns - began_ns > DEAR_YIELD_NS {
        NOT_BEFORE_NS.store(now_ns + NO_YIELDS_NS, Relaxed);
    }
    true
}

/// Whether there is another processor on which what we wait for can happen.
fn has_processors() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| std::thread::available_parallelism().is_ok_and(|count| count.get() > 1))
}

pub(super) fn sleep_ns(ns: u64) {
    std::thread::sleep(std::time::Duration::from_nanos(ns));
}

fn to_timespec(ns: u64) -> libc::timespec {
    libc::timespec { tv_sec: (ns / 1_000_000_000) as libc::time_t, tv_nsec: (ns % 1_000_000_000) as libc::c_long }
}
