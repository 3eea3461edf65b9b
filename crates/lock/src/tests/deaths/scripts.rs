//! What a process does until it dies: each kind of call, in a small script.

use ledgerstone_page::{TableId, Xid};
use ledgerstone_region::sync;

use super::{Here, VICTIM, VICTIMS_OTHER};
use crate::flags::Flag;
use crate::tests::{key, patient, table_name};
use crate::{LockManager, LockName, Mode, OwnerNo};

/// What process 1 does.
pub(super) type Script = fn(&Here);

/// Locks `names`, in X for keys and IX for tables; a deadlock ends it.
fn lock_some(here: &Here, owner: OwnerNo, names: &[LockName], mode: Mode) -> bool {
    let table_mode = if mode == Mode::S { Mode::IS } else { Mode::IX };
    names.iter().all(|&name| {
        let mode = if name.is_table() { table_mode } else { mode };
        here.lock(owner, name, mode, patient()).is_ok()
    })
}

pub(super) const SCRIPTS: &[(&str, Script)] = &[
    ("lock and unlock", |here| {
        here.table.begin(VICTIM, Xid(1));
        lock_some(here, VICTIM, &[table_name(7), key(0), key(1)], Mode::X);
        here.unlock_all(VICTIM);
    }),
    ("wait", |here| {
        here.table.begin(VICTIM, Xid(9_000));
        for n in 0..3 {
            lock_some(here, VICTIM, &[key(n)], Mode::X);
        }
        here.unlock_all(VICTIM);
    }),
    ("upgrade", |here| {
        here.table.begin(VICTIM, Xid(1));
        if lock_some(here, VICTIM, &[key(0)], Mode::S) {
            lock_some(here, VICTIM, &[key(0)], Mode::X);
        }
        here.unlock_all(VICTIM);
    }),
    ("range", |here| {
        here.table.begin(VICTIM, Xid(1));
        let gap = |n| LockName::gap(TableId(7), n);
        lock_some(here, VICTIM, &[table_name(7), gap(0), key(0), gap(1), key(1), gap(2)], Mode::S);
        here.unlock_all(VICTIM);
    }),
    ("escalate", |here| {
        here.table.begin(VICTIM, Xid(1));
        if lock_some(here, VICTIM, &[table_name(7), key(0), key(1), key(9)], Mode::X)
            && here.lock(VICTIM, table_name(7), Mode::X, patient()).is_ok()
        {
            for n in [0, 1, 9] {
                here.leave(VICTIM, Some(key(n)));
            }
            here.table.unlock_keys(VICTIM, TableId(7));
        }
        here.unlock_all(VICTIM);
    }),
    ("strong beside weak", |here| {
        for n in 0..3 {
            here.table.begin(VICTIM, Xid(1 + n));
            let _ = here.lock(VICTIM, table_name(7), [Mode::S, Mode::IX][n as usize % 2], patient());
            here.unlock_all(VICTIM);
        }
    }),
    ("weak beside strong", |here| {
        for n in 0..8 {
            here.table.begin(VICTIM, Xid(1 + n));
            let _ = here.lock(VICTIM, table_name(7), Mode::IX, patient());
            here.unlock_all(VICTIM);
        }
    }),
    ("unlock some", |here| {
        here.table.begin(VICTIM, Xid(1));
        if lock_some(here, VICTIM, &[table_name(7), key(0), key(1)], Mode::X) {
            here.leave(VICTIM, Some(key(0)));
            here.table.unlock(VICTIM, key(0));
            here.enter(VICTIM, key(1), Mode::S);
            here.table.downgrade(VICTIM, key(1), Mode::S);
            here.enter(VICTIM, table_name(7), Mode::IS);
            here.table.downgrade(VICTIM, table_name(7), Mode::IS);
            here.leave(VICTIM, Some(table_name(7)));
            here.table.unlock(VICTIM, table_name(7));
        }
        let _ = here.table.lock_instant(VICTIM, key(2), Mode::X, patient());
        let _ = here.table.lock_instant(VICTIM, table_name(7), Mode::X, patient());
        here.unlock_all(VICTIM);
    }),
    ("many", |here| {
        here.table.begin(VICTIM, Xid(1));
        for n in 0..40 {
            lock_some(here, VICTIM, &[key(100 + n)], Mode::X);
        }
        here.unlock_all(VICTIM);
    }),
    ("deadlock", |here| {
        here.table.begin(VICTIM, Xid(2));
        let other = here.world.start(1, "the other", |here| {
            here.table.begin(VICTIMS_OTHER, Xid(3));
            lock_some(here, VICTIMS_OTHER, &[key(11), key(10)], Mode::X);
            here.unlock_all(VICTIMS_OTHER);
        });
        lock_some(here, VICTIM, &[key(10), key(11), key(0)], Mode::X);
        here.unlock_all(VICTIM);
        other.join().expect("no panic");
    }),
    ("held up", |here| {
        here.table.begin(VICTIM, Xid(2));
        lock_some(here, VICTIM, &[key(0)], Mode::X);
        here.table.begin(VICTIMS_OTHER, Xid(3));
        here.table.hold_up(VICTIM, VICTIMS_OTHER);
        lock_some(here, VICTIMS_OTHER, &[key(1)], Mode::X);
        here.table.let_go(VICTIM, VICTIMS_OTHER);
        here.unlock_all(VICTIMS_OTHER);
        here.unlock_all(VICTIM);
    }),
    ("cancel and look around", |here| {
        here.table.begin(VICTIM, Xid(1));
        lock_some(here, VICTIM, &[key(0), key(1), key(2)], Mode::X);
        let mut looks_left = 50;
        while here.table.raised_count(Flag::Sleeps) == 0 && looks_left > 0 {
            looks_left -= 1;
            sync::sleep_ns(5_000);
        }
        here.table.cancel_all_waits();
        here.table.allow_waits();
        here.table.detect();
        let _ = (here.table.waits(), here.table.held_by_any(key(0)), here.table.depends(key(1)));
        let _ = here.table.awaits_end(VICTIM, VICTIMS_OTHER);
        here.unlock_all(VICTIM);
    }),
];
