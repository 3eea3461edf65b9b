//! A process dies while a thread that ends transactions of another dead one waits for what it held.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use ledgerstone_region::Random;
use ledgerstone_region::sync::deaths::{kill, kill_at_step, yield_at_steps};
use ledgerstone_region::sync::{self, Scheduler};
use ledgerstone_testkit::deaths::{died, go_on_repairing, lived};

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
            while !is_held.load(SeqCst) {
                sync::sleep_ns(100_000);
            }
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
