//! Who may wait, and who gives way: pure choices.
//!
//! | victim | gives way | good for |
//! | --- | --- | --- |
//! | youngest | who began last | everything: a retry keeps its age, so that nobody starves |
//! | oldest | who began first | nothing but comparison; a retry is chosen again and again |
//! | fewest locks | who holds the fewest locks | long transactions beside short ones |
//! | least log | who has written the least log: the cheapest rollback | writers beside readers |
//! | random | any | workloads in which every rule is met with a pattern |
//!
//! Only "youngest" promises that every transaction is served in the end.

use ledgerstone_page::Xid;

/// Which transaction gives way in a deadlock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Victim {
    /// The one that began last. A retry that keeps its age wins in the end.
    #[default]
    Youngest,
    /// The one that began first.
    Oldest,
    /// The one that holds the fewest locks.
    FewestLocks,
    /// The one that has written the least log.
    LeastLog,
    /// Anybody.
    Random,
}

/// What happens to a request that meets a conflicting lock, if its owner has called
/// [`avoid_deadlocks`](crate::LockManager::avoid_deadlocks) (Lemon 4.1: avoidance instead of detection).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conflict {
    /// It waits. Deadlocks are found and resolved.
    #[default]
    Wait,
    /// It is refused at once. No request ever waits.
    NoWait,
    /// It waits if all owners that stand in its way are younger, and is refused otherwise. So waits lead from older to
    /// younger transactions only, and close no cycle. An upgrade may pass a waiting request, and so become a second
    /// reason for its wait that is older than the waiter. Therefore a waiter still searches for a deadlock.
    WaitDie,
}

/// The facts by which a victim is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The transaction. A larger number is younger.
    pub age: Xid,
    /// Locks it holds or waits for.
    pub lock_count: u32,
    /// Bytes of log it has written.
    pub weight: u64,
}

impl Victim {
    /// The larger, the sooner it gives way. `draw` is another number for each deadlock.
    #[must_use]
    pub fn rank(self, standing: Standing, draw: u64) -> (u64, u64) {
        let age = standing.age.0;
        match self {
            Victim::Youngest => (age, 0),
            Victim::Oldest => (u64::MAX - age, 0),
            Victim::FewestLocks => (u64::MAX - u64::from(standing.lock_count), age),
            Victim::LeastLog => (u64::MAX - standing.weight, age),
            Victim::Random => {
                let mixed = (age ^ draw.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                ((mixed ^ mixed >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9), age)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(victim: Victim, draw: u64) -> usize {
        // Index, age, locks, log: each policy wants another one.
        let all = [(7, 3, 900), (1, 9, 500), (3, 1, 700), (5, 4, 100)];
        let rank = |&(age, lock_count, weight): &(u64, u32, u64)| {
            victim.rank(Standing { age: Xid(age), lock_count, weight }, draw)
        };
        (0..all.len()).max_by_key(|&i| rank(&all[i])).expect("there are some")
    }

    #[test]
    fn each_policy_chooses_what_its_name_says() {
        assert_eq!(chosen(Victim::Youngest, 0), 0);
        assert_eq!(chosen(Victim::Oldest, 0), 1);
        assert_eq!(chosen(Victim::FewestLocks, 0), 2);
        assert_eq!(chosen(Victim::LeastLog, 0), 3);
    }

    #[test]
    fn a_random_victim_is_anybody_sooner_or_later() {
        let met = (0..200).map(|draw| chosen(Victim::Random, draw)).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(met.len(), 4);
    }
}
