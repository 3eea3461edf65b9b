//! The lock table equals a map from names to holders, under random scripts of several owners that never wait.

use std::collections::BTreeMap;
use std::sync::Arc;

use ledgerstone_lock::{LockConfig, LockError, LockManager, LockName, LockTable, Mode, OwnerNo, Wait};
use ledgerstone_page::{Lsn, TableId, Xid};
use ledgerstone_region::{Region, SlotTable};
use proptest::prelude::*;

const OWNERS: u32 = 4;

#[derive(Clone, Debug)]
enum Step {
    Lock(u32, usize, Mode),
    Instant(u32, usize, Mode),
    Downgrade(u32, usize, Mode),
    Unlock(u32, usize),
    UnlockAll(u32, bool),
}

/// Tables, keys, gaps and others; in the end ten tables, more than an owner has words for.
fn name(n: usize) -> LockName {
    let t = TableId(3);
    match n {
        0 => LockName::key(t, 1),
        1 => LockName::gap(t, 1),
        2 => LockName::other(t, 1),
        3 => LockName { space: 12, item: 1 },
        n => LockName::table(TableId(n as u64 - 1)),
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let mode = || prop::sample::select(Mode::ALL.to_vec());
    let name = || prop_oneof![3 => 0..6_usize, 1 => 6..14_usize];
    let step = prop_oneof![
        8 => (0..OWNERS, name(), mode()).prop_map(|(o, n, m)| Step::Lock(o, n, m)),
        4 => (0..OWNERS, 4..14_usize, prop::sample::select(vec![Mode::IS, Mode::IX]))
            .prop_map(|(o, n, m)| Step::Lock(o, n, m)),
        2 => (0..OWNERS, name(), mode()).prop_map(|(o, n, m)| Step::Instant(o, n, m)),
        2 => (0..OWNERS, name(), mode()).prop_map(|(o, n, m)| Step::Downgrade(o, n, m)),
        2 => (0..OWNERS, name()).prop_map(|(o, n)| Step::Unlock(o, n)),
        1 => (0..OWNERS, any::<bool>()).prop_map(|(o, c)| Step::UnlockAll(o, c)),
    ];
    prop::collection::vec(step, 1..120)
}

/// Who holds what, and the newest commit that gave up a lock in each mode on each name.
#[derive(Default)]
struct Model {
    held: BTreeMap<(LockName, u32), Mode>,
    left: BTreeMap<(LockName, u32), (Mode, Lsn)>,
}

impl Model {
    fn held(&self, owner: u32, name: LockName) -> Option<Mode> {
        self.held.get(&(name, owner)).copied()
    }

    fn of_any(&self, name: LockName) -> Option<Mode> {
        self.held.range((name, 0)..=(name, OWNERS)).map(|(_, &mode)| mode).reduce(Mode::supremum)
    }

    /// The newest commit whose writer would have stood in the way of this request, had it not ended.
    fn depends(&self, name: LockName, mode: Mode) -> Lsn {
        let left = self.left.range((name, 0)..=(name, u32::MAX)).map(|(_, left)| left);
        left.filter(|(held, _)| !mode.is_compatible_with(*held)).map(|&(_, lsn)| lsn).max().unwrap_or_default()
    }

    /// What the owner would hold, if nobody is in the way.
    fn ask(&self, owner: u32, name: LockName, mode: Mode) -> Option<Mode> {
        let held = self.held(owner, name);
        let wanted = held.map_or(mode, |held| held.supremum(mode));
        let mut others = self.held.range((name, 0)..=(name, OWNERS)).filter(|&(&(_, other), _)| other != owner);
        (held == Some(wanted) || others.all(|(_, &other)| wanted.is_compatible_with(other))).then_some(wanted)
    }
}

fn run(script: &[Step], buckets: u32, fast_intentions: bool) -> Result<(), TestCaseError> {
    let config = LockConfig { owners: OWNERS, locks_max: 256, buckets, fast_intentions, ..LockConfig::default() };
    let region = Region::anonymous(config.region_bytes() + (1 << 16)).expect("address space");
    let slots = Arc::new(SlotTable::place(&region, 4).expect("address space"));
    let locks = LockTable::place(&region, &slots, config).expect("region_bytes is enough");
    let mut model = Model::default();
    (0..OWNERS).for_each(|owner| locks.begin(OwnerNo(owner), Xid(0)));
    for (i, step) in script.iter().enumerate() {
        match *step {
            Step::Lock(owner, n, mode) => {
                let (name, previous) = (name(n), model.held(owner, name(n)));
                match (locks.lock(OwnerNo(owner), name, mode, Wait::Try), model.ask(owner, name, mode)) {
                    (Ok(grant), Some(wanted)) => {
                        prop_assert_eq!((grant.newly, grant.previous), (previous.is_none(), previous));
                        prop_assert!(grant.depends >= model.depends(name, mode));
                        model.held.insert((name, owner), wanted);
                    }
                    (Err(LockError::WouldBlock), None) => {}
                    other => prop_assert!(false, "step {i} {step:?}: {other:?}"),
                }
            }
            Step::Instant(owner, n, mode) => {
                let result = locks.lock_instant(OwnerNo(owner), name(n), mode, Wait::Try);
                match (result, model.ask(owner, name(n), mode)) {
                    (Ok(depends), Some(_)) => {
                        prop_assert!(depends >= model.depends(name(n), mode));
                    }
                    (Err(LockError::WouldBlock), None) => {}
                    other => prop_assert!(false, "step {i} {step:?}: {other:?}"),
                }
            }
            Step::Downgrade(owner, n, to) => {
                let held = model.held(owner, name(n));
                let expected = held.map(|held| if held.covers(to) { to } else { held });
                prop_assert_eq!(locks.downgrade(OwnerNo(owner), name(n), to), expected, "step {} {:?}", i, step);
                if let Some(mode) = expected {
                    model.held.insert((name(n), owner), mode);
                }
            }
            Step::Unlock(owner, n) => {
                let expected = model.held.remove(&(name(n), owner));
                prop_assert_eq!(locks.unlock(OwnerNo(owner), name(n)), expected, "step {} {:?}", i, step);
            }
            Step::UnlockAll(owner, commits) => {
                let lsn = Lsn(1 + i as u64);
                locks.unlock_all(OwnerNo(owner), commits.then_some(lsn));
                let gone = model.held.iter().filter(|((_, o), _)| *o == owner).map(|(&k, &m)| (k, m));
                for (place, mode) in gone.collect::<Vec<_>>() {
                    model.held.remove(&place);
                    if commits && mode.may_write() {
                        model.left.insert((place.0, mode as u32), (mode, lsn));
                    }
                }
                locks.begin(OwnerNo(owner), Xid(lsn.0));
            }
        }
        for n in 0..14 {
            prop_assert_eq!(locks.held_by_any(name(n)), model.of_any(name(n)), "step {} {:?}, name {}", i, step, n);
            let intends = name(n).is_table(); // Whoever intends to write leaves nothing for those who intend to read.
            prop_assert!(intends || locks.depends(name(n)) >= model.depends(name(n), Mode::S), "step {i} {step:?}");
        }
    }
    for owner in 0..OWNERS {
        let mut held = BTreeMap::new();
        locks.for_each_held(OwnerNo(owner), &mut |name, mode| {
            assert!(held.insert((name, owner), mode).is_none(), "{name} twice");
        });
        for n in 0..14 {
            prop_assert_eq!(locks.held(OwnerNo(owner), name(n)), model.held(owner, name(n)));
        }
        let expected = model.held.iter().filter(|((_, o), _)| *o == owner).map(|(&k, &m)| (k, m)).collect();
        prop_assert_eq!(held, expected);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(192) })]

    #[test]
    fn the_table_equals_a_map_of_holders(script in steps(), buckets in prop::sample::select(vec![1_u32, 2, 64])) {
        run(&script, buckets, true)?;
    }

    #[test]
    fn the_table_equals_a_map_of_holders_without_fast_intentions(script in steps()) {
        run(&script, 4, false)?;
    }
}
