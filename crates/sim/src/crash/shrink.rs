//! Makes a failing plan smaller: takes a piece away, runs the rest, and keeps the loss if it still fails.
//!
//! From the large to the small: lives, clients, jobs, steps. Each try is a whole round, so the number of tries is
//! bounded. A smaller plan is kept if its failure begins with the same words. A plan that is small because it fails in
//! another way does not help.

use super::plan::{Job, Plan};
use super::round::{Failure, Prepared, Talk, run};

/// The smallest plan that was found, and how it fails.
pub fn shrink(plan: Plan, failure: Failure, prepared: &mut Prepared, tries_max: usize) -> (Plan, Failure) {
    let mut best = (plan, failure);
    let mut tries = 0;
    loop {
        let before = size(&best.0);
        for smaller in candidates(&best.0) {
            if tries == tries_max {
                return best;
            }
            // An earlier gain may have made this one pointless.
            if size(&smaller) >= size(&best.0) {
                continue;
            }
            tries += 1;
            if let Err(failure) = run(&smaller, prepared, Talk::Quiet)
                && kind(&failure) == kind(&best.1)
            {
                best = (smaller, failure);
                break;
            }
        }
        if size(&best.0) == before {
            return best;
        }
    }
}

/// The first letters of what failed, numbers left out.
fn kind(failure: &Failure) -> String {
    let first = failure.lines.first().map_or("", String::as_str);
    first.chars().filter(|letter| !letter.is_ascii_digit()).take(16).collect()
}

fn size(plan: &Plan) -> usize {
    let jobs = |jobs: &Vec<Job>| jobs.iter().map(job_size).sum::<usize>() + 1;
    plan.lives.iter().map(|life| 2 + life.clients.iter().map(jobs).sum::<usize>()).sum()
}

fn job_size(job: &Job) -> usize {
    match job {
        Job::Transaction(plan) => 2 + plan.steps.len() + plan.retries as usize,
        _ => 1,
    }
}

fn candidates(plan: &Plan) -> Vec<Plan> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut Plan)| {
        let mut smaller = plan.clone();
        change(&mut smaller);
        all.push(smaller);
    };
    // The last life only looks, and stays.
    for life in 0..plan.lives.len().saturating_sub(1) {
        with(&|plan| drop(plan.lives.remove(life)));
    }
    for (life, old) in plan.lives.iter().enumerate() {
        for client in 0..old.clients.len() {
            with(&|plan| drop(plan.lives[life].clients.remove(client)));
        }
    }
    for (life, old) in plan.lives.iter().enumerate() {
        for (client, jobs) in old.clients.iter().enumerate() {
            for job in 0..jobs.len() {
                with(&|plan| drop(plan.lives[life].clients[client].remove(job)));
            }
        }
    }
    for (life, old) in plan.lives.iter().enumerate() {
        for (client, jobs) in old.clients.iter().enumerate() {
            for (job, old) in jobs.iter().enumerate() {
                let Job::Transaction(transaction) = old else { continue };
                for step in 0..transaction.steps.len() {
                    with(&|plan| {
                        if let Job::Transaction(transaction) = &mut plan.lives[life].clients[client][job] {
                            transaction.steps.remove(step);
                        }
                    });
                }
            }
        }
    }
    all
}
