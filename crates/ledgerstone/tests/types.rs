//! A table knows the types of its keys and values, and an index that of its keys: other types are refused, not misread.

mod common;

use ledgerstone::{Environment, Error, IndexDef, IndexKeys, JsonKey, TableDef, TableTypes};
use ledgerstone_dump::{Dump, DumpOptions, LoadOptions};

const NUMBERS: TableDef<u64, u64> = TableDef::new("t");
const SIGNED: TableDef<i64, i64> = TableDef::new("t");
const TEXTS: TableDef<String, u64> = TableDef::new("t");
const OTHER_VALUES: TableDef<u64, String> = TableDef::new("t");

fn mismatch<T>(found: Result<T, Error>) -> (String, String, String, String) {
    match found {
        Err(Error::TableTypeMismatch(found)) => (found.table, found.what, found.stored, found.asked),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("no error"),
    }
}

#[test]
fn bytes_that_are_not_a_value_are_counted_as_people_count() {
    let said = |bytes: &[u8]| ledgerstone::typed::Key::decode(bytes).map(|_: u64| ()).unwrap_err().to_string();
    assert_eq!(said(&[1]), "1 byte is not a valid u64");
    assert_eq!(said(&[1, 2]), "2 bytes are not a valid u64");
}

fn said(table: &str, what: &str, stored: &str, asked: &str) -> (String, String, String, String) {
    (table.into(), what.into(), stored.into(), asked.into())
}

fn types(key: &str, value: &str) -> TableTypes {
    TableTypes { key: Some(key.into()), value: Some(value.into()) }
}

fn dump(env: &Environment) -> Vec<u8> {
    let mut text = Vec::new();
    env.dump(&mut text, &DumpOptions::default()).unwrap();
    text
}

fn load(env: &Environment, text: &[u8]) -> Result<(), Error> {
    env.load(&mut &text[..], &LoadOptions::default()).map(drop)
}

#[test]
fn a_table_opens_with_the_types_that_it_was_made_with_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let env = common::tiny().open(dir.path()).unwrap();
    let check = |env: &Environment| {
        let txn = env.begin().unwrap();
        assert_eq!(mismatch(txn.open(SIGNED)), said("t", "keys", "u64", "i64"));
        assert_eq!(mismatch(txn.open(TEXTS)), said("t", "keys", "u64", "string"));
        assert_eq!(mismatch(txn.open(OTHER_VALUES)), said("t", "values", "u64", "string"));
        assert_eq!(txn.open(NUMBERS).unwrap().get(&7).unwrap(), Some(8));
        assert_eq!(txn.bytes("t").unwrap().types(), &types("u64", "u64"));
        let snapshot = env.snapshot().unwrap();
        assert_eq!(mismatch(snapshot.open(SIGNED)), said("t", "keys", "u64", "i64"));
    };
    let txn = env.begin().unwrap();
    txn.open(NUMBERS).unwrap().put(&7, &8).unwrap();
    mismatch(txn.open(SIGNED)); // Its own maker is told, too.
    txn.commit().unwrap();
    check(&env);
    env.close().unwrap();
    let env = common::tiny().open(dir.path()).unwrap();
    check(&env);
    // What makes the table anew, or gives it another name, keeps the types.
    env.transact(|txn| {
        let mut table = txn.open(NUMBERS)?;
        table.delete_range(..)?;
        table.load_sorted([(7, 8), (9, 10)])?;
        txn.create_index("t", &IndexDef::new("i", IndexKeys::Value))?;
        txn.rename_table("t", "u")?;
        txn.rename_table("u", "t")
    })
    .unwrap();
    check(&env);
    let message = env.transact(|txn| txn.open(SIGNED).map(drop)).unwrap_err().to_string();
    let expected =
        "table \"t\" has keys of type u64, not i64: open it with the types that it was made with, or as byte strings";
    assert_eq!(message, expected);
}

#[test]
fn a_table_made_for_byte_strings_has_no_types_until_it_is_given_some() {
    let dir = tempfile::tempdir().unwrap();
    let env = common::tiny().open(dir.path()).unwrap();
    env.transact(|txn| {
        assert!(txn.create_table("t")?.types().is_empty());
        txn.open(NUMBERS)?.put(&1, &2)?;
        txn.open(SIGNED).map(drop)
    })
    .unwrap();
    let txn = env.begin().unwrap();
    txn.set_table_types("t", &TableTypes { key: Some("u64".into()), value: None }).unwrap();
    mismatch(txn.open(SIGNED));
    txn.open(OTHER_VALUES).unwrap();
    txn.abort().unwrap();
    env.transact(|txn| txn.open(SIGNED).map(drop)).unwrap();
    env.transact(|txn| txn.set_table_types("t", &types("u64", "u64"))).unwrap();
    env.transact(|txn| txn.set_table_types("t", &types("u64", "u64"))).unwrap();
    let again = env.transact(|txn| txn.set_table_types("t", &types("u64", "i64")));
    assert_eq!(mismatch(again), said("t", "values", "u64", "i64"));
    mismatch(env.transact(|txn| txn.open(SIGNED).map(drop)));
    for bad in [String::new(), "x".repeat(256)] {
        let bad = env.transact(|txn| txn.set_table_types("t", &types("u64", &bad)));
        assert!(matches!(bad, Err(Error::BadTypeName { .. })));
    }
}

