//! What the seeded scheduler promises.
#![cfg(all(not(loom), not(miri)))]

use ledgerstone_region::sync::{self, Scheduler, Waits, WhyStuck};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;

use ledgerstone_region::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// A script with every kind of waiting; what happened, in order.
fn script(seed: u64) -> Vec<String> {
    let story = Arc::new(Mutex::new(Vec::new()));
    let told = story.clone();
    let tell = move |what: String| told.lock().unwrap().push(what);
    Scheduler::run(seed, || {
        let word = Arc::new(AtomicU32::new(0));
        let threads: Vec<_> = (0..5)
            .map(|no| {
                let (word, tell) = (word.clone(), tell.clone());
                sync::spawn(&format!("worker {no}"), move || {
                    for round in 0..4 {
                        tell(format!("{no} {round} {} {}", sync::now_ns(), sync::random_u64() % 100));
                        match (no + round) % 4 {
                            0 => sync::sleep_ns(500 * no),
                            1 => {
                                let woken = sync::futex_wait(&word, word.load(Relaxed), Some(2000));
                                tell(format!("{no} woken {woken}"));
                            }
                            2 => {
                                word.fetch_add(1, Relaxed);
                                sync::futex_wake(&word, 1);
                            }
                            _ => {
                                let child = sync::spawn("child", move || sync::yield_point("child"));
                                child.join().unwrap();
                            }
                        }
                    }
                    no
                })
            })
            .collect();
        for thread in threads {
            tell(format!("joined {}", thread.join().unwrap()));
        }
    })
    .unwrap();
    let story = story.lock().unwrap();
    story.clone()
}

#[test]
fn a_seed_fixes_everything_and_seeds_differ() {
    let stories: Vec<_> = (0..40).map(script).collect();
    for (seed, story) in stories.iter().enumerate() {
        assert_eq!(&script(seed as u64), story, "seed {seed}");
    }
    let different: std::collections::BTreeSet<_> = stories.iter().collect();
    assert!(different.len() > 35);
}

#[test]
fn two_runs_at_a_time_do_not_disturb_each_other() {
    let expected: Vec<_> = (0..20).map(script).collect();
    let threads: Vec<_> = (0..2).map(|_| std::thread::spawn(|| (0..20).map(script).collect::<Vec<_>>())).collect();
    threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), expected));
}

#[test]
fn a_hang_is_found_and_says_who_waits_where() {
    let stuck = Scheduler::run(3, || {
        let word = Arc::new(AtomicU32::new(0));
        let for_thread = word.clone();
        let thread = sync::spawn("sleeper", move || {
            sync::yield_point("about to sleep");
            while for_thread.load(Relaxed) == 0 {
                sync::futex_wait(&for_thread, 0, None);
            }
        });
        thread.join().unwrap();
    })
    .unwrap_err();
    assert_eq!((stuck.seed, stuck.why), (3, WhyStuck::AllBlocked));
    let waits: Vec<_> = stuck.threads.iter().map(|thread| (thread.name.as_str(), thread.waits)).collect();
    assert_eq!(waits, [("root", Waits::Join(1)), ("sleeper", Waits::Futex)]);
    assert!(stuck.threads[1].at.contains("scheduler.rs:") && stuck.threads[1].last_point == "about to sleep");
    assert!(stuck.to_string().contains("thread 1 \"sleeper\": Futex at"));
}

#[test]
fn who_goes_round_for_ever_is_stopped() {
    let spinner = Scheduler::run_within(5, 10_000, || {
        let mut round = 0;
        loop {
            sync::spin(round);
            round += 1;
        }
    });
    assert_eq!(spinner.unwrap_err().why, WhyStuck::TooManySteps);
    let sleeper = Scheduler::run_within(5, 10_000, || {
        drop(sync::spawn("background", || {
            loop {
                sync::sleep_ns(1_000_000);
            }
        }))
    });
    assert_eq!(sleeper.unwrap_err().why, WhyStuck::TooManySteps);
}

/// Waits in its destructor until something happens that never will.
struct WaitsWhenDropped(Arc<AtomicU32>, bool);

impl Drop for WaitsWhenDropped {
    fn drop(&mut self) {
        let timeout = self.1.then_some(1000);
        for _ in 0..100 {
            sync::futex_wait(&self.0, 0, timeout);
        }
    }
}

