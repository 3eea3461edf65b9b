//! A program that takes the library as it comes, for `scripts/features.sh`. Built with the feature `json` it makes an
//! index by a member of JSON values and a named feed. Built without it, it must be told what it lacks; built with no
//! feature, that there is no archive either. Whatever it was built with, the log is kept for the feed: asked to `read`,
//! it finds what the others have committed.

use std::path::Path;

use ledgerstone::{Environment, Error, IndexDef, IndexKeys};

/// Transactions that fill the log, of 4 KiB each.
const FILLED: u32 = 1_000;

fn main() -> Result<(), Error> {
    let dir = std::env::args_os().nth(1).expect("a directory");
    let dir = Path::new(&dir);
    let env = Environment::options().cache_bytes(16 << 20).log_segment_bytes(1 << 20).open(dir)?;
    #[cfg(feature = "as-it-comes")]
    if std::env::args().nth(2).is_some_and(|step| step == "read") {
        let (mut feed, mut count) = (env.named_changes("reader")?, 0);
        while let Some(transaction) = feed.next()? {
            count += transaction.changes().count();
        }
        assert!(count > FILLED as usize, "{count} changes");
        drop(feed);
        return env.close();
    }
    let by_city = |name: &str| IndexDef::new(name, IndexKeys::Json("city".into()));
    if cfg!(feature = "json") {
        env.transact(|txn| {
            txn.create_table("people")?;
            txn.create_index("people", &by_city("by_city"))?;
            txn.create_table("filled")?;
            txn.bytes("people")?.put(b"1", br#"{"city":"Bern"}"#)
        })?;
        #[cfg(feature = "as-it-comes")]
        drop(env.named_changes("reader")?);
        return env.close();
    }

    let lacks = |refused: Result<(), Error>, lacking: &str| match refused {
        Err(Error::NotBuilt { feature, .. }) => assert_eq!(feature, lacking),
        other => panic!("{lacking}: {other:?}"),
    };
    // What the other program made is read, and kept from getting wrong.
    env.transact(|txn| {
        let people = txn.bytes("people")?;
        let found = people.index("by_city")?.lookup(b"Bern")?.collect::<Result<Vec<_>, Error>>()?;
        assert_eq!(found, [(b"Bern".to_vec(), b"1".to_vec())]);
        assert_eq!(people.get(b"1")?.as_deref(), Some(&br#"{"city":"Bern"}"#[..]));
        Ok(())
    })?;
    lacks(env.transact(|txn| txn.bytes("people")?.put(b"2", b"{}")), "json");
    lacks(env.transact(|txn| txn.bytes("people")?.delete(b"1").map(drop)), "json");
    lacks(env.transact(|txn| txn.create_index("people", &by_city("again"))), "json");
    env.transact(|txn| txn.drop_index("people", "by_city"))?;
    env.transact(|txn| txn.bytes("people")?.put(b"2", b"{}"))?;
    assert!(env.verify()?.problems.is_empty());
    // Several segments of log, which checkpoints give up if nobody keeps them.
    for n in 0..FILLED {
        env.transact(|txn| txn.bytes("filled")?.put(n.to_be_bytes(), [7; 4096]))?;
    }
    for _ in 0..3 {
        env.checkpoint()?;
    }
    assert!(env.stat()?.log_pins.iter().any(|pin| pin.name.contains("feed reader")), "who keeps the log");
    env.close()?;

    if !cfg!(feature = "as-it-comes") {
        let archive = dir.with_extension("archive");
        lacks(Environment::options().archive_dir(archive).open(dir).map(drop), "media");
    }

    // A file that cannot be read is not passed over.
    std::fs::write(dir.join("ledgerstone.toml"), "cache_bytes = \"16M\"\n").expect("the file is written");
    lacks(Environment::options().open(dir).map(drop), "settings-file");
    Ok(())
}
