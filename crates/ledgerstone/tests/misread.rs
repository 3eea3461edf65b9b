//! A device that reads one bit wrong, once, while an environment is opened after a crash: what was committed is there,
//! or the opening says that it failed. Then nothing is lost, and the next opening has it all.

mod common;

use std::sync::Arc;

use common::*;
use ledgerstone_disk::{Call, Fault, FaultDisk, Harm, SimDisk};
use ledgerstone_region::Random;

/// Commits, each durable, a checkpoint in between, and a process that is killed.
fn killed() -> (SimDisk, State) {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    env.transact(|txn| txn.bytes_or_create("t").map(drop)).unwrap();
    for round in 0..12 {
        env.transact(|txn| {
            let table = txn.bytes("t")?;
            (0..10).try_for_each(|n| table.put(&key(n * 7 % (round + 3)), &[round as u8; 200]).map(drop))
        })
        .unwrap();
        if round == 4 {
            env.checkpoint().unwrap();
        }
    }
    let state = read(&env).unwrap();
    let left = disk.after_kill();
    drop(env);
    (left, state)
}

#[test]
fn a_read_gone_wrong_at_an_opening_loses_nothing() {
    let (left, state) = killed();
    let mut random = Random::new(5);
    let (mut told, mut harmless) = (0, 0);
    // Many bits of the log, where nothing behind its last records says that they are there.
    for (path, bits) in [("log/", 100), ("", 8)] {
        for nth in 1.. {
            let mut was_hit = false;
            for _ in 0..bits {
                let disk = left.snapshot();
                let faulty = FaultDisk::new(Arc::new(disk.clone()));
                faulty.add(Fault::at(Call::Read, nth, Harm::FlipBit(random.number())).on(path));
                let opened = tiny().open_on(Arc::new(faulty.clone()));
                was_hit |= faulty.hits() > 0;
                match opened {
                    Ok(env) => {
                        faulty.behave();
                        assert!(read(&env).unwrap() == state, "read {nth} of {path}: records are lost without a word");
                        // Writes the block of the log's end.
                        env.checkpoint().unwrap();
                        harmless += 1;
                    }
                    Err(_) => told += 1,
                }
                let again = open(&disk.after_kill());
                let env = again.unwrap_or_else(|error| panic!("read {nth} of {path}, opened again: {error}"));
                assert!(read(&env).unwrap() == state, "read {nth} of {path}, opened again: records are lost");
            }
            if !was_hit {
                break;
            }
        }
    }
    assert!(harmless > 100, "{told} {harmless}");
}
