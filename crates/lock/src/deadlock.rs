//! Cycles in a waits-for graph (LIBTP 4.1), as pure functions over any graph.
//!
//! Vertices are waits, one of each owner that waits. An arrow leads from a wait to another that has to end first. The
//! waiter stands behind an owner, and that owner does not end before its own wait ends, nor before the waits of others
//! that hold it up. An owner that is about to sleep searches for a cycle through its wait. That is enough. An owner
//! that runs, and that nobody holds up, is in no cycle. So the arrow that closes a cycle leads from a wait that has
//! just begun. If several begin at the same time, the last one to search sees the arrows of all the others.
//!
//! D1. A graph that is read arrow by arrow while others go on changing it can show a cycle that never was. A cycle
//!     counts if a second reading finds each of its owners still in the **same** wait, with the same arrow. None of
//!     them did anything between the two readings, so all the arrows were there together at the end of the first.
//! D2. A deadlock does not go away by itself, so no real one fails D1, unless one of its waits is just being ended.

use crate::{LockName, Mode, OwnerNo};
use ledgerstone_region::NumberSet;

/// A wait of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Number of the wait: never the same for two waits of one owner that could be confused.
    pub ticket: u32,
    /// The lock that it waits for.
    pub name: LockName,
    /// How.
    pub mode: Mode,
}

/// A waits-for graph.
pub trait WaitsFor {
    /// The lock that `owner` waits for, if it waits. The owners that stand in its way are put into `into`, which is
    /// empty.
    fn waits(&mut self, owner: OwnerNo, into: &mut Vec<OwnerNo>) -> Option<Waiting>;

    /// Adds to `into` the owners that hold `owner` up: `owner` does not end before their waits do.
    fn held_up(&mut self, owner: OwnerNo, into: &mut Vec<OwnerNo>);
}

/// One arrow of a cycle: `owner` waits for `next`, which does not end before the wait of `by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The owner that waits.
    pub owner: OwnerNo,
    /// With which request.
    pub waiting: Waiting,
    /// For whom.
    pub next: OwnerNo,
    /// The owner whose wait keeps that one from ending. This is its own wait, or the wait of an owner that holds it up.
    /// The next arrow begins at this owner.
    pub by: OwnerNo,
}

/// Finds a cycle through the wait of `start`, which comes first. The search goes depth first and visits each wait once.
pub fn find_cycle(graph: &mut impl WaitsFor, start: OwnerNo) -> Option<Vec<Hop>> {
    find_path(graph, start, |_, by| by == start)
}

/// Finds the arrows that lead from the wait of `start` to a wait for which `is_end` holds. `is_end` is given the owner
/// that the arrow leads to, and the owner whose wait it is.
pub fn find_path(
    graph: &mut impl WaitsFor,
    start: OwnerNo,
    is_end: impl Fn(OwnerNo, OwnerNo) -> bool,
) -> Option<Vec<Hop>> {
    struct Step {
        owner: OwnerNo,
        waiting: Waiting,
        arrows: Vec<(OwnerNo, OwnerNo)>,
        tried: usize,
    }
    let mut visited = NumberSet::new();
    let mut path: Vec<Step> = Vec::new();
    let mut enter = Some(start);
    loop {
        if let Some(owner) = enter.take()
            && visited.insert(owner.0)
            && let Some((waiting, arrows)) = arrows_from(graph, owner)
        {
            path.push(Step { owner, waiting, arrows, tried: 0 });
        }
        let step = path.last_mut()?;
        let Some(&(next, by)) = step.arrows.get(step.tried) else {
            path.pop();
            continue;
        };
        step.tried += 1;
        if !is_end(next, by) {
            enter = Some(by);
            continue;
        }
        // On the path, the arrow taken is the one tried last.
        let hop = |step: &Step| {
            let (next, by) = step.arrows[step.tried - 1];
            Hop { owner: step.owner, waiting: step.waiting, next, by }
        };
        return Some(path.iter().map(hop).collect());
    }
}

/// The arrows from the wait of an owner: to whom, and by whose wait.
fn arrows_from(graph: &mut impl WaitsFor, owner: OwnerNo) -> Option<(Waiting, Vec<(OwnerNo, OwnerNo)>)> {
    let (mut blockers, mut by) = (Vec::new(), Vec::new());
    let waiting = graph.waits(owner, &mut blockers)?;
    let mut arrows = Vec::with_capacity(blockers.len());
    for next in blockers {
        arrows.push((next, next));
        graph.held_up(next, &mut by);
        arrows.extend(by.drain(..).map(|by| (next, by)));
    }
    Some((waiting, arrows))
}

/// Whether a second reading finds the arrows unchanged (D1).
pub fn confirm_cycle(graph: &mut impl WaitsFor, cycle: &[Hop]) -> bool {
    let (mut blockers, mut by) = (Vec::new(), Vec::new());
    cycle.iter().all(|hop| {
        blockers.clear();
        by.clear();
        let is_same = graph.waits(hop.owner, &mut blockers) == Some(hop.waiting) && blockers.contains(&hop.next);
        graph.held_up(hop.next, &mut by);
        is_same && (hop.by == hop.next || by.contains(&hop.by))
    })
}

