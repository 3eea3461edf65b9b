//! A panic of the engine's code while a snapshot is opened or closed, in calls that do little else: the environment has
//! failed, or nothing is left.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ledgerstone::{Environment, Isolation, TransactionOptions};
use ledgerstone_region::sync::Scheduler;
use ledgerstone_region::sync::deaths::panic_at_step;

use crate::model::own;
use crate::world::Process;

const THREAD: u32 = 1;

/// A part of a program that sees what is committed. It calls `arm` before what is to panic.
type Reads = fn(&Environment, arm: &dyn Fn());

fn options(isolation: Isolation) -> TransactionOptions {
    TransactionOptions { isolation: Some(isolation), ..TransactionOptions::default() }
}

const READS: [(&str, Reads); 6] = [
    ("a snapshot begins and ends", |env, arm| {
        arm();
        drop(env.snapshot().unwrap());
    }),
    ("a transaction begins and ends", |env, arm| {
        arm();
        drop(env.begin().unwrap());
    }),
    ("a range is made and dropped", |env, arm| {
        let txn = env.begin_with(options(Isolation::ReadCommitted)).unwrap();
        let table = txn.bytes(&own(THREAD)).unwrap();
        arm();
        drop(table.range(..).unwrap());
    }),
    ("a range is dropped before its end", |env, arm| {
        let txn = env.begin_with(options(Isolation::ReadCommitted)).unwrap();
        let mut range = txn.bytes(&own(THREAD)).unwrap().range(..).unwrap();
        range.next().unwrap().unwrap();
        arm();
        drop(range);
    }),
    ("a range comes to its end", |env, arm| {
        let txn = env.begin_with(options(Isolation::ReadUncommitted)).unwrap();
        let mut range = txn.bytes(&own(THREAD)).unwrap().range(..).unwrap();
        arm();
        while range.next_back().is_some() {}
    }),
    ("names of tables", |env, arm| {
        arm();
        drop(env.table_names().unwrap());
    }),
];

#[test]
fn a_panic_as_a_snapshot_opens_or_closes_fails_the_environment_or_leaves_nothing() {
    let mut wrong = Vec::new();
    for (name, reads) in READS {
        let (mut at, mut has_panicked, mut failed) = (0, true, 0);
        while has_panicked {
            at += 1;
            let ran = Scheduler::run_within(at, 3_000_000, || {
                let root = Process::create();
                let process = root.view();
                process.prepare_for_all([THREAD].into_iter());
                process.live(THREAD, 3);
                let read = || reads(&process.env, &|| _ = panic_at_step(at));
                let has_panicked = catch_unwind(AssertUnwindSafe(read)).is_err();
                panic_at_step(0);
                let has_failed = process.env.is_failed();
                drop(process);
                root.env.end_background();
                if !has_failed {
                    root.env.assert_nothing_left();
                }
                (has_panicked, has_failed)
            });
            match ran {
                Ok((panicked, has_failed)) => {
                    has_panicked = panicked;
                    failed += u32::from(has_failed);
                }
                Err(stuck) => wrong.push(format!("{name}, {at}: {stuck}")),
            }
        }
        println!("{name}: {failed} failures in {at} steps");
        assert!(at > 3, "{name}: {at}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
