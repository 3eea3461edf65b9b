//! Transactions in doubt after a restart: the right ones, with their locks, and then decided.
//!
//! The client that prepared a transaction has written down what its coordinator wants ([`TwoPhase`]), as a coordinator
//! does before it tells anybody. A restart finds the transactions in doubt. Every answer that the crash cut short is
//! compared with them (J8 in `judge.rs`). Then the decision is carried out, again if need be.

use std::time::Duration;

use ledgerstone::{Environment, Error, InDoubt, TransactionOptions};

use super::judge::{Outcome, Record, TwoPhase};
use super::plan::JOURNAL;
use crate::counters::Counters;

/// How far the settlement came.
#[derive(Debug)]
pub enum Settled {
    /// Nothing is in doubt.
    All,
    /// The power failed on the way.
    PowerLost,
    /// Damage was found on the way, where the disk has lied.
    Damaged(Error),
}

/// Decides all that is in doubt, and writes the outcomes down. `is_strict`: nothing may be missing, as after a loss of
/// power; otherwise the disk has lied, and transactions may be gone that were prepared or decided.
///
/// # Errors
/// What is in doubt and must not be, or is not and should.
pub fn settle(
    env: &Environment,
    records: &mut [Record],
    is_strict: bool,
    is_down: impl Fn() -> bool,
    counters: &mut Counters,
) -> Result<Settled, Vec<String>> {
    for found in env.in_doubt() {
        counters.add("in_doubt", 1);
        let name = String::from_utf8_lossy(&found.global_id).into_owned();
        let wrong = |what: &str| Err(vec![format!("J8: {name} is in doubt, and {what}")]);
        let of = |record: &&mut Record| record.two_phase.as_ref().is_some_and(|two| two.global_id == found.global_id);
        let Some(record) = records.iter_mut().find(of) else { return wrong("nobody has prepared it") };
        match record.outcome {
            Outcome::Preparing | Outcome::InDoubt | Outcome::Deciding => {}
            outcome if is_strict => return wrong(&format!("its client was told {outcome:?}")),
            _ => {}
        }
        if !is_locked(env, record)? && !is_down() {
            return wrong("its locks are not held");
        }
        match decide(env, record, &found) {
            Ok(()) => counters.add("settled", 1),
            Err(_) if is_down() => return Ok(Settled::PowerLost),
            Err(error @ Error::Corrupt { .. }) if !is_strict => return Ok(Settled::Damaged(error)),
            Err(error) => return Err(vec![format!("deciding {name}: {error} ({error:?})")]),
        }
    }
    for record in records.iter_mut() {
        match record.outcome {
            Outcome::Preparing => record.outcome = Outcome::Ended,
            Outcome::InDoubt if is_strict => {
                let name = record.two_phase.as_ref().map(|two| String::from_utf8_lossy(&two.global_id).into_owned());
                return Err(vec![format!("J8: {} was prepared, and is not in doubt", name.unwrap_or_default())]);
            }
            Outcome::InDoubt => record.outcome = Outcome::Ended,
            Outcome::Deciding if !is_strict => record.outcome = Outcome::Unknown,
            _ => {}
        }
    }
    Ok(Settled::All)
}

fn decide(env: &Environment, record: &mut Record, found: &InDoubt) -> Result<(), Error> {
    let Some(TwoPhase { commits, prepared_lsn, .. }) = &mut record.two_phase else { return Ok(()) };
    *prepared_lsn = found.prepared_lsn.0;
    record.outcome = Outcome::Deciding;
    record.outcome = if *commits {
        Outcome::Settled { lsn: env.commit_in_doubt(&found.global_id)?.lsn.0 }
    } else {
        env.abort_in_doubt(&found.global_id)?;
        Outcome::Ended
    };
    Ok(())
}

/// Whether the mark that the transaction has written is locked. One that wrote nothing holds nothing.
fn is_locked(env: &Environment, record: &Record) -> Result<bool, Vec<String>> {
    let Some(mark) = &record.mark else { return Ok(true) };
    let options = TransactionOptions { lock_timeout: Some(Duration::ZERO), ..TransactionOptions::default() };
    let look = || env.begin_with(options)?.bytes(JOURNAL)?.get(mark);
    match look() {
        Err(Error::LockTimeout { .. } | Error::LockRefused { .. }) => Ok(true),
        Err(Error::Failed { .. }) | Ok(_) | Err(Error::NoSuchTable(_)) => Ok(false),
        Err(error) => Err(vec![format!("looking at the lock of a transaction in doubt: {error} ({error:?})")]),
    }
}
