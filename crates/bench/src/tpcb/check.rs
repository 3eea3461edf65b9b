//! Whether the bank's books agree: each balance is the sum of the history rows that name it, and so accounts, tellers,
//! branches and history have one total. Any transaction that is there in part, twice, or not at all where a later one
//! is built on it, shows.

use ledgerstone::{BytesTable, Environment, Error};
use serde::Serialize;

use super::bank::{ACCOUNTS, BRANCHES, HISTORY, Key, Scale, TELLERS, Transfer, balance};

/// Four sums that must be one, and how many balances are not what the history says.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CheckReport {
    /// Sum of all accounts.
    pub accounts: i64,
    /// Sum of all tellers.
    pub tellers: i64,
    /// Sum of all branches.
    pub branches: i64,
    /// Sum of the history.
    pub history: i64,
    /// Rows of the history: transactions that have been committed.
    pub history_count: u64,
    /// Accounts, tellers and branches whose balance is not the sum of their history.
    pub wrong_balance_count: u64,
    /// Records that are missing, too many, or unreadable.
    pub wrong_record_count: u64,
}

impl CheckReport {
    /// True if everything agrees.
    #[must_use]
    pub fn is_good(&self) -> bool {
        let sums = [self.tellers, self.branches, self.history];
        sums.iter().all(|&sum| sum == self.accounts) && self.wrong_balance_count == 0 && self.wrong_record_count == 0
    }
}

impl std::fmt::Display for CheckReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let CheckReport { accounts, tellers, branches, history, history_count, .. } = self;
        if self.is_good() {
            return write!(
                f,
                "balances agree: accounts, tellers, branches and {history_count} history rows sum to {accounts}"
            );
        }
        write!(
            f,
            "balances DISAGREE: accounts {accounts}, tellers {tellers}, branches {branches}, history {history} \
             ({history_count} rows); {} wrong balances, {} wrong records",
            self.wrong_balance_count, self.wrong_record_count
        )
    }
}

/// Reads the whole bank in one transaction and compares.
///
/// # Errors
/// The environment's.
pub fn check(env: &Environment, scale: &Scale) -> Result<CheckReport, Error> {
    let mut report = CheckReport::default();
    let zeros = |count: u64| vec![0_i64; usize::try_from(count).unwrap_or(0)];
    let (mut accounts, mut tellers, mut branches) =
        (zeros(scale.account_count), zeros(scale.teller_count), zeros(scale.branch_count));
    let txn = env.begin()?;
    txn.bytes(HISTORY)?.range(..)?.for_each_ref(|_, row| {
        report.history_count += 1;
        let Some(row) = Transfer::decode(row) else {
            report.wrong_record_count += 1;
            return true;
        };
        report.history = report.history.wrapping_add(row.delta);
        for (sums, number) in [(&mut accounts, row.account), (&mut tellers, row.teller), (&mut branches, row.branch)] {
            match usize::try_from(number).ok().and_then(|at| sums.get_mut(at)) {
                Some(sum) => *sum = sum.wrapping_add(row.delta),
                None => report.wrong_record_count += 1,
            }
        }
        true
    })?;
    report.accounts = compare(&txn.bytes(ACCOUNTS)?, &accounts, &mut report)?;
    report.tellers = compare(&txn.bytes(TELLERS)?, &tellers, &mut report)?;
    report.branches = compare(&txn.bytes(BRANCHES)?, &branches, &mut report)?;
    txn.abort()?;
    Ok(report)
}

/// The sum of a table's balances, after holding each against what the history says of it.
fn compare(table: &BytesTable, expected: &[i64], report: &mut CheckReport) -> Result<i64, Error> {
    let (mut sum, mut seen) = (0_i64, 0);
    table.range(..)?.for_each_ref(|key, record| {
        seen += 1;
        let expected = Key::number(key).and_then(|number| expected.get(usize::try_from(number).ok()?));
        match (expected, balance(record)) {
            (Some(&expected), Some(balance)) => {
                sum = sum.wrapping_add(balance);
                report.wrong_balance_count += u64::from(balance != expected);
            }
            _ => report.wrong_record_count += 1,
        }
        true
    })?;
    report.wrong_record_count += (expected.len() as u64).abs_diff(seen);
    Ok(sum)
}
