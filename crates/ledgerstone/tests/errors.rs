//! What errors say to a program, and how large they are.

use std::error::Error as _;
use std::io;

use ledgerstone::typed::Key;
use ledgerstone::{Environment, Error, IndexDef, IndexKeys, TableDef, Transaction, TransactionOptions};
use ledgerstone_disk::{DiskError, DiskErrorKind};
use tempfile::TempDir;

fn environment() -> (TempDir, Environment) {
    let dir = tempfile::tempdir().unwrap();
    let env = Environment::options().cache_bytes(8 << 20).open(dir.path()).unwrap();
    (dir, env)
}

#[test]
fn an_error_is_small_enough_to_be_returned() {
    assert!(size_of::<Error>() <= 64, "{} bytes", size_of::<Error>());
}

#[test]
fn a_key_that_exists_is_named_with_its_table() {
    let (_dir, env) = environment();
    env.transact(|txn| {
        let stock = txn.bytes_or_create("stock")?;
        stock.insert_new(b"apple\n", b"1")?;
        let error = stock.insert_new(b"apple\n", b"2").unwrap_err();
        assert_eq!(error.to_string(), r#"table "stock" has the key "apple\n" already"#);
        assert!(
            matches!(&error, Error::KeyExists { table, key } if table == "stock" && key == r#""apple\n""#),
            "{error:?}"
        );
        Ok(())
    })
    .unwrap();
}

/// What `insert_new` says of a key that is there.
fn taken<K: Key + Clone>(env: &Environment, table: &str, key: K) -> String {
    let table = TableDef::<K, u8>::new(table);
    env.transact(|txn| txn.open(table)?.put(key.clone(), 1)).unwrap();
    env.transact(|txn| txn.open(table)?.insert_new(key.clone(), 2)).unwrap_err().to_string()
}

#[test]
fn keys_are_text_or_numbers_or_digits_by_their_types() {
    let (_dir, env) = environment();
    assert_eq!(taken(&env, "texts", "Äpfel".to_string()), r#"table "texts" has the key "Äpfel" already"#);
    assert_eq!(taken(&env, "numbers", 7_u64), r#"table "numbers" has the key 7 already"#);
    assert_eq!(taken(&env, "pairs", ("bolt".to_string(), -8_i32)), r#"table "pairs" has the key ("bolt", -8) already"#);
    assert_eq!(taken(&env, "ids", [0_u8, 0xff]), r#"table "ids" has the key 0x00ff already"#);
    env.transact(|txn| {
        let bytes = txn.bytes_or_create("bytes")?;
        bytes.put(7_u32.to_be_bytes(), b"1")?;
        let error = bytes.insert_new(7_u32.to_be_bytes(), b"2").unwrap_err();
        assert_eq!(error.to_string(), r#"table "bytes" has the key 0x00000007 already"#);
        Ok(())
    })
    .unwrap();
}

#[test]
fn the_key_of_a_unique_index_is_as_readable() {
    let (_dir, env) = environment();
    env.transact(|txn| {
        txn.create_table("people")?;
        txn.create_index("people", &IndexDef::new("by_name", IndexKeys::Value).unique())?;
        txn.bytes("people")?.put(b"1", "Zoë")
    })
    .unwrap();
    let error = env.transact(|txn| txn.bytes("people")?.put(b"2", "Zoë")).unwrap_err();
    assert!(error.to_string().contains(r#"index "by_name" of table "people" has the key "Zoë" already"#), "{error}");
}

/// What a transaction is told that wants a record, or the place of one, and does not wait for it.
fn refused(env: &Environment, want: impl Fn(&Transaction) -> Result<(), Error>) -> String {
    let lock_timeout = Some(std::time::Duration::from_millis(1));
    let waiter = env.begin_with(TransactionOptions { lock_timeout, ..Default::default() }).unwrap();
    let error = want(&waiter).unwrap_err();
    assert!(matches!(error, Error::LockTimeout { .. }), "{error:?}");
    error.to_string()
}

#[test]
fn the_key_that_is_locked_is_named() {
    const TEXTS: TableDef<String, u8> = TableDef::new("texts");
    const PAIRS: TableDef<(u32, String), u8> = TableDef::new("pairs");
    let (_dir, env) = environment();
    env.transact(|txn| {
        txn.bytes_or_create("bytes")?.put([0, 7], b"1")?;
        txn.open(TEXTS)?.put("apple", 1)?;
        txn.open(PAIRS)?.put((7, "bolt"), 1)?;
        txn.create_index("bytes", &IndexDef::new("by_value", IndexKeys::Value))
    })
    .unwrap();
    let holder = env.begin().unwrap();
    holder.bytes("bytes").unwrap().put([0, 7], b"2").unwrap();
    holder.open(TEXTS).unwrap().put("apple", 2).unwrap();
    holder.open(PAIRS).unwrap().put((7, "bolt"), 2).unwrap();
    let by = format!(", blocked by {}", holder.xid());
    let check = |told: String, lock: &str| assert!(told.ends_with(&format!(" on {lock}{by}")), "{told}");
    check(refused(&env, |txn| txn.bytes("bytes")?.put([0, 7], b"3")), r#"key 0x0007 of table "bytes""#);
    check(refused(&env, |txn| txn.open(TEXTS)?.get("apple").map(drop)), r#"key "apple" of table "texts""#);
    check(
        refused(&env, |txn| txn.open(PAIRS)?.range(..)?.try_for_each(|it| it.map(drop))),
        r#"key (7, "bolt") of table "pairs""#,
    );
    let entries =
        |txn: &Transaction| txn.bytes("bytes")?.index("by_value")?.lookup(b"1")?.try_for_each(|it| it.map(drop));
    check(refused(&env, entries), r#"key "1" of index "by_value" of table "bytes""#);
    check(refused(&env, |txn| txn.drop_table("texts")), r#"table "texts""#);
    holder.abort().unwrap();

    // A gap is named by a key in it, and a name that is not in the catalog by itself.
    let holder = env.begin().unwrap();
    assert_eq!(holder.open(TEXTS).unwrap().get("aardvark").unwrap(), None);
    holder.create_table("next").unwrap();
    let by = format!(", blocked by {}", holder.xid());
    let check = |told: String, lock: &str| assert!(told.ends_with(&format!(" on {lock}{by}")), "{told}");
    check(refused(&env, |txn| txn.open(TEXTS)?.put("ant", 1)), r#"the gap at key "ant" of table "texts""#);
    check(refused(&env, |txn| txn.create_table("next").map(drop)), r#"key "next" of the catalog"#);
}

#[test]
fn a_lock_that_is_not_given_is_named_by_its_table() {
    let (_dir, env) = environment();
    env.transact(|txn| txn.bytes_or_create("stock")?.put(b"apple", b"1")).unwrap();
    let holder = env.begin().unwrap();
    holder.bytes("stock").unwrap().put(b"apple", b"2").unwrap();
    let lock_timeout = Some(std::time::Duration::from_millis(1));
    let waiter = env.begin_with(TransactionOptions { lock_timeout, ..Default::default() }).unwrap();
    let error = waiter.bytes("stock").unwrap().get(b"apple").unwrap_err();
    let expected =
        format!(r#"lock not granted in time: S on key "apple" of table "stock", blocked by {}"#, holder.xid());
    assert_eq!(error.to_string(), expected);
    let Error::LockTimeout { holders, .. } = error else { panic!("{error:?}") };
    assert_eq!(*holders, [holder.xid()]);
}

#[test]
fn a_deadlock_names_the_tables_and_the_transactions_in_it() {
    let (_dir, env) = environment();
    env.transact(|txn| {
        txn.bytes_or_create("stock")?.put(b"k", b"1")?;
        txn.bytes_or_create("table 7")?.put(b"k", b"1")
    })
    .unwrap();
    let (one, other) = (env.begin().unwrap(), env.begin().unwrap());
    one.bytes("stock").unwrap().put(b"k", b"2").unwrap();
    other.bytes("table 7").unwrap().put(b"k", b"2").unwrap();
    let xids = [one.xid(), other.xid()];
    let errors = std::thread::scope(|threads| {
        let first = threads.spawn(|| one.bytes("table 7").unwrap().put(b"k", b"3").err().inspect(|_| drop(one)));
        let second = threads.spawn(|| other.bytes("stock").unwrap().put(b"k", b"3").err().inspect(|_| drop(other)));
        [first.join().unwrap(), second.join().unwrap()]
    });
    let error = errors.into_iter().flatten().next().expect("one of them gives way");
    let text = error.to_string();
    assert!(text.contains(r#"X on key "k" of table "stock""#), "{text}");
    assert!(text.contains(r#"X on key "k" of table "table 7""#), "{text}");
    let Error::Deadlock { mut transactions, .. } = error else { panic!("{error:?}") };
    transactions.sort_unstable();
    assert_eq!(*transactions, xids);
}

#[test]
fn a_transaction_in_a_transaction_is_refused_at_once_and_says_the_table() {
    let (_dir, env) = environment();
    env.transact(|txn| txn.bytes_or_create("stock")?.put(b"apple", b"1")).unwrap();
    let inner = env.transact(|txn| {
        txn.bytes("stock")?.put(b"apple", b"2")?;
        Ok(env.transact(|txn| txn.bytes("stock")?.put(b"apple", b"3")))
    });
    let error = inner.unwrap().unwrap_err();
    assert!(matches!(error, Error::HeldByCaller { .. }), "{error:?}");
    assert!(error.to_string().contains(r#"of table "stock""#), "{error}");
}

#[test]
fn a_name_that_a_terminal_must_not_see_is_shown_as_commands_show_bytes() {
    let (_dir, env) = environment();
    let name = "no\x1b[31m";
    let error = env.transact(|txn| txn.bytes(name).map(drop)).unwrap_err();
    assert_eq!(error.to_string(), r#"there is no table named "no\x1b[31m""#);
    let error = env.transact(|txn| {
        txn.create_table(name)?;
        txn.create_table(name).map(drop)
    });
    assert_eq!(error.unwrap_err().to_string(), r#"a table named "no\x1b[31m" exists already"#);
    let error = Error::from(DiskError::new(name, "read", DiskErrorKind::NoSpace));
    assert!(error.to_string().contains(r#"read "no\x1b[31m""#), "{error}");
}

#[test]
fn an_error_of_the_system_keeps_its_kind() {
    let of = |kind| Error::from(DiskError::new("shop/data", "read", kind).at(4096));
    for (kind, expected) in [
        (DiskErrorKind::ShortRead, io::ErrorKind::UnexpectedEof),
        (DiskErrorKind::NoSpace, io::ErrorKind::StorageFull),
        (DiskErrorKind::Permission, io::ErrorKind::PermissionDenied),
        (DiskErrorKind::ReadOnlyFs, io::ErrorKind::ReadOnlyFilesystem),
        (DiskErrorKind::NotFound, io::ErrorKind::NotFound),
    ] {
        let error = of(kind);
        assert_eq!(error.io_kind(), Some(expected), "{error:?}");
        assert!(error.to_string().contains(r#"read "shop/data" at 4096"#), "{error}");
    }

    // The number of an error without a kind of ours is in its source.
    let number_of = |error: &Error| {
        let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        source.and_then(io::Error::raw_os_error)
    };
    let input_output = of(DiskErrorKind::Io(5));
    assert!(matches!(input_output, Error::Disk(_)), "{input_output:?}");
    assert_eq!(number_of(&input_output), Some(5));
    assert!(input_output.to_string().contains(r#"read "shop/data" at 4096: "#), "{input_output}");
    let call = Error::of_io("write", std::path::Path::new("shop/data"), &io::Error::from_raw_os_error(24));
    assert_eq!(number_of(&call), Some(24), "{call:?}");
    assert_eq!(number_of(&of(DiskErrorKind::ShortRead)), None, "the system has no number for it");
    assert_eq!(number_of(&of(DiskErrorKind::NotFound)), None, "the kind says it all");

    let (_dir, env) = environment();
    let refused = env.transact_with(TransactionOptions { read_only: true, ..Default::default() }, |txn| {
        txn.create_table("t").map(drop)
    });
    let error = refused.unwrap_err();
    assert!(matches!(error, Error::ReadOnly { .. }), "{error:?}");
    assert_eq!(error.io_kind(), None, "nobody has asked the system");
}

#[test]
fn the_cause_of_an_error_of_ones_own_stays_its_source() {
    let inner = io::Error::from_raw_os_error(5);
    #[derive(Debug, thiserror::Error)]
    #[error("the parcel is lost")]
    struct Lost(#[source] io::Error);
    let error = Error::user(Lost(inner));
    assert_eq!(error.to_string(), "the parcel is lost");
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    assert_eq!(source.and_then(io::Error::raw_os_error), Some(5));
}

#[test]
fn an_index_is_created_where_it_is_missing_only() {
    let (_dir, env) = environment();
    let by_value = IndexDef::new("by_value", IndexKeys::Value);
    let make = |index: &IndexDef| env.transact(|txn| txn.create_index_if_missing("t", index));
    assert!(matches!(make(&by_value), Err(Error::NoSuchTable(_))));
    env.transact(|txn| txn.bytes_or_create("t")?.put(b"k", b"v")).unwrap();
    assert!(make(&by_value).unwrap());
    // Somebody who uses the table does not stand in the way of who finds it there.
    let user = env.begin().unwrap();
    user.bytes("t").unwrap().put(b"other", b"w").unwrap();
    assert!(!make(&by_value).unwrap());
    user.commit().unwrap();
    assert!(matches!(make(&by_value.clone().unique()), Err(Error::IndexExists { .. })));
    let other = IndexDef::new("by_value", IndexKeys::Field { number: 1, separator: b'\t' });
    assert!(matches!(make(&other), Err(Error::IndexExists { .. })));
    // What the same transaction has just created is there.
    env.transact(|txn| {
        let second = IndexDef::new("second", IndexKeys::Value);
        assert!(txn.create_index_if_missing("t", &second)?);
        assert!(!txn.create_index_if_missing("t", &second)?);
        assert_eq!(txn.bytes("t")?.index("second")?.lookup(b"w")?.count(), 1);
        Ok(())
    })
    .unwrap();
}
