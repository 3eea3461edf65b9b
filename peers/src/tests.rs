//! Each peer behaves as `peer.rs` says. Times are not asserted.

use crate::measure;
use crate::peer::{Durability, Entry, Failure, Kind, PEERS, Peer, RECORDS, Settings, Txn};

fn settings(dir: &std::path::Path) -> Settings<'_> {
    Settings { cache_bytes: 64 << 20, file_bytes_max: 1 << 30, ..Settings::roomy(dir) }
}

fn record(number: i64) -> Vec<u8> {
    [&number.to_le_bytes()[..], b"the rest"].concat()
}

/// What a transaction sees: each record's key and number.
fn all(txn: &mut dyn Txn) -> Result<Vec<(u64, i64)>, Failure> {
    let mut seen = Vec::new();
    txn.scan(RECORDS, 0, u64::MAX, &mut |key, value| {
        let (number, rest) = value.split_first_chunk::<8>().expect("a record has a number");
        assert_eq!(rest, b"the rest");
        seen.push((key, i64::from_le_bytes(*number)));
        true
    })?;
    Ok(seen)
}

fn seen(peer: &dyn Peer, kind: Kind) -> Vec<(u64, i64)> {
    let mut found = Vec::new();
    peer.worker(Durability::None)
        .unwrap()
        .run(kind, &mut |txn| {
            found = all(txn)?;
            Ok(())
        })
        .unwrap();
    found
}

fn conforms(entry: &Entry) {
    let dir = tempfile::tempdir().unwrap();
    let peer = entry.open(settings(dir.path())).unwrap();
    let mut worker = peer.worker(Durability::Sync).unwrap();
    let mut value = Vec::new();

    // Put, append, get and add within one transaction, which sees itself.
    worker
        .run(Kind::Write, &mut |txn| {
            for key in [257, 1, 256, 2] {
                txn.put(RECORDS, key, &record(key as i64))?;
            }
            txn.append(RECORDS, 1 << 60, &record(-5))?;
            assert!(txn.get(RECORDS, 256, &mut value)?);
            assert_eq!(value, record(256));
            assert!(!txn.get(RECORDS, 258, &mut value)?);
            assert!(txn.add(RECORDS, 1, -11)?);
            assert!(!txn.add(RECORDS, 9, 1)?);
            txn.put(RECORDS, 2, &record(20))
        })
        .unwrap();
    let expected = vec![(1, -10), (2, 20), (256, 256), (257, 257), (1 << 60, -5)];
    assert_eq!(seen(&*peer, Kind::Read), expected, "in the order of the numbers");
    assert_eq!(seen(&*peer, Kind::Snapshot), expected);

    // Part of a scan, and one that the visitor ends.
    let mut keys = Vec::new();
    worker
        .run(Kind::Read, &mut |txn| {
            keys.clear();
            let mut take = |key, _: &[u8]| {
                keys.push(key);
                true
            };
            txn.scan(RECORDS, 2, 2, &mut take)?;
            txn.scan(RECORDS, 0, 1, &mut |key, _| {
                assert_eq!(key, 1);
                false
            })
        })
        .unwrap();
    assert_eq!(keys, [2, 256]);
    worker.run(Kind::One, &mut |txn| txn.get(RECORDS, 1, &mut value).map(|found| assert!(found))).unwrap();
    assert_eq!(value, record(-10));

    // What fails is rolled back.
    let failed = worker.run(Kind::Write, &mut |txn| {
        txn.put(RECORDS, 3, &record(3))?;
        txn.add(RECORDS, 1, 100)?;
        txn.put(RECORDS, 2, &record(9))?;
        Err(Failure::Other(anyhow::anyhow!("on purpose")))
    });
    assert_eq!(failed.unwrap_err().to_string(), "on purpose");
    assert_eq!(seen(&*peer, Kind::Read), expected);

    // Threads that change one record lose no change, with and without sync.
    drop(worker);
    std::thread::scope(|scope| {
        for no in 0..4_u64 {
            let peer = &*peer;
            scope.spawn(move || {
                let durability = if no % 2 == 0 { Durability::None } else { Durability::Sync };
                // LMDB has one durability for the environment: the last worker's.
                let mut worker = peer.worker(durability).unwrap();
                for _ in 0..25 {
                    worker.run(Kind::Write, &mut |txn| txn.add(RECORDS, 2, 1).map(drop)).unwrap();
                }
            });
        }
    });
    let expected = vec![(1, -10), (2, 120), (256, 256), (257, 257), (1 << 60, -5)];
    assert_eq!(seen(&*peer, Kind::Read), expected);

    peer.checkpoint().unwrap();
    peer.close().unwrap();
    let peer = entry.open(settings(dir.path())).unwrap();
    assert_eq!(seen(&*peer, Kind::Read), expected, "after it was closed and opened again");
    peer.close().unwrap();
}

#[test]
fn each_peer_puts_gets_scans_rolls_back_commits_and_opens_again() {
    for entry in &PEERS {
        if entry.name == "postgres" && entry.version() == "not installed" {
            println!("skipped: PostgreSQL is not installed");
            continue;
        }
        println!("{}: {}", entry.title, entry.version());
        conforms(entry);
    }
}

#[test]
fn what_others_use_is_not_ours() {
    let before = measure::Moment::now(&[]);
    let mut figure = measure::Figure::plain("a case", 1.0, "1/s", true);
    let mut random = measure::Random::new(1);
    while before.seconds() < 0.2 {
        std::hint::black_box(random.next());
    }
    before.tell(&[], 1, &mut figure);
    assert!(figure.cpu_us > 0.0, "{figure:?}");
    assert!(figure.foreign <= std::thread::available_parallelism().unwrap().get() as f64, "{figure:?}");
}
