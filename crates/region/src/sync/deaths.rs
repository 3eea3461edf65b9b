//! Simulated processes: started, killed and stopped, at any step.
//!
//! A step is a store to a word of a region, with the feature `deaths` (`stepping.rs`). So is each end of a call of a
//! simulated disk. Without the feature, a process has no steps, and dies or stops only where another thread says so.

#[cfg(feature = "deaths")]
use super::processes::Fate;
use super::scheduler;
use super::thread::{JoinHandle, spawn_simulated};

/// The simulated process of the calling thread. 0: the root's, or the thread is not simulated.
#[must_use]
pub fn process() -> u32 {
    scheduler::current().map_or(0, |member| member.process)
}

/// Starts a thread in another simulated process. The threads that it starts are of that process as well.
///
/// # Panics
/// The calling thread is not simulated.
#[track_caller]
pub fn spawn_in<T: Send + 'static>(process: u32, name: &str, f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let member = scheduler::current().expect("processes are simulated under a scheduler only");
    spawn_simulated(member, process, name, f)
}

/// Ends the world of a process. Its threads stay where they are. Who calls it from one of them does not come back.
///
/// # Panics
/// For process 0.
#[track_caller]
pub fn kill(process: u32) {
    if let Some(member) = scheduler::current() {
        if member.process == process {
            return member.die();
        }
        let mut state = super::carrier::lock(&member.run.state);
        state.kill(process);
        member.let_others_run(state);
    }
}

/// As [`kill`], before the step that many steps from now: with 1, before the next one. 0: not any more.
pub fn kill_at_step(process: u32, steps: u64) {
    if let Some(member) = scheduler::current() {
        super::carrier::lock(&member.run.state).process(process).doom.set_death(steps);
    }
}

/// The threads of a process do not run for so long.
#[track_caller]
pub fn stop(process: u32, ns: u64) {
    if let Some(member) = scheduler::current() {
        let mut state = super::carrier::lock(&member.run.state);
        let until_ns = state.now_ns.saturating_add(ns);
        state.process(process).stopped_until_ns = until_ns;
        state.has_stops = true;
        member.let_others_run(state);
    }
}

/// As [`stop`], at the first decision after the step that many steps from now. Not at the step: a thread may hold a
/// mutex of its process there, at which others of the process would hang for real (Y2 in `sync`).
pub fn stop_at_step(process: u32, steps: u64, ns: u64) {
    if let Some(member) = scheduler::current() {
        super::carrier::lock(&member.run.state).process(process).doom.set_stop(steps, ns);
    }
}

/// The calling thread panics before the step that many steps from now: with 1, before the next one. 0: not any more.
/// Returns how many steps were left. A step while it unwinds counts, and is none to panic at; unless it unwound already
/// when this was called, in a destructor that catches the panic.
#[cfg(feature = "deaths")]
pub fn panic_at_step(steps: u64) -> u64 {
    MAY_UNWIND.set(std::thread::panicking());
    UNTIL_PANIC.replace(steps)
}

