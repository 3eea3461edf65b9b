//! A device that fails reads now and then, under scans that read ahead. Each call gives right records or says what
//! failed, and nothing hangs. When the device is well again, so is everything.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use common::levels::LEVELS;
use common::{assert_sound, key, large, within};
use ledgerstone::{EnvTable, Environment, Error, Range, Transaction, TransactionOptions};
use ledgerstone_disk::{Call, DiskErrorKind, Fault, FaultDisk, Harm, SimDisk};
use ledgerstone_region::Random;

const RECORDS: u64 = 3000;
const EIO: i32 = 5;

/// Records of all lengths: some have pages of their own.
fn value(n: u64) -> Vec<u8> {
    let bytes = match n % 50 {
        0 => 40_000,
        1..4 => 1500,
        _ => 100 + n as usize % 300,
    };
    large(n as u8, bytes)
}

fn options() -> ledgerstone::Options {
    Environment::options().cache_bytes(96 * 4096).page_count_max(1 << 14)
}

/// What a scan gives from this key on, upwards or downwards: all of it, or what comes before an error.
fn scan(range: Range, from: u64, is_upwards: bool) -> Result<(), Error> {
    let mut expected: Box<dyn Iterator<Item = u64>> =
        if is_upwards { Box::new(from..RECORDS) } else { Box::new((from..RECORDS).rev()) };
    let mut range = range;
    while let Some(record) = if is_upwards { range.next() } else { range.next_back() } {
        let (found, content) = record?;
        let n = expected.next().expect("a record too many");
        assert!(found == key(n), "{found:?} instead of {n}");
        assert!(content == value(n), "value of {n}");
    }
    assert_eq!(expected.next(), None, "the scan ends early, and says nothing");
    Ok(())
}

/// One call of some kind.
fn call(table: &EnvTable, txn: &Transaction, dice: &mut Random) -> Result<(), Error> {
    let n = dice.below(RECORDS);
    match dice.below(8) {
        0..3 => scan(table.range(txn, key(n)..)?, n, true),
        3 => scan(table.range(txn, key(n)..)?, n, false),
        4 => {
            let mut at = n;
            table.range(txn, key(n)..)?.for_each_ref(|found, content| {
                assert!(found == key(at) && content == value(at), "{found:?} instead of {at}");
                at += 1;
                true
            })?;
            assert_eq!(at, RECORDS, "the scan ends early, and says nothing");
            Ok(())
        }
        5 => {
            assert_eq!(table.count(txn)?, RECORDS);
            Ok(())
        }
        6 => {
            assert_eq!(table.value_len(txn, key(n))?, Some(value(n).len() as u64));
            Ok(())
        }
        _ => {
            assert_eq!(table.get(txn, key(n))?, Some(value(n)));
            Ok(())
        }
    }
}

/// The device's error, with the file in it.
fn is_told(error: &Error) -> bool {
    matches!(error, Error::Disk(_)) && error.to_string().contains("data")
}

fn round(env: &Environment, table: &EnvTable, dice: &mut Random, failed: &AtomicU64) {
    let isolation = Some(dice.pick(&LEVELS));
    let txn = env.begin_with(TransactionOptions { isolation, ..TransactionOptions::default() }).unwrap();
    for _ in 0..1 + dice.below(3) {
        if let Err(error) = call(table, &txn, dice) {
            assert!(is_told(&error), "{error:?}");
            failed.fetch_add(1, Relaxed);
        }
    }
}

#[test]
fn scans_over_a_device_that_fails_reads_are_right_or_say_so() {
    let rounds = std::env::var("LEDGERSTONE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(150_u64);
    within(60 + rounds, "scans", move || {
        let sim = SimDisk::new();
        let env = options().open_on(Arc::new(sim.clone())).unwrap();
        env.transact(|txn| {
            let table = txn.create_table("t")?;
            (0..RECORDS).try_for_each(|n| table.put(key(n), value(n)))
        })
        .unwrap();
        env.close().unwrap();

        let faulty = FaultDisk::new(Arc::new(sim.clone()));
        let env = options().open_on(Arc::new(faulty.clone())).unwrap();
        let table = env.table("t").unwrap();
        let failed = Arc::new(AtomicU64::new(0));
        let mut dice = Random::new(rounds);
        let mut hits = 0;
        for no in 0..rounds {
            for _ in 0..1 + dice.below(4) {
                let most = if dice.percent(50) { 8 } else { 200 };
                let nth = 1 + dice.below(most);
                let fault = Fault::at(Call::Read, nth, Harm::Fail(DiskErrorKind::Io(EIO))).on("data");
                faulty.add(if dice.percent(5) { fault.from_then_on() } else { fault });
            }
            if no % 4 == 0 {
                std::thread::scope(|scope| {
                    for _ in 0..3 {
                        let (env, table, failed, mut dice) = (&env, &table, &failed, dice.fork());
                        scope.spawn(move || round(env, table, &mut dice, failed));
                    }
                });
            } else {
                round(&env, &table, &mut dice, &failed);
            }
            faulty.behave();
            assert!(!env.is_failed(), "round {no}");
            // Whole again.
            let isolation = Some(dice.pick(&LEVELS));
            let txn = env.begin_with(TransactionOptions { isolation, ..TransactionOptions::default() }).unwrap();
            let n = dice.below(RECORDS);
            assert_eq!(table.get(&txn, key(n)).unwrap(), Some(value(n)));
            if no % 8 == 0 {
                scan(table.range(&txn, ..).unwrap(), 0, no % 16 == 0).unwrap();
            }
            hits = faulty.hits();
        }
        let failed = failed.load(Relaxed);
        assert!(failed > rounds / 8, "{failed} calls failed in {rounds} rounds: this proves little");
        assert!(
            hits > failed,
            "{hits} reads failed and {failed} calls: no error stayed with a thread that reads ahead"
        );
        // It takes changes, too.
        env.transact(|txn| table.put(txn, key(RECORDS), value(RECORDS))).unwrap();
        assert_eq!(table.count(&env.begin().unwrap()).unwrap(), RECORDS + 1);
        assert_sound(&env, "after errors");
        env.close().unwrap();
        println!("{rounds} rounds, {hits} reads failed, {failed} calls");
    });
}
