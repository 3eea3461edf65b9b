//! A thread panics at each step of what programs do with an environment, beside two that work and one that reads. All
//! go on, or the environment has failed. Then all are told, nobody hangs, and what was committed is there when it is
//! opened again.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use ledgerstone_region::sync::deaths::panic_at_step;
use ledgerstone_region::sync::{self, JoinHandle, Scheduler, Stuck};
use ledgerstone_testkit::deaths::{Which, named};

use crate::work::{ALL, CALLS, Work};
use crate::world::Process;

const VICTIM: u32 = 1;
const WORKERS: [u32; 2] = [2, 3];

/// Nobody waits for longer for what a thread held that has panicked, of virtual time.
const TOLD_NS: u64 = 2_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// There were fewer steps, or all panics were caught on the way.
    Whole { steps: u64 },
    /// All have gone on.
    WentOn,
    /// The environment has failed.
    Failed,
}

/// Who panics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    /// A thread of the program's.
    Programs,
    /// The first thread of the library's that comes to work with the disk.
    Librarys,
}

thread_local! {
    /// A thread of the program's.
    static IS_PROGRAMS: Cell<bool> = const { Cell::new(false) };
}

fn run(work: Work, who: Who, at: u64) -> Ended {
    run_with_another(work, who, at, 0)
}

/// Another thread of the program's panics at step `another_at` of its own; 0: none does.
fn run_with_another(work: Work, who: Who, at: u64, another_at: u64) -> Ended {
    let name = || format!("{work:?}, a panic at step {at} of a thread of the {who:?}, of another one at {another_at}");
    let ran = catch_unwind(AssertUnwindSafe(|| run_simulated(work, who, at, another_at)));
    let ran = ran.inspect_err(|_| eprintln!("{}", name())).unwrap_or_else(|panic| resume_unwind(panic));
    ran.unwrap_or_else(|stuck| panic!("{}: {stuck}", name()))
}

/// Starts a thread of the program's.
fn start<T: Send + 'static>(root: &Arc<Process>, f: impl FnOnce(&Process) -> T + Send + 'static) -> JoinHandle<T> {
    let own = Arc::clone(root);
    sync::spawn("works", move || {
        IS_PROGRAMS.set(true);
        let done = catch_unwind(AssertUnwindSafe(|| f(&own)));
        IS_PROGRAMS.set(false); // The next thread here may be the library's.
        done.unwrap_or_else(|panic| resume_unwind(panic))
    })
}

fn run_simulated(work: Work, who: Who, at: u64, another_at: u64) -> Result<Ended, Stuck> {
    let until_armed = Arc::new(AtomicU64::new(0));
    let armed = Arc::clone(&until_armed);
    Scheduler::run_within(work as u64, 3_000_000, || {
        IS_PROGRAMS.set(true);
        let root = Process::create_with(move |what| {
            if !IS_PROGRAMS.get() {
                match armed.swap(0, SeqCst) {
                    0 => {}
                    at => _ = panic_at_step(at),
                }
            }
            sync::yield_point(what);
        });
        root.prepare_for_all([VICTIM, WORKERS[0], WORKERS[1]].into_iter());
        root.prepare_for(VICTIM, work);
        let victim = start(&root, move |own| {
            match who {
                Who::Programs => _ = panic_at_step(if at == 0 { u64::MAX } else { at }),
                Who::Librarys => until_armed.store(at, SeqCst),
            }
            let done = catch_unwind(AssertUnwindSafe(|| own.work(VICTIM, work)));
            let left = panic_at_step(0);
            (done.is_err(), u64::MAX - left, sync::now_ns())
        });
        let others = [
            start(&root, move |own| {
                panic_at_step(another_at);
                own.live(WORKERS[0], 4);
            }),
            start(&root, |own| own.live(WORKERS[1], 4)),
            start(&root, |own| own.read(3)),
        ];
        let (has_panicked, steps, panicked_ns) = victim.join().unwrap_or_else(|panic| panic.resume());
        if !root.env.is_failed() {
            root.decide(); // The others may wait for what it has left in doubt.
        }
        for thread in others {
            let ended = thread.join();
            if !root.env.is_failed() && another_at == 0 {
                ended.unwrap_or_else(|panic| panic.resume());
            }
        }
        if root.env.is_failed() {
            let after_ns = sync::now_ns() - panicked_ns;
            assert!(has_panicked || who == Who::Librarys || another_at > 0, "it has failed without a panic");
            assert!(
                after_ns < TOLD_NS || who == Who::Librarys || another_at > 0,
                "somebody has waited for {after_ns} ns"
            );
            let root = Arc::into_inner(root).expect("all others have ended");
            root.check_when_opened_again();
            return Ended::Failed;
        }
        root.live(WORKERS[0], 2);
        root.env.checkpoint().unwrap();
        root.check_all();
        let stat = root.env.stat().unwrap();
        assert_eq!(stat.transaction_count, 0, "transactions are open");
        root.env.clone().close().unwrap();
        if has_panicked { Ended::WentOn } else { Ended::Whole { steps } }
    })
}