#[test]
fn an_index_is_read_by_the_type_of_its_keys_only() {
    let dir = tempfile::tempdir().unwrap();
    let signed = || common::tiny().typed_index_extractor("level", |_: &u64, value: &i64| vec![*value]);
    const LEVELS: TableDef<u64, i64> = TableDef::new("levels");
    let env = signed().open(dir.path()).unwrap();
    env.transact(|txn| {
        txn.open(LEVELS)?.put(&1, &-5)?;
        txn.create_index("levels", &IndexDef::new("by", IndexKeys::Extractor("level".into())))?;
        txn.create_index("levels", &IndexDef::new("raw", IndexKeys::Value))?;
        let table = txn.open(LEVELS)?;
        assert_eq!(table.index::<i64>("by")?.range(-9..)?.next().unwrap()?, (-5, 1, -5));
        assert_eq!(mismatch(table.index::<u64>("by")), said("levels", "keys in index \"by\"", "i64", "u64"));
        // Bytes of the value are not numbers; they are bytes, and may be text.
        assert_eq!(mismatch(table.index::<i64>("raw")), said("levels", "keys in index \"raw\"", "bytes", "i64"));
        table.index::<[u8; 8]>("raw")?;
        table.index::<String>("raw")?;
        // A function of other types is not made an index of.
        txn.open(NUMBERS)?;
        let index = IndexDef::new("by", IndexKeys::Extractor("level".into()));
        assert_eq!(mismatch(txn.create_index("t", &index)), said("t", "values", "u64", "i64"));
        Ok::<_, Error>(())
    })
    .unwrap();
    env.close().unwrap();
    // The same name for a function of other keys: what it says would not fit what is there.
    let options = common::tiny().typed_index_extractor("level", |_: &u64, value: &i64| vec![value.unsigned_abs()]);
    let env = options.open(dir.path()).unwrap();
    let put = env.transact(|txn| txn.open(LEVELS)?.put(&2, &3));
    let message = put.as_ref().unwrap_err().to_string();
    assert!(
        message.ends_with("the index function \"level\" is for other types; register one for those of the table"),
        "{message}"
    );
    assert_eq!(mismatch(put), said("levels", "keys in index \"by\"", "i64", "u64"));
    env.close().unwrap();
    let env = signed().open(dir.path()).unwrap();
    env.transact(|txn| txn.open(LEVELS)?.put(&2, &3)).unwrap();
    assert!(env.verify().unwrap().problems.is_empty());
}

#[test]
fn an_index_by_a_json_member_orders_numbers_as_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let env = common::tiny().open(dir.path()).unwrap();
    const ROWS: TableDef<u32, String> = TableDef::new("rows");
    env.transact(|txn| {
        txn.open(ROWS)?;
        txn.create_index("rows", &IndexDef::new("by", IndexKeys::Json("n".into())))?;
        let rows = txn.open(ROWS)?;
        let values = ["100", "9", "\"9\"", "-0", "10", "\"a\"", "18446744073709551617", "1.5e1", "true", "-2.5", "0"];
        for (no, value) in values.iter().enumerate() {
            rows.put(&(no as u32), &format!("{{\"n\":{value}}}"))?;
        }
        let by = rows.index::<JsonKey>("by")?;
        let all: Vec<String> = by.range(..)?.map(|found| Ok(found?.0.to_string())).collect::<Result<_, Error>>()?;
        assert_eq!(all, ["\"9\"", "a", "-2.5", "0", "0", "9", "10", "15", "100", "18446744073709551617", "true"]);
        let from_9: Vec<u32> =
            by.range(JsonKey::from(9)..JsonKey::from(101))?.map(|found| Ok(found?.1)).collect::<Result<_, Error>>()?;
        assert_eq!(from_9, [1, 4, 7, 0]);
        assert_eq!(by.lookup(&JsonKey::from(0))?.count(), 2);
        assert_eq!(rows.as_bytes().index("by")?.lookup(b"a")?.count(), 1);
        assert_eq!(mismatch(rows.index::<u64>("by")).2, "json");
        Ok::<_, Error>(())
    })
    .unwrap();
    assert!(env.verify().unwrap().problems.is_empty());
}

#[test]
fn a_dump_carries_the_types_and_a_load_compares_them() {
    let dir = tempfile::tempdir().unwrap();
    let env = common::tiny().open(dir.path()).unwrap();
    env.transact(|txn| {
        txn.open(NUMBERS)?.put(&1, &2)?;
        txn.bytes_or_create("plain")?.put(b"a", b"b")?;
        txn.create_table("half")?;
        txn.set_table_types("half", &TableTypes { key: None, value: Some("string".into()) })
    })
    .unwrap();
    let text = dump(&env);

    let other = tempfile::tempdir().unwrap();
    let copy = common::tiny().open(other.path()).unwrap();
    load(&copy, &text).unwrap();
    assert_eq!(dump(&copy), text);
    assert_eq!(mismatch(copy.transact(|txn| txn.open(SIGNED).map(drop))), said("t", "keys", "u64", "i64"));
    copy.transact(|txn| {
        assert!(txn.bytes("plain")?.types().is_empty());
        assert_eq!(txn.bytes("half")?.types().value.as_deref(), Some("string"));
        txn.drop_table("t")?;
        txn.open(SIGNED)?.put(&1, &2)
    })
    .unwrap();
    assert_eq!(mismatch(load(&copy, &text)), said("t", "keys", "i64", "u64"));
    assert_eq!(copy.transact(|txn| txn.open(SIGNED)?.count()).unwrap(), 1);

    // As Berkeley DB gives databases back, in the order of their names: the types come behind a table.
    let end = text.windows(9).position(|line| line == b"DATA=END\n").unwrap() + 9;
    let swapped = [&text[end..], &text[..end]].concat();
    let third = tempfile::tempdir().unwrap();
    let copy = common::tiny().open(third.path()).unwrap();
    load(&copy, &swapped).unwrap();
    assert_eq!(dump(&copy), text);
}
