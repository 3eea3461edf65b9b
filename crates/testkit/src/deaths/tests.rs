//! A thread that fails by itself fails its round, whatever its process was to die of.

use ledgerstone_region::sync::deaths::{is_dead, kill};

use super::campaign::Which;
use super::*;

/// A round in which a thread of this process does that.
fn round_of(process: u32, deaths: Deaths, work: fn()) -> Outcome {
    round("a test", 7, 100_000, || {
        let mut cast = Cast::begin(deaths, |_| (), |()| None);
        cast.start(process, "works", (), move |()| work());
        cast.end()
    })
}

fn fail() {
    assert!(is_dead(0), "the root lives");
}

#[test]
fn who_is_killed_has_died_and_who_comes_to_its_end_has_not() {
    assert!(round_of(VICTIM, Deaths::default(), || kill(VICTIM)).victim);
    assert!(round_of(WORKERS[1], Deaths::default(), || kill(WORKERS[1])).worker);
    assert_eq!(round_of(VICTIM, Deaths::at(1_000_000, 1_000_000), || ()).deaths(), [0; 3]);
}

#[test]
fn an_assertion_that_fails_in_a_process_that_may_die_fails_the_round() {
    for process in [VICTIM, WORKERS[0], WORKERS[1]] {
        let deaths = Deaths { worker: 1_000_000, ..Deaths::at(1_000_000, 0) };
        assert!(fails(|| round_of(process, deaths, fail)), "of process {process}");
    }
    let in_a_repair = || {
        let begin = || {
            Cast::begin(
                Deaths::at(0, 1_000_000),
                |_| (),
                |()| {
                    fail();
                    None
                },
            )
        };
        round("a test", 7, 100_000, || begin().end())
    };
    assert!(fails(in_a_repair));
}

/// Nobody waits for the thread while it unwinds: its process is dead by then.
#[cfg(feature = "deaths")]
#[test]
fn an_assertion_that_fails_before_the_process_dies_fails_the_round() {
    use ledgerstone_region::atomic::{AtomicU32, Ordering::SeqCst};

    struct Step(AtomicU32);

    impl Drop for Step {
        fn drop(&mut self) {
            self.0.store(1, SeqCst);
        }
    }

    let step = || drop(Step(AtomicU32::new(0)));
    let fail_and_step = || {
        let _step = Step(AtomicU32::new(0));
        fail();
    };
    assert!(round_of(VICTIM, Deaths::at(1, 0), step).victim);
    assert!(fails(|| round_of(VICTIM, Deaths::at(1, 0), fail_and_step)));
}

#[test]
fn a_round_that_is_stuck_fails() {
    let forever = || loop {
        ledgerstone_region::sync::yield_point("for ever");
    };
    assert!(fails(|| round_of(VICTIM, Deaths::at(1_000_000, 0), forever)));
}

#[test]
fn steps_are_tried_from_the_first_to_the_last() {
    let of = |which: Which, steps| which.of(steps, 3).collect::<Vec<_>>();
    assert_eq!(of(Which::Each, 4), [1, 2, 3, 4]);
    assert_eq!(of(Which::OneIn(3), 8), [1, 4, 7]);
    assert_eq!(of(Which::These(&[8, 9]), 2), [8, 9]);
    assert_eq!(of(Which::Ends { edge: 2, parts: 2, one_in: 1 }, 10), [1, 2, 3, 8, 9, 10]);
    assert_eq!(of(Which::Ends { edge: 2, parts: 2, one_in: 2 }, 10), [1, 3, 9]);
}

/// One that dies later under other seeds.
#[test]
fn each_step_is_one_until_nobody_dies_any_more() {
    let dies_at = |step| step < 7;
    assert_eq!(Which::Each.count_deaths("NO_STEP", 4, 0, dies_at), [4, 2]);
    assert_eq!(Which::Each.count_deaths("NO_STEP", 9, 0, dies_at), [6, 0]);
    assert_eq!(Which::OneIn(1).count_deaths("NO_STEP", 4, 0, dies_at), [4, 0]);
}

#[test]
fn a_part_that_nobody_misses_is_told() {
    assert!(fails(|| each_part_is_missed(&["a part"], |_| None::<()>)));
}
