//! A small share of what `make crash` and `make histories` do, so that `cargo test` sees it too.

use ledgerstone::{Conflict, Isolation, Locking};
use ledgerstone_sim::counters::Counters;
use ledgerstone_sim::crash::plan::{Durability, End, Job, Key, Life, Plan, Start, Step, TransactionPlan, Wishes};
use ledgerstone_sim::crash::round::{self, Failure, Prepared, Talk};
use ledgerstone_sim::histories::check::check;
use ledgerstone_sim::histories::workload::{self, Size};
use ledgerstone_sim::log_end;

fn unwrap(result: Result<Counters, Failure>) -> Counters {
    result.unwrap_or_else(|failure| {
        panic!("seed {} failed in life {}:\n  {}", failure.seed, failure.life, failure.lines.join("\n  "))
    })
}

#[test]
fn what_survives_a_crash_is_a_prefix_of_the_commits() {
    let mut prepared = Prepared::default();
    let mut counters = Counters::default();
    for seed in 1..=60 {
        counters.merge(&unwrap(round::run(&Plan::new(seed, Wishes::default()), &mut prepared, Talk::Quiet)));
    }
    for name in ["crashes", "kills", "ends_in_recovery", "present", "lost", "closes"] {
        assert!(counters.get(name) > 0, "no {name} in {counters}");
    }
}

#[test]
fn no_record_of_another_life_is_read_at_the_end_of_a_log() {
    for seed in 1..=60 {
        log_end::run(seed).unwrap_or_else(|lines| panic!("seed {seed}: {}", lines.join("\n")));
    }
}

#[test]
fn power_may_fail_at_every_write_of_a_creation() {
    let plan = Plan { start: Start::Nothing, ..script(Vec::new()) };
    let counters = unwrap(round::run_every_write(plan, 3, &mut Prepared::default()));
    assert!(counters.get("crashes") > 10, "{counters}");
}

#[test]
fn power_may_fail_at_every_write_of_a_small_script() {
    let steps = [Step::Put(FIRST, 300), Step::Delete(Key { number: 6, ..FIRST }), Step::Modify(FIRST, Some((9, 400)))];
    let jobs = vec![transaction(End::Abort, &steps), transaction(End::Commit, &steps)];
    unwrap(round::run_every_write(script(jobs), 3, &mut Prepared::default()));
}

/// A plan of one client, who runs these jobs in an environment with records.
fn script(jobs: Vec<Job>) -> Plan {
    let mut plan = Plan::new(1, Wishes { no_space_trouble: true, ..Wishes::default() });
    plan.start = Start::Filled;
    plan.settings.locking = (Locking::Hierarchical, Conflict::Wait);
    plan.settings.checkpoint_log_bytes = 8 << 10; // Pages are written in the middle of it.
    let last = plan.lives.pop().unwrap();
    let crash = Life { clients: vec![jobs], crash_in_open: None, crash_after: None, closes: true, ..last.clone() };
    plan.lives = vec![Life { verifies: false, ..crash }, last];
    plan
}

fn transaction(end: End, steps: &[Step]) -> Job {
    Job::Transaction(TransactionPlan {
        durability: Durability::Sync,
        end,
        retries: 0,
        isolation: Isolation::Serializable,
        mark_at: Some(steps.len()),
        steps: steps.to_vec(),
    })
}

/// What is in use and nobody's would be found by the verification after each crash.
fn leaves_no_page_behind(jobs: Vec<Job>) {
    let counters = unwrap(round::run_every_write(script(jobs), 1, &mut Prepared::default()));
    assert!(counters.get("crashes") > 10, "{counters}");
}

const FIRST: Key = Key { table: 1, number: 200 };

#[test]
fn power_may_fail_at_every_write_of_a_sorted_load() {
    let load = [Step::ClearRange(Key { number: 0, ..FIRST }, 400), Step::Load(FIRST, 60, 900)];
    let large = [Step::ClearRange(Key { number: 0, ..FIRST }, 400), Step::Load(FIRST, 4, 5000)];
    for end in [End::Commit, End::Abort] {
        leaves_no_page_behind(vec![transaction(end, &load)]);
        leaves_no_page_behind(vec![transaction(end, &large), transaction(End::Commit, &[Step::Drop(1)])]);
    }
}

#[test]
fn power_may_fail_at_every_write_of_a_load_that_is_taken_back() {
    let (clear, load) = (Step::ClearRange(Key { number: 0, ..FIRST }, 400), Step::Load(FIRST, 40, 700));
    let back = [clear, Step::Savepoint, load, Step::RollbackTo(0), load];
    leaves_no_page_behind(vec![transaction(End::Commit, &back), Job::Checkpoint]);
    let renamed = [clear, load, Step::Rename(1, 5), Step::Create(1), Step::Load(FIRST, 20, 700), Step::Drop(5)];
    leaves_no_page_behind(vec![transaction(End::Commit, &renamed), Job::Checkpoint]);
}

#[test]
fn power_may_fail_at_every_write_of_a_compaction() {
    let emptied = [Step::Clear(Key { table: 1, number: 0 }, 90), Step::Drop(2)];
    leaves_no_page_behind(vec![transaction(End::Commit, &emptied), Job::Compact]);
}

#[test]
fn power_may_fail_at_every_write_of_a_range_delete_and_a_rename() {
    let (clear, key) = (Step::ClearRange(Key { table: 1, number: 5 }, 100), Key { table: 5, number: 1 });
    let jobs = [[clear, Step::Rename(1, 5)], [Step::Put(key, 3000), Step::Rename(5, 1)], [Step::Rename(1, 5), clear]];
    leaves_no_page_behind(jobs.map(|steps| transaction(End::Commit, &steps)).to_vec());
}

#[test]
fn power_may_fail_at_every_write_of_a_counter_list_that_splits() {
    let count = |from| Step::Count { list: 0, from, count: 30, delta: 3 };
    let steps = |from| [count(from), Step::CreateList(1), Step::Count { list: 1, from: 0, count: 3, delta: 1 }];
    let ends = [End::Abort, End::Commit, End::Drop, End::Commit, End::Abort, End::Commit];
    let jobs = ends.iter().zip(1..).flat_map(|(end, from)| [transaction(*end, &steps(from)), Job::Checkpoint]);
    leaves_no_page_behind(jobs.collect());
}

#[test]
fn simulated_histories_are_what_their_levels_promise() {
    for seed in 1..=300 {
        let findings = check(&workload::simulate(seed, false).unwrap());
        assert!(findings.problems.is_empty(), "seed {seed}: {}", findings.problems.join("\n"));
    }
}

#[test]
fn histories_on_threads_are_what_their_levels_promise() {
    let dir = tempfile::tempdir().unwrap();
    let size = Size {
        client_count: 4,
        transaction_count: 60,
        key_count: 8,
        isolation: None,
        value_bytes: 8,
        version_store_bytes: 1 << 20,
        is_queue: false,
        is_restless: false,
    };
    let findings = check(&workload::run_on_threads(dir.path(), 1, size, false).unwrap());
    assert!(findings.problems.is_empty(), "{}", findings.problems.join("\n"));
}
