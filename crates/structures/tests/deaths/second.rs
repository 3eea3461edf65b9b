//! A process dies while a thread that ends transactions of another dead one waits for what it held.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use ledgerstone_region::Random;
use ledgerstone_region::sync::deaths::{kill, kill_at_step, yield_at_steps};
use ledgerstone_region::sync::{self, Scheduler};
use ledgerstone_testkit::deaths::{died, go_on_repairing, lived};

use crate::model::key;
use crate::work::Work;
use crate::world::Process;

/// The first has counted. The second has the latch that the undo of this needs. The third repairs after both.
const DEAD: [u32; 2] = [1, 2];
const REPAIRER: u32 = 4;
/// Sees the pair whole, whoever has died.
const LOOKER: u32 = 5;
/// By then the repairer's thread waits for the latch.
const LONG_NS: u64 = 20_000_000;

/// Only a thread of the repairer's process can give the latch back, and one of them waits for it.
#[test]
fn whoever_held_what_an_undo_waits_for_is_repaired_after_in_deaths() {
    for seed in 0..20 {
        let ran = Scheduler::run_within(seed, 300_000, || {
            let root = Process::create(None);
            let first = root.start(DEAD[0], "counts", |own| {
                let mut txn = own.begin();
                own.pair.count(&mut txn, 5).unwrap();
                kill(DEAD[0]);
            });
            died(first);
            let is_held = Arc::new(AtomicBool::new(false));
            let tells = Arc::clone(&is_held);
            let second = root.start(DEAD[1], "adds", move |own| {
                let mut txn = own.begin();
                own.model.lock().may_add(DEAD[1], 7);
                let added = own.pair.add_and(&mut txn, 7, |_| {
                    tells.store(true, SeqCst);
                    sync::sleep_ns(LONG_NS);
                    kill(DEAD[1]);
                    Ok(())
                });
                panic!("it has died, and has {added:?}");
            });
            await_it(&is_held);
            let is_over = Arc::new(AtomicBool::new(false));
            let over = Arc::clone(&is_over);
            let repairs = move |own: &Arc<Process>| go_on_repairing(&over, 700_000, || own.repair());
            let repairer = root.start(REPAIRER, "repairs", repairs);
            assert!(died(second));
            sync::sleep_ns(LONG_NS);
            is_over.store(true, SeqCst);
            lived(repairer);
            root.check_all();
            root.shared.engine.assert_nothing_left();
        });
        ran.unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
    }
}

/// What was inherited of a structure's latches is looked at before the transactions that need them. A latch of the
/// second one, after whom was repaired in between, is held until its transaction is whole again.
#[test]
fn latches_of_a_second_one_of_the_deaths_are_not_given_back_with_those_of_the_first() {
    for seed in 0..30 {
        let ran = Scheduler::run_within(seed, 300_000, || {
            let root = Process::create(None);
            root.prepare_for(DEAD[0], Work::Put);
            let first = root.start(DEAD[0], "prepares", |own| {
                let mut txn = own.begin();
                own.tree.put(&mut txn, &key(DEAD[0], 1), &[9; 300]).unwrap();
                txn.prepare(b"in doubt").unwrap();
                kill(DEAD[0]);
                sync::sleep_ns(LONG_NS);
            });
            assert!(died(first));
            let repair = || ledgerstone_recovery::repair(root.engine(), |dead| root.repair_own(dead)).unwrap();
            assert!(repair());
            let [is_ending, may_go_on] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
            let ending = end_and_ask(&root, &is_ending, &may_go_on);
            await_it(&is_ending);
            let second = root.start(DEAD[1], "adds", |own| {
                let mut txn = own.begin();
                own.model.lock().may_add(DEAD[1], 7);
                let added = own.pair.add_and(&mut txn, 7, |_| {
                    kill(DEAD[1]);
                    sync::sleep_ns(LONG_NS);
                    Ok(())
                });
                panic!("it has died, and has {added:?}");
            });
            assert!(died(second));
            let looks = root.start(LOOKER, "looks", |own| {
                own.pair.value(own.engine());
            });
            assert!(repair());
            may_go_on.store(true, SeqCst);
            [ending, looks].into_iter().for_each(lived);
            root.check_all();
            root.shared.engine.assert_nothing_left();
        });
        ran.unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
    }
}