#[test]
fn destructors_of_a_stuck_run_come_through() {
    let stuck = Scheduler::run(1, || {
        let word = Arc::new(AtomicU32::new(0));
        let other = word.clone();
        drop(sync::spawn("other", move || {
            let _first = WaitsWhenDropped(other.clone(), true);
            let _second = WaitsWhenDropped(other.clone(), false);
            sync::futex_wait(&other, 0, None);
            sync::futex_wait(&other, 0, None);
            sync::futex_wait(&other, 0, None);
        }));
        WaitsWhenDropped(word, false)
    });
    assert_eq!(stuck.map(|_| ()).unwrap_err().why, WhyStuck::AllBlocked);
}

#[test]
fn a_destructor_that_never_ends_costs_a_thread_and_not_the_run() {
    struct Endless(Arc<AtomicU32>);
    impl Drop for Endless {
        fn drop(&mut self) {
            loop {
                sync::futex_wait(&self.0, 0, None);
            }
        }
    }
    let stuck = Scheduler::run(1, || {
        drop(sync::spawn("endless", || {
            let word = Arc::new(AtomicU32::new(0));
            let _endless = Endless(word.clone());
            loop {
                sync::futex_wait(&word, 0, None);
            }
        }));
    });
    assert_eq!(stuck.unwrap_err().threads.len(), 2);
    script(1);
}

fn message_of(payload: Box<dyn std::any::Any + Send>) -> String {
    payload.downcast_ref::<&str>().map_or_else(String::new, |text| (*text).to_string())
}

#[test]
fn a_panic_reaches_who_joins_or_else_run() {
    let joined = Scheduler::run(1, || sync::spawn("fails", || std::panic::resume_unwind(Box::new("told"))).join());
    let panicked: Result<(), _> = joined.unwrap();
    assert_eq!(panicked.unwrap_err().to_string(), "thread \"fails\" panicked: told");

    let unjoined = catch_unwind(|| {
        Scheduler::run(1, || drop(sync::spawn("fails", || std::panic::resume_unwind(Box::new("from a thread")))))
    });
    assert_eq!(message_of(unjoined.unwrap_err()), "from a thread");

    let of_root = catch_unwind(|| {
        Scheduler::run(1, || {
            let word = Arc::new(AtomicU32::new(0));
            drop(sync::spawn("waits for ever", move || while sync::futex_wait(&word, 0, None) {}));
            std::panic::resume_unwind(Box::new("from the root"));
        })
    });
    assert_eq!(message_of(of_root.unwrap_err()), "from the root");
    script(2);
}

