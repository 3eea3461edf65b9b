//! Cycles in a waits-for graph (LIBTP 4.1), as pure functions over any graph.
//!
//! Vertices are owners, and an arrow leads from a waiter to each owner it waits for. Whoever is about to sleep searches
//! for a cycle through itself. That is enough: an arrow from or to an owner that runs closes no cycle, so the arrow
//! that closes one leads from an owner that has just queued, and of several that queue at the same time the last one to
//! search sees the arrows of all the others.
//!
//! D1. A graph that is read arrow by arrow while others go on changing it can show a cycle that never was. A cycle
//!     counts if a second reading finds each of its owners still in the **same** wait, with the same arrow: none of
//!     them did anything between the two readings, so at the end of the first all the arrows were there together.
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

/// Who gives way: the owner with the largest rank, and of equals the one with the largest number.
pub fn victim_of<A: Ord>(cycle: &[Hop], rank: impl Fn(OwnerNo) -> A) -> Option<OwnerNo> {
    cycle.iter().map(|hop| hop.owner).max_by_key(|&owner| (rank(owner), owner))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct Drawn(Vec<Vec<u32>>);

    impl WaitsFor for Drawn {
        fn waits(&mut self, owner: OwnerNo, into: &mut Vec<OwnerNo>) -> Option<Waiting> {
            let arrows = &self.0[owner.0 as usize];
            into.extend(arrows.iter().map(|&n| OwnerNo(n)));
            let name = LockName { space: 1, item: u64::from(owner.0) };
            (!arrows.is_empty()).then_some(Waiting { ticket: owner.0, name, mode: Mode::X })
        }
    }

    fn reaches(graph: &[Vec<u32>], from: u32, to: u32) -> bool {
        let mut seen = vec![false; graph.len()];
        let mut open = graph[from as usize].clone();
        while let Some(n) = open.pop() {
            if n == to {
                return true;
            }
            if !std::mem::replace(&mut seen[n as usize], true) {
                open.extend(&graph[n as usize]);
            }
        }
        false
    }

    fn cycle(graph: &[&[u32]], start: u32) -> Option<Vec<u32>> {
        let mut drawn = Drawn(graph.iter().map(|arrows| arrows.to_vec()).collect());
        find_cycle(&mut drawn, OwnerNo(start)).map(|hops| hops.iter().map(|hop| hop.owner.0).collect())
    }

    #[test]
    fn a_chain_is_no_cycle() {
        assert_eq!(cycle(&[&[1], &[2], &[]], 0), None);
    }

    #[test]
    fn a_cycle_that_the_searcher_only_waits_for_is_not_its_own() {
        assert_eq!(cycle(&[&[1], &[2], &[1]], 0), None);
    }

    #[test]
    fn the_cycle_is_named_from_the_searcher_on_without_detours() {
        assert_eq!(cycle(&[&[3, 1], &[4, 2], &[0], &[4], &[]], 0), Some(vec![0, 1, 2]));
    }

    #[test]
    fn the_largest_rank_gives_way_and_of_equals_the_last() {
        let hop = |n| Hop {
            owner: OwnerNo(n),
            waiting: Waiting { ticket: 0, name: LockName { space: 0, item: 0 }, mode: Mode::S },
            next: OwnerNo(0),
        };
        let cycle = [hop(0), hop(1), hop(2)];
        assert_eq!(victim_of(&cycle, |owner| [5, 9, 7][owner.0 as usize]), Some(OwnerNo(1)));
        assert_eq!(victim_of(&cycle, |_| 5), Some(OwnerNo(2)));
        assert_eq!(victim_of(&[], |_| 5), None);
    }

    #[test]
    fn a_wait_that_ended_in_between_is_no_deadlock() {
        let mut drawn = Drawn(vec![vec![1], vec![0]]);
        let cycle = find_cycle(&mut drawn, OwnerNo(0)).expect("two wait for each other");
        assert!(confirm_cycle(&mut drawn, &cycle));
        drawn.0[1].clear();
        assert!(!confirm_cycle(&mut drawn, &cycle));
    }

    proptest! {
        #[test]
        fn a_cycle_is_found_if_and_only_if_there_is_one(
            arrows in prop::collection::vec(prop::collection::vec(0_u32..12, 0..3), 12),
            start in 0_u32..12,
        ) {
            let mut drawn = Drawn(arrows);
            let found = find_cycle(&mut drawn, OwnerNo(start));
            prop_assert_eq!(found.is_some(), reaches(&drawn.0, start, start));
            if let Some(hops) = found {
                prop_assert_eq!(hops[0].owner, OwnerNo(start));
                for (i, hop) in hops.iter().enumerate() {
                    prop_assert!(drawn.0[hop.owner.0 as usize].contains(&hop.next.0));
                    prop_assert_eq!(hops[(i + 1) % hops.len()].owner, hop.next);
                }
                prop_assert!(confirm_cycle(&mut drawn, &hops));
            }
        }
    }
}
