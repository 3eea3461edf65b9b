//! A program that takes the library as it comes, for `scripts/features.sh`. Built with the feature `json` it makes an
//! index by a member of JSON values. Built without it, it must be told what it lacks; built with no feature, that there
//! is no archive either.

use std::path::Path;

use ledgerstone::{Environment, Error, IndexDef, IndexKeys};

fn main() -> Result<(), Error> {
    let dir = std::env::args_os().nth(1).expect("a directory");
    let dir = Path::new(&dir);
    let env = Environment::options().cache_bytes(16 << 20).open(dir)?;
    let by_city = |name: &str| IndexDef::new(name, IndexKeys::Json("city".into()));
    if cfg!(feature = "json") {
        env.transact(|txn| {
            txn.create_table("people")?;
            txn.create_index("people", &by_city("by_city"))?;
            txn.bytes("people")?.put(b"1", br#"{"city":"Bern"}"#)
        })?;
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
