//! Cycles in a waits-for graph (LIBTP 4.1), as pure functions over any graph.
//!
//! Vertices are owners, and an arrow leads from a waiter to each owner it waits for. Whoever is about to sleep searches for a
//! cycle through itself. That is enough: an arrow from or to an owner that runs closes no cycle, so the arrow that
//! closes one leads from an owner that has just queued, and of several that queue at the same time the last one to search
//! sees the arrows of all the others.
//!
//! D1. A graph that is read arrow by arrow while others go on changing it can show a cycle that never was. A cycle counts if a
//!     second reading finds each of its owners still in the **same** wait, with the same arrow: none of them did anything
//!     between the two readings, so at the end of the first all the arrows were there together.
//! D2. A deadlock does not go away by itself, so no real one fails D1, unless one of its waits is just being ended.

use crate::{LockName, Mode, OwnerNo};

/// What an owner waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Number of the wait: never the same for two waits of one owner that could be confused.
    pub ticket: u32,
    /// What for.
    pub name: LockName,
    /// How.
    pub mode: Mode,
}

/// A waits-for graph.
pub trait WaitsFor {
    /// What `owner` waits for, if it waits, and in `into` (which is empty) those that stand in its way.
    fn waits(&mut self, owner: OwnerNo, into: &mut Vec<OwnerNo>) -> Option<Waiting>;
}

/// One arrow of a cycle: `owner` waits for `next`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Who waits.
    pub owner: OwnerNo,
    /// With which request.
    pub waiting: Waiting,
    /// For whom.
    pub next: OwnerNo,
}

/// A cycle through `start`, which comes first; depth first, each owner visited once.
pub fn find_cycle(graph: &mut impl WaitsFor, start: OwnerNo) -> Option<Vec<Hop>> {
    struct Step {
        owner: OwnerNo,
        waiting: Waiting,
        blockers: Vec<OwnerNo>,
        tried: usize,
    }
    let mut visited = std::collections::BTreeSet::new();
    let mut path: Vec<Step> = Vec::new();
    let mut enter = Some(start);
    loop {
        if let Some(owner) = enter.take() {
            let mut blockers = Vec::new();
            if visited.insert(owner)
                && let Some(waiting) = graph.waits(owner, &mut blockers)
            {
                path.push(Step { owner, waiting, blockers, tried: 0 });
            }
        }
        let step = path.last_mut()?;
        let Some(&next) = step.blockers.get(step.tried) else {
            path.pop();
            continue;
        };
        step.tried += 1;
        if next != start {
            enter = Some(next);
            continue;
        }
        // On the path, the arrow taken is the one tried last.
        let hop = |step: &Step| Hop { owner: step.owner, waiting: step.waiting, next: step.blockers[step.tried - 1] };
        return Some(path.iter().map(hop).collect());
    }
}

/// Whether a second reading finds the cycle unchanged (D1).
pub fn confirm_cycle(graph: &mut impl WaitsFor, cycle: &[Hop]) -> bool {
    let mut blockers = Vec::new();
    cycle.iter().all(|hop| {
        blockers.clear();
        graph.waits(hop.owner, &mut blockers) == Some(hop.waiting) && blockers.contains(&hop.next)
    })
}

/// Who gives way: the owner with the largest age, and of equals the one with the largest number.
pub fn victim_of<A: Ord>(cycle: &[Hop], age: impl Fn(OwnerNo) -> A) -> Option<OwnerNo> {
    cycle.iter().map(|hop| hop.owner).max_by_key(|&owner| (age(owner), owner))
}
