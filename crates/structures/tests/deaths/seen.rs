//! A snapshot that was open before a process died, and is asked when the transaction of the dead has been ended.

use ledgerstone_region::sync::Scheduler;
use ledgerstone_region::sync::deaths::kill_at_step;
use ledgerstone_structures::Read;
use ledgerstone_testkit::deaths::{VICTIM, died, lived};
use ledgerstone_txn::{Durability, Horizon};

use crate::model::key;
use crate::work::Work;
use crate::world::Process;

/// Whether the victim dies at this step. Its commit may be in the log by then: who ends its transaction keeps what the
/// snapshot sees, and does not throw it away.
fn dies_at(step: &u64) -> bool {
    let ran = Scheduler::run_within(*step, 3_000_000, || {
        let root = Process::create(None);
        root.prepare_for(VICTIM, Work::Put);
        let mut txn = root.begin();
        let view = txn.open_view(Horizon::None).unwrap();
        kill_at_step(VICTIM, *step);
        let has_died = died(root.start(VICTIM, "victim", |own| own.work(Work::Put)));
        root.repair().into_iter().for_each(lived);
        for no in [1, 9] {
            let found = root.tree.get(&mut txn, &key(VICTIM, no), Read::At(view.at())).unwrap();
            assert_eq!(found, (no == 1).then(|| vec![7; 200]), "key {no}");
        }
        drop(view);
        txn.commit(Durability::Volatile).unwrap();
        root.check_all();
        root.shared.engine.assert_nothing_left();
        has_died
    });
    ran.unwrap_or_else(|stuck| panic!("step {step}: {stuck}"))
}

#[test]
fn snapshots_from_before_deaths_see_what_was_there_before() {
    let count = (1..).take_while(dies_at).count();
    println!("{count} deaths");
    assert!(count > 100, "{count} deaths");
}