/// A thread has found orphans of two processes, and is asked about the first. Another one does not end the second one's
/// beside it: the first thread is about to.
#[test]
fn who_has_found_orphans_of_two_deaths_ends_both() {
    for seed in 0..10 {
        let ran = Scheduler::run_within(seed, 300_000, || {
            let root = Process::create(None);
            root.prepare_for(DEAD[0], Work::Put);
            let prepares = root.start(DEAD[0], "prepares", |own| {
                let mut txn = own.begin();
                own.tree.put(&mut txn, &key(DEAD[0], 1), &[9; 300]).unwrap();
                txn.prepare(b"in doubt").unwrap();
                sync::sleep_ns(LONG_NS);
            });
            sync::sleep_ns(1_000_000);
            let counts = root.start(DEAD[1], "counts", |own| {
                let mut txn = own.begin();
                own.pair.count(&mut txn, 5).unwrap();
                DEAD.into_iter().for_each(kill);
                sync::sleep_ns(LONG_NS);
            });
            assert!([counts, prepares].into_iter().all(died));
            assert!(ledgerstone_recovery::repair(root.engine(), |dead| root.repair_own(dead)).unwrap());
            let [is_ending, may_go_on] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
            let ending = end_and_ask(&root, &is_ending, &may_go_on);
            await_it(&is_ending);
            let own = Arc::clone(&root);
            lived(sync::spawn("ends nothing", move || own.end_orphans()));
            assert!(root.engine().has_orphans(), "what the first thread had found was ended by another");
            may_go_on.store(true, SeqCst);
            lived(ending);
            root.check_all();
            root.shared.engine.assert_nothing_left();
        });
        ran.unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
    }
}

/// A thread that ends orphans. It says when it is asked about one in doubt, waits until it may go on, and aborts it.
fn end_and_ask(root: &Arc<Process>, is_asked: &Arc<AtomicBool>, may_go_on: &Arc<AtomicBool>) -> sync::JoinHandle<()> {
    let (own, tells, asks) = (Arc::clone(root), Arc::clone(is_asked), Arc::clone(may_go_on));
    sync::spawn("ends", move || {
        let mut found = Vec::new();
        let keep = |in_doubt| {
            tells.store(true, SeqCst);
            await_it(&asks);
            found.push(in_doubt);
        };
        own.engine().end_orphans(keep).unwrap();
        found.into_iter().for_each(|mut found| found.txn.abort_prepared().unwrap());
    })
}

fn await_it(is_so: &AtomicBool) {
    while !is_so.load(SeqCst) {
        sync::sleep_ns(100_000);
    }
}

/// Threads of one process repair after one death and the other, and end what both have left, step by step beside each
/// other.
#[test]
fn deaths_shortly_after_each_other_are_repaired_by_one_process() {
    let rounds = std::env::var("ROUNDS").map_or(300, |rounds| rounds.parse().expect("a number of rounds"));
    let mut both = 0;
    for seed in 0..rounds {
        let ran = Scheduler::run_within(seed, 3_000_000, || {
            let mut random = Random::new(seed);
            let root = Process::create(None);
            for no in DEAD {
                root.prepare_for(no, Work::Deep);
                kill_at_step(no, 1 + random.below(1200));
            }
            yield_at_steps(REPAIRER, 1 + random.below(8), seed);
            let every_ns = 1 + random.below(100_000);
            let is_over = Arc::new(AtomicBool::new(false));
            let (over, over_too) = (Arc::clone(&is_over), Arc::clone(&is_over));
            let repairs = move |own: &Arc<Process>| go_on_repairing(&over, every_ns, || own.repair());
            let repairer = root.start(REPAIRER, "repairs", repairs);
            let dead = DEAD.map(|no| root.start(no, "works", |own| own.work(Work::Deep)));
            let looks = root.start(LOOKER, "looks", move |own| {
                while !over_too.load(SeqCst) {
                    own.pair.value(own.engine());
                    sync::sleep_ns(10_000);
                }
            });
            let count = dead.into_iter().map(died).filter(|has_died| *has_died).count();
            sync::sleep_ns(LONG_NS);
            is_over.store(true, SeqCst);
            [repairer, looks].into_iter().for_each(lived);
            root.check_all();
            root.shared.engine.assert_nothing_left();
            count
        });
        both += u64::from(ran.unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}")) == DEAD.len());
    }
    println!("two deaths in {both} of {rounds} runs");
    assert!(both > rounds / 4, "{both}");
}