#[cfg(feature = "deaths")]
thread_local! {
    /// Steps left until the thread panics, the last one not taken; 0: for ever.
    static UNTIL_PANIC: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    /// It panics also while it unwinds.
    static MAY_UNWIND: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// The next step is none to panic at: of a mutex of the process's own memory, whose release cannot panic.
#[cfg(feature = "deaths")]
#[inline]
pub(crate) fn spare_step() {
    UNTIL_PANIC.set(UNTIL_PANIC.get().saturating_add(u64::from(UNTIL_PANIC.get() > 0)));
}

/// Others may run before one of so many steps of a process from now on, drawn by `seed`; 0: before none. Not for a
/// process with threads that hold a mutex over a step, for which others of the process would hang for real (Y2 in
/// `sync`).
pub fn yield_at_steps(process: u32, one_in: u64, seed: u64) {
    if let Some(member) = scheduler::current() {
        super::carrier::lock(&member.run.state).process(process).doom.set_yields(one_in, seed);
    }
}

/// Steps that a process has taken.
#[must_use]
pub fn steps(process: u32) -> u64 {
    let steps = |member: &scheduler::Member| super::carrier::lock(&member.run.state).process(process).doom.steps();
    scheduler::current().map_or(0, steps)
}

/// Whether a process is known to have died. It takes the others some time, which the seed draws, to learn of it. False
/// outside of a simulation.
#[must_use]
pub fn is_dead(process: u32) -> bool {
    let is_dead = |member: &scheduler::Member| {
        let mut state = super::carrier::lock(&member.run.state);
        let now_ns = state.now_ns;
        state.process(process).is_known_dead(now_ns)
    };
    scheduler::current().is_some_and(is_dead)
}

/// A step of the calling thread's process that is no store: a device begins or ends a call. No thread panics there, as
/// it would in the engine's own code.
#[inline]
pub fn step_of_device() {
    #[cfg(feature = "deaths")]
    {
        spare_step();
        step();
    }
}

/// Whether the calling thread's process has died: only its destructors run.
#[cfg(feature = "deaths")]
#[inline]
pub(crate) fn has_died() -> bool {
    scheduler::current().is_some_and(|member| member.doom.has_struck())
}

/// A step of the calling thread's process.
#[cfg(feature = "deaths")]
#[inline]
pub(crate) fn step() {
    if let Some(member) = scheduler::current() {
        let until_panic = UNTIL_PANIC.replace(UNTIL_PANIC.get().saturating_sub(1));
        let may_panic = until_panic == 1 && (MAY_UNWIND.get() || !std::thread::panicking());
        assert!(!may_panic, "a planted panic");
        match member.doom.step() {
            Fate::Nothing => {}
            Fate::Death => member.die(),
            Fate::Stop { ns } => member.stop_at_next_decision(ns),
            Fate::Yield if std::thread::panicking() => {}
            Fate::Yield => member.yield_point("before a step"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::atomic::{AtomicU32, Ordering::SeqCst};
    use crate::sync::{Scheduler, futex_wait, futex_wake, now_ns, sleep_ns, spawn, yield_point};

    struct OnDrop(Arc<AtomicU32>);

    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn a_killed_process_goes_no_further_and_unwinds_when_all_others_have_ended() {
        for seed in 0..200 {
            let [counted, dropped, children] = [(); 3].map(|()| Arc::new(AtomicU32::new(0)));
            let (seen, dropped_before) = Scheduler::run(seed, || {
                let (counting, on_drop, child) = (counted.clone(), OnDrop(dropped.clone()), children.clone());
                let victim = spawn_in(3, "victim", move || {
                    assert_eq!(process(), 3);
                    let _on_drop = on_drop;
                    let child = spawn("child", move || {
                        assert_eq!(process(), 3);
                        loop {
                            futex_wait(&child, 0, None);
                        }
                    });
                    for _ in 0..1000 {
                        counting.fetch_add(1, SeqCst);
                        yield_point("counted");
                    }
                    child.join().expect("not reached");
                });
                sleep_ns(5_000);
                kill(3);
                let seen = counted.load(SeqCst);
                while !is_dead(3) {
                    sleep_ns(100_000);
                }
                futex_wake(&children, 1);
                sleep_ns(1_000_000);
                assert_eq!(counted.load(SeqCst), seen);
                let ended = victim.join();
                assert!(ended.is_err_and(|panic| panic.is_released()), "the dead have no result");
                (seen, dropped.load(SeqCst))
            })
            .expect("not stuck");
            assert!(seen < 1000);
            assert_eq!((dropped_before, dropped.load(SeqCst)), (0, 1));
        }
    }

    #[test]
    fn a_stopped_process_goes_on_when_its_time_is_over() {
        for seed in 0..100 {
            Scheduler::run(seed, || {
                let victim = spawn_in(1, "victim", || {
                    for _ in 0..20 {
                        yield_point("going");
                    }
                    now_ns()
                });
                stop(1, 5_000_000);
                let stopped_ns = now_ns();
                let other = spawn_in(2, "other", || {
                    sleep_ns(1000);
                    now_ns()
                });
                assert!(other.join().expect("no panic") < stopped_ns + 5_000_000);
                assert!(!is_dead(1));
                assert!(victim.join().expect("it goes on") >= stopped_ns + 4_900_000);
            })
            .expect("not stuck");
        }
    }

    #[cfg(feature = "deaths")]
    #[test]
    fn a_death_comes_between_two_stores() {
        for steps in 1..=4 {
            let words: Arc<[AtomicU32; 4]> = Arc::default();
            Scheduler::run(7, || {
                let stored = words.clone();
                kill_at_step(1, steps);
                let victim = spawn_in(1, "victim", move || stored.iter().for_each(|word| word.store(1, SeqCst)));
                assert!(victim.join().is_err_and(|panic| panic.is_released()));
                assert_eq!(super::steps(1), steps);
            })
            .expect("not stuck");
            let stored = words.iter().filter(|word| word.load(SeqCst) == 1).count();
            assert_eq!(stored as u64, steps - 1);
        }
    }
}