#[test]
fn time_jumps_to_the_first_deadline() {
    let (slept_ns, order) = Scheduler::run(1, || {
        let start_ns = sync::now_ns();
        let order = Arc::new(Mutex::new(Vec::new()));
        let threads: Vec<_> = [3u64, 1, 2]
            .into_iter()
            .map(|hours| {
                let order = order.clone();
                sync::spawn("sleeper", move || {
                    sync::sleep_ns(hours * 3_600_000_000_000);
                    order.lock().unwrap().push(hours);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let order = order.lock().unwrap().clone();
        (sync::now_ns() - start_ns, order)
    })
    .unwrap();
    assert_eq!(order, [1, 2, 3]);
    assert!((3 * 3_600_000_000_000..3 * 3_600_000_000_000 + 1_000_000).contains(&slept_ns));
}

#[test]
fn all_waiters_wake_after_a_crash() {
    Scheduler::run(1, || {
        let has_crashed = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let has_crashed = has_crashed.clone();
                sync::spawn("waiter", move || {
                    let word = AtomicU32::new(0);
                    while !has_crashed.load(Relaxed) {
                        sync::futex_wait(&word, 0, None);
                    }
                })
            })
            .collect();
        sync::sleep_ns(100_000);
        has_crashed.store(true, Relaxed);
        sync::wake_all_waiters();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    })
    .unwrap();
}

#[test]
fn the_root_may_borrow_and_run_waits_for_all_threads() {
    let mut value = 1;
    let ended = Arc::new(AtomicU32::new(0));
    let for_thread = ended.clone();
    let result = Scheduler::run(1, || {
        value += 1;
        drop(sync::spawn("detached", move || {
            sync::sleep_ns(1_000_000);
            for_thread.fetch_add(1, Relaxed);
        }));
        &value
    });
    assert_eq!(result.copied(), Ok(2));
    assert_eq!(ended.load(Relaxed), 1);
    assert!(!sync::is_simulated());
}

#[test]
fn ordinary_threads_are_as_ever() {
    let word = Arc::new(AtomicU32::new(0));
    let for_thread = word.clone();
    let thread = sync::spawn("real", move || {
        for_thread.store(1, Relaxed);
        sync::futex_wake(&for_thread, u32::MAX);
        assert!(!sync::is_simulated());
    });
    while word.load(Relaxed) == 0 {
        sync::futex_wait(&word, 0, Some(1_000_000_000));
    }
    thread.join().unwrap();
    assert!(!sync::futex_wait(&word, 1, Some(1000)), "timed out");
    assert!(sync::futex_wait(&word, 0, Some(1000)), "another value");
    let panicked = sync::spawn("fails", || std::panic::resume_unwind(Box::new("said"))).join();
    let panicked: Result<(), _> = panicked;
    assert_eq!(panicked.unwrap_err().message, "said");
    let before_ns = sync::now_ns();
    sync::sleep_ns(1000);
    assert!(sync::now_ns() - before_ns >= 1000);
    assert!(sync::unix_time_ns() > 1_700_000_000_000_000_000);
    assert!(catch_unwind(AssertUnwindSafe(sync::random_u64)).is_ok());
}

/// The threads of all kinds, each of which asks of all handles whether it is the one.
#[test]
fn a_thread_knows_its_own_handle_only() {
    fn asks(handle: &Arc<Mutex<Option<sync::JoinHandle<()>>>>) -> Option<bool> {
        handle.lock().unwrap().as_ref().map(sync::JoinHandle::is_current)
    }
    fn check() {
        let places: Vec<Arc<Mutex<Option<sync::JoinHandle<()>>>>> = (0..3).map(|_| Arc::default()).collect();
        let found = Arc::new(AtomicU32::new(0));
        for (no, place) in places.iter().enumerate() {
            let (all, found) = (places.clone(), found.clone());
            let handle = sync::spawn("asks", move || {
                while all.iter().any(|place| place.lock().unwrap().is_none()) {
                    sync::sleep_ns(1000);
                }
                for (other, place) in all.iter().enumerate() {
                    assert_eq!(asks(place), Some(other == no), "{no} asks of {other}");
                }
                // A child of a thread is another thread.
                let child = all[no].clone();
                assert_eq!(sync::spawn("child", move || asks(&child)).join().unwrap(), Some(false));
                found.fetch_add(1, Relaxed);
            });
            *place.lock().unwrap() = Some(handle);
        }
        assert!(places.iter().all(|place| asks(place) == Some(false)), "the thread that has started them");
        // They look at the places until all have looked.
        let have_ended = || places.iter().all(|place| place.lock().unwrap().as_ref().unwrap().is_finished());
        while !have_ended() {
            sync::sleep_ns(1000);
        }
        for place in places {
            let handle = place.lock().unwrap().take();
            handle.unwrap().join().unwrap();
        }
        assert_eq!(found.load(Relaxed), 3);
    }
    check();
    (0..20).for_each(|seed| Scheduler::run(seed, check).unwrap());
}

/// Threads of two runs have the same numbers.
#[test]
fn a_thread_of_one_run_is_not_that_of_another() {
    let kept: Arc<Mutex<Option<sync::JoinHandle<()>>>> = Arc::default();
    let place = kept.clone();
    Scheduler::run(1, move || *place.lock().unwrap() = Some(sync::spawn("first", || ()))).unwrap();
    let place = kept.clone();
    let asked = Scheduler::run(1, move || {
        let ask = move || place.lock().unwrap().as_ref().map(sync::JoinHandle::is_current);
        sync::spawn("second", ask).join().unwrap()
    });
    assert_eq!(asked.unwrap(), Some(false));
    let place = kept.clone();
    let asked = std::thread::spawn(move || place.lock().unwrap().as_ref().map(sync::JoinHandle::is_current));
    assert_eq!(asked.join().unwrap(), Some(false));
}