/// The owner whose wait gives way: the one with the largest rank. Of owners with equal rank, it is the one with the
/// largest number.
pub fn victim_of<A: Ord>(cycle: &[Hop], rank: impl Fn(OwnerNo) -> A) -> Option<OwnerNo> {
    cycle.iter().map(|hop| hop.owner).max_by_key(|&owner| (rank(owner), owner))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Whom each waits for, and who holds each up.
    struct Drawn(Vec<Vec<u32>>, Vec<Vec<u32>>);

    impl Drawn {
        fn waits(arrows: Vec<Vec<u32>>) -> Drawn {
            let none = vec![Vec::new(); arrows.len()];
            Drawn(arrows, none)
        }
    }

    impl WaitsFor for Drawn {
        fn waits(&mut self, owner: OwnerNo, into: &mut Vec<OwnerNo>) -> Option<Waiting> {
            let arrows = &self.0[owner.0 as usize];
            into.extend(arrows.iter().map(|&n| OwnerNo(n)));
            let name = LockName { space: 1, item: u64::from(owner.0) };
            (!arrows.is_empty()).then_some(Waiting { ticket: owner.0, name, mode: Mode::X })
        }

        fn held_up(&mut self, owner: OwnerNo, into: &mut Vec<OwnerNo>) {
            into.extend(self.1[owner.0 as usize].iter().map(|&n| OwnerNo(n)));
        }
    }

    /// Whether the wait of `from` has to wait for that of `to`.
    fn reaches(graph: &Drawn, from: u32, to: u32) -> bool {
        let waits_before = |n: u32| {
            graph.0[n as usize]
                .iter()
                .flat_map(|&next| graph.1[next as usize].iter().chain([&next]).copied().collect::<Vec<_>>())
                .collect::<Vec<_>>()
        };
        let mut seen = vec![false; graph.0.len()];
        let mut open = waits_before(from);
        while let Some(n) = open.pop() {
            if n == to {
                return true;
            }
            if !std::mem::replace(&mut seen[n as usize], true) {
                open.extend(waits_before(n));
            }
        }
        false
    }

    fn cycle(graph: &[&[u32]], start: u32) -> Option<Vec<u32>> {
        let mut drawn = Drawn::waits(graph.iter().map(|arrows| arrows.to_vec()).collect());
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
            by: OwnerNo(0),
        };
        let cycle = [hop(0), hop(1), hop(2)];
        assert_eq!(victim_of(&cycle, |owner| [5, 9, 7][owner.0 as usize]), Some(OwnerNo(1)));
        assert_eq!(victim_of(&cycle, |_| 5), Some(OwnerNo(2)));
        assert_eq!(victim_of(&[], |_| 5), None);
    }

    #[test]
    fn a_wait_that_ended_in_between_is_no_deadlock() {
        let mut drawn = Drawn::waits(vec![vec![1], vec![0]]);
        let cycle = find_cycle(&mut drawn, OwnerNo(0)).expect("two wait for each other");
        assert!(confirm_cycle(&mut drawn, &cycle));
        drawn.0[1].clear();
        assert!(!confirm_cycle(&mut drawn, &cycle));
    }

    /// 0 waits for 1, which waits for 2 and is held up by 3, which waits for 0.
    #[test]
    fn who_is_held_up_waits_by_its_own_and_by_the_others() {
        let mut drawn = Drawn(vec![vec![1], vec![2], vec![], vec![0]], vec![vec![], vec![3], vec![], vec![]]);
        for (start, expected) in [(0, Some(vec![0, 3])), (3, Some(vec![3, 0])), (1, None)] {
            let found = find_cycle(&mut drawn, OwnerNo(start));
            assert_eq!(found.map(|hops| hops.iter().map(|hop| hop.owner.0).collect()), expected, "from {start}");
        }
        let path = find_path(&mut drawn, OwnerNo(3), |next, _| next == OwnerNo(2)).expect("1 waits, too");
        assert_eq!(path.iter().map(|hop| hop.owner.0).collect::<Vec<_>>(), [3, 0, 1]);
        let hops = find_cycle(&mut drawn, OwnerNo(0)).expect("found above");
        drawn.1[1].clear();
        assert!(!confirm_cycle(&mut drawn, &hops));
    }

    proptest! {
        #[test]
        fn a_cycle_is_found_if_and_only_if_there_is_one(
            arrows in prop::collection::vec(prop::collection::vec(0_u32..12, 0..3), 12),
            held_up in prop::collection::vec(prop::collection::vec(0_u32..12, 0..2), 12),
            start in 0_u32..12,
        ) {
            let mut drawn = Drawn(arrows, held_up);
            let found = find_cycle(&mut drawn, OwnerNo(start));
            prop_assert_eq!(found.is_some(), reaches(&drawn, start, start));
            if let Some(hops) = found {
                prop_assert_eq!(hops[0].owner, OwnerNo(start));
                for (i, hop) in hops.iter().enumerate() {
                    prop_assert!(drawn.0[hop.owner.0 as usize].contains(&hop.next.0));
                    prop_assert!(hop.by == hop.next || drawn.1[hop.next.0 as usize].contains(&hop.by.0));
                    prop_assert_eq!(hops[(i + 1) % hops.len()].owner, hop.by);
                }
                prop_assert!(confirm_cycle(&mut drawn, &hops));
            }
        }
    }
}