#[test]
fn panics_at_each_step_leave_nobody_behind_as_deaths_do() {
    // One that closes the environment is alone with it.
    let all: Vec<Work> = ALL.into_iter().chain(CALLS).filter(|work| *work != Work::Close).collect();
    for work in named("WORK", &all) {
        let Ended::Whole { steps } = run(work, Who::Programs, 0) else { panic!("{work:?} has panicked by itself") };
        let (mut went_on, mut failed) = (0, 0);
        for at in Which::About(150).of(steps, 0) {
            match run(work, Who::Programs, at) {
                Ended::WentOn => went_on += 1,
                Ended::Failed => failed += 1,
                Ended::Whole { .. } => {}
            }
        }
        println!("{work:?}: {went_on} panics after which all go on, {failed} failures, in {steps} steps");
    }
}

#[test]
fn panics_of_the_librarys_own_threads_leave_nobody_behind_as_deaths_do() {
    let mut failed = 0;
    for work in [Work::Insert, Work::Growth, Work::Checkpoint, Work::Compact] {
        // Later steps are mostly of the same kinds.
        failed += Which::About(100).of(400, 0).filter(|at| run(work, Who::Librarys, *at) == Ended::Failed).count();
    }
    println!("{failed} failures");
    assert!(failed > 50, "{failed} failures");
}

#[test]
fn two_threads_that_panic_leave_nobody_behind() {
    let mut failed = 0;
    for work in named("WORK", &[Work::Insert, Work::Growth, Work::Compact]) {
        let Ended::Whole { steps } = run(work, Who::Programs, 0) else { panic!("{work:?} has panicked by itself") };
        for (no, at) in Which::About(60).of(steps, 0).enumerate() {
            let another_at = 1 + no as u64 * 37 % 700;
            failed += u32::from(run_with_another(work, Who::Programs, at, another_at) == Ended::Failed);
        }
    }
    println!("{failed} failures");
    assert!(failed > 20, "{failed} failures");
}

/// A panic ends a close, or an opening. The same program opens the environment again.
#[test]
fn an_environment_can_be_opened_again_after_a_panic_as_it_is_opened_or_closed() {
    let (mut closes, mut opens) = (0, 0);
    for at in Which::About(80).of(900, 0) {
        let ran = Scheduler::run_within(at, 3_000_000, || {
            let root = Process::create();
            root.prepare_for_all([VICTIM].into_iter());
            root.live(VICTIM, 3);
            panic_at_step(at);
            let closed = catch_unwind(AssertUnwindSafe(|| root.env.clone().close()));
            panic_at_step(0);
            let root = Arc::into_inner(root).expect("nobody else has it");
            let opened = root.open_again(|| _ = panic_at_step(at));
            panic_at_step(0);
            (closed.is_err(), opened)
        });
        let (closed, opened) = ran.unwrap_or_else(|stuck| panic!("a panic at step {at}: {stuck}"));
        closes += u32::from(closed);
        opens += u32::from(opened);
    }
    println!("{closes} panics of a close, {opens} of an opening");
    assert!(closes > 5 && opens > 5, "{closes} panics of a close, {opens} of an opening");
}
