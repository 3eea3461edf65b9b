//! The bank before its first customer: every balance 0.

use ledgerstone::{Durability, Environment, Error};

use super::bank::{ACCOUNTS, BRANCHES, HISTORY, Key, Scale, TELLERS, record};

/// Rows of a transaction of the load.
const BATCH: u64 = 5_000;

/// Fills the tables in batches, then takes a checkpoint. `progress` is called with the rows done and to do. A load that
/// was killed can simply be run again: a bank that is not whole has no customers yet.
pub(crate) fn load(env: &Environment, scale: &Scale, progress: &mut dyn FnMut(u64, u64)) -> Result<(), Error> {
    let all = scale.account_count + scale.teller_count + scale.branch_count;
    let mut done = 0;
    env.transact(|txn| txn.bytes_or_create(HISTORY).map(|_| ()))?;
    for (name, count) in
        [(BRANCHES, scale.branch_count), (TELLERS, scale.teller_count), (ACCOUNTS, scale.account_count)]
    {
        let mut from = 0;
        while from < count {
            let to = (from + BATCH).min(count);
            let txn = env.begin()?;
            let table = txn.bytes_or_create(name)?;
            for number in from..to {
                let branch = match name {
                    TELLERS => scale.branch_of(number),
                    BRANCHES => number,
                    _ => number * scale.branch_count / scale.account_count,
                };
                table.put(Key::new(scale.key, number).bytes(), &record(number, branch))?;
            }
            let _ = txn.commit_with(Durability::Volatile)?; // The bank's own record, last and synced, stands for all.
            done += to - from;
            from = to;
            progress(done, all);
        }
    }
    env.checkpoint()?;
    scale.keep(env)
}
