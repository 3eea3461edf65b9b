//! A small share of what `make crash` and `make histories` do, so that `cargo test` sees it too.

use ledgerstone_sim::counters::Counters;
use ledgerstone_sim::crash::plan::{Plan, Wishes};
use ledgerstone_sim::crash::round::{self, Failure, Prepared, Talk};
use ledgerstone_sim::histories::check::check;
use ledgerstone_sim::histories::workload::{self, Size};

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
    for name in ["crashes", "crashes_in_recovery", "present", "lost", "closes"] {
        assert!(counters.get(name) > 0, "no {name} in {counters}");
    }
}

#[test]
fn power_may_fail_at_every_write_of_a_small_script() {
    let mut prepared = Prepared::default();
    let short = |seed: &u64| {
        let plan = Plan::new(*seed, Wishes { no_space_trouble: true, ..Wishes::default() });
        plan.lives[0].clients.len() == 1 && plan.lives[0].clients[0].len() <= 2
    };
    let mut every_write = |seed| round::run_every_write(seed, 400, &mut prepared).transpose();
    for counters in (1000..).filter(short).filter_map(&mut every_write).take(2) {
        assert!(unwrap(counters).get("crashes") > 0);
    }
}

#[test]
fn simulated_histories_are_what_their_levels_promise() {
    for seed in 1..=300 {
        let findings = check(&workload::simulate(seed).unwrap());
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
    };
    let findings = check(&workload::run_on_threads(dir.path(), 1, size).unwrap());
    assert!(findings.problems.is_empty(), "{}", findings.problems.join("\n"));
}
