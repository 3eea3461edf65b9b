//! Typed tables as programs use them: keys and values of many types, borrowed look-ups, and all calls that byte tables
//! have.

mod common;

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::tiny;
use ledgerstone::typed::{AsKey, AsValue, EncodeError, Json, Named, Postcard};
use ledgerstone::{
    Environment, Error, Isolation, Key, Table, TableDef, Transaction, TransactionOptions, TypeName, Value,
};
use proptest::prelude::*;
use uuid::Uuid;

const AGES: TableDef<String, u32> = TableDef::new("ages");
const STOCK: TableDef<(String, u32), u64> = TableDef::new("stock");

fn with<T>(work: impl FnOnce(&Environment, &Transaction) -> Result<T, Error>) -> T {
    let dir = tempfile::tempdir().unwrap();
    let env = tiny().open(dir.path()).unwrap();
    let txn = env.begin().unwrap();
    let found = work(&env, &txn).unwrap();
    txn.commit().unwrap();
    assert!(env.verify().unwrap().problems.is_empty());
    found
}

fn keys<K: Key, V: Value>(records: impl Iterator<Item = Result<(K, V), Error>>) -> Result<Vec<K>, Error> {
    records.map(|record| Ok(record?.0)).collect()
}

#[test]
fn keys_and_values_are_taken_as_they_are_by_reference_and_as_what_they_lend() {
    with(|_, txn| {
        let ages = txn.open(AGES)?;
        let owned = "cid".to_string();
        ages.put("ann", 31)?;
        ages.put(&"bob".to_string(), &29)?;
        ages.put(&owned, 47)?;
        ages.put(owned, 48)?;
        assert_eq!((ages.get("ann")?, ages.get(&"bob")?, ages.get("cid".to_string())?), (Some(31), Some(29), Some(48)));
        assert_eq!(keys(ages.range(.."b")?)?, ["ann"]);
        assert_eq!(keys(ages.range("b".."cid")?)?, ["bob"]);
        assert_eq!(keys(ages.range("b".to_string()..="cid".to_string())?)?, ["bob", "cid"]);
        assert_eq!(keys(ages.range((Bound::Excluded("ann"), Bound::Unbounded))?)?, ["bob", "cid"]);
        assert_eq!(keys(ages.prefix("c")?)?, ["cid"]);
        assert_eq!(ages.delete_range("b"..)?, 2);

        let stock = txn.open(STOCK)?;
        stock.put(("bolt", 8), 250)?;
        stock.put(&("bolt".to_string(), 10), &90)?;
        stock.put((&"bolts".to_string(), &1), 7)?;
        assert_eq!(stock.get(("bolt", 8))?, Some(250));
        assert_eq!(stock.range(("bolt", 9)..)?.count(), 2);
        assert_eq!(keys(stock.prefix(("bolt",))?.rev())?, [("bolt".to_string(), 10), ("bolt".to_string(), 8)]);

        let bytes = txn.bytes_or_create("bytes")?;
        bytes.put("k", "v")?;
        bytes.put(b"l", vec![1, 2])?;
        bytes.put(vec![b'm'], b"w".as_slice())?;
        let owned = "n".to_string();
        bytes.insert_new(owned, [])?;
        assert_eq!(bytes.get("k")?.as_deref(), Some(&b"v"[..]));
        assert_eq!(bytes.range("l"..="m")?.count(), 2);
        assert_eq!(bytes.range(b"l"..)?.count(), 3);
        assert_eq!(bytes.range(..)?.count(), 4);
        assert_eq!(bytes.prefix("n")?.count(), 1);
        assert_eq!(bytes.delete_range(.."l")?, 1);
        Ok(())
    });
}

#[test]
fn a_table_may_have_a_name_that_is_made_at_run_time() {
    with(|_, txn| {
        for year in [2023, 2024] {
            let name = format!("sales.{year}");
            txn.open(TableDef::<u64, u64>::new(&name))?.put(1, year)?;
        }
        assert_eq!(txn.open(TableDef::<u64, u64>::new("sales.2024"))?.get(1)?, Some(2024));
        Ok(())
    });
}

fn in_order<K: Key + Clone + PartialEq + std::fmt::Debug>(txn: &Transaction, sorted: &[K]) -> Result<(), Error> {
    let table = txn.open(TableDef::<K, u8>::new(&K::TYPE.to_string()))?;
    sorted.iter().rev().try_for_each(|key| table.put(key, 1))?;
    assert_eq!(keys(table.range(..)?)?, sorted);
    assert_eq!(table.get(&sorted[0])?, Some(1));
    Ok(())
}

#[test]
fn keys_of_every_type_are_stored_in_their_order() {
    let second = Duration::from_secs(1);
    with(|_, txn| {
        in_order(txn, &[f64::NEG_INFINITY, -1.5, -0.0_f64, 0.5, 1e300])?;
        in_order(txn, &[-1.5_f32, 0.0, 2.0])?;
        in_order(txn, &[UNIX_EPOCH - second, UNIX_EPOCH, UNIX_EPOCH + second, SystemTime::now()])?;
        in_order(txn, &[Duration::ZERO, second, Duration::MAX])?;
        in_order(txn, &[Uuid::nil(), Uuid::from_u128(7), Uuid::max()])?;
        in_order(txn, &[[-1_i64, 5], [1, -5], [1, 5]])?;
        in_order(txn, &[["a".to_string(), "z".to_string()], ["ab".to_string(), String::new()]])?;
        in_order(txn, &[None, Some(-1_i8), Some(1)])?;
        // In the catalog, an array of bytes is what it always was.
        assert_eq!(<[u8; 4] as Key>::TYPE.to_string(), "bytes[4]");
        Ok(())
    });
}

#[test]
fn one_call_returns_what_was_there_before() {
    for isolation in
        [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted, Isolation::ReadUncommitted]
    {
        let dir = tempfile::tempdir().unwrap();
        let env = tiny().open(dir.path()).unwrap();
        env.transact(|txn| txn.open(AGES).map(drop)).unwrap();
        let txn = env.begin_with(TransactionOptions { isolation: Some(isolation), ..Default::default() }).unwrap();
        let ages = txn.open(AGES).unwrap();
        assert!(ages.is_empty().unwrap() && !ages.contains("ann").unwrap());
        assert_eq!(ages.insert("ann", 31).unwrap(), None);
        assert_eq!(ages.insert("ann", 32).unwrap(), Some(31));
        assert!(!ages.is_empty().unwrap() && ages.contains("ann").unwrap());
        assert_eq!((ages.remove("ann").unwrap(), ages.remove("ann").unwrap()), (Some(32), None));
        for (name, age) in [("a", 1), ("b", 2), ("c", 3)] {
            ages.put(name, age).unwrap();
        }
        assert_eq!(ages.pop_first().unwrap(), Some(("a".to_string(), 1)), "{isolation:?}");
        assert_eq!(ages.pop_last().unwrap(), Some(("c".to_string(), 3)), "{isolation:?}");
        assert_eq!(ages.as_bytes().pop_last().unwrap(), Some((b"b".to_vec(), 2_u32.to_le_bytes().to_vec())));
        assert_eq!((ages.pop_first().unwrap(), ages.pop_last().unwrap()), (None, None));
        txn.commit().unwrap();
    }
}

/// Each record goes to one of them, and at the default level nobody has to begin again.
#[test]
fn threads_that_pop_from_one_end_share_the_records() {
    const COUNT: u64 = 60;
    for isolation in [Isolation::Serializable, Isolation::ReadCommitted] {
        let dir = tempfile::tempdir().unwrap();
        let env = tiny().open(dir.path()).unwrap();
        let queue = TableDef::<u64, String>::new("queue");
        env.transact(|txn| txn.open(queue)?.load_sorted((0..COUNT).map(|n| (n, n.to_string())))).unwrap();
        let barrier = Barrier::new(2);
        let take_all = || {
            barrier.wait();
            let mut taken = Vec::new();
            loop {
                let options = TransactionOptions { isolation: Some(isolation), ..Default::default() };
                let txn = env.begin_with(options).unwrap();
                let Some((key, value)) = txn.open(queue).unwrap().pop_first().unwrap() else { return taken };
                assert_eq!(value, key.to_string());
                txn.commit().unwrap();
                taken.push(key);
            }
        };
        let mut taken = thread::scope(|scope| {
            let other = scope.spawn(take_all);
            let own = take_all();
            [own, other.join().unwrap()].concat()
        });
        taken.sort_unstable();
        assert_eq!(taken, Vec::from_iter(0..COUNT), "{isolation:?}");
    }
}

#[test]
fn bytes_that_are_not_a_value_stay_where_they_are() {
    with(|_, txn| {
        let table = txn.open(TableDef::<u8, bool>::new("flags"))?;
        table.as_bytes().put([1], [7])?;
        let is_refused = |found: Result<(), Error>| matches!(found, Err(Error::WrongType { .. }));
        assert!(is_refused(table.get(1).map(drop)));
        assert!(is_refused(table.insert(1, true).map(drop)));
        assert!(is_refused(table.remove(1).map(drop)));
        assert!(is_refused(table.pop_first().map(drop)));
        assert!(is_refused(table.entry(1).map(drop)));
        assert!(is_refused(table.modify(1, Some).map(drop)));
        assert_eq!(table.get_with(1, <[u8]>::to_vec)?, Some(vec![7]));
        Ok(())
    });
}

#[test]
fn an_entry_is_looked_at_and_filled() {
    with(|_, txn| {
        let ages = txn.open(AGES)?;
        assert_eq!(ages.entry("ann")?.and_modify(|age| *age += 1)?.or_insert(31)?, 31);
        assert_eq!(ages.entry("ann")?.and_modify(|age| *age += 1)?.or_insert_with(|| panic!("it is there"))?, 32);
        assert_eq!(ages.entry("ann")?.value(), Some(&32));
        assert_eq!(ages.entry("ann")?.key()?, "ann");
        assert_eq!(ages.entry("ann")?.replace(40)?, Some(32));
        assert_eq!(ages.entry("bob")?.replace(29)?, None);
        assert_eq!((ages.entry("ann")?.remove()?, ages.entry("ann")?.remove()?), (Some(40), None));
        assert_eq!((ages.get_or_insert_with("bob", || 1)?, ages.get_or_insert_with("cid", || 1)?), (29, 1));
        Ok(())
    });
}

/// From either end, and from where the iterator is.
#[test]
fn the_bytes_of_a_range_are_seen_without_decoding() {
    with(|_, txn| {
        let mut ages = txn.open(AGES)?;
        ages.load_sorted([("ann", 31), ("bob", 29), ("cid", 47), ("dan", 50)])?;
        let mut range = ages.range("ann"..)?;
        assert_eq!(range.next().transpose()?, Some(("ann".to_string(), 31)));
        assert_eq!(range.next_back().transpose()?, Some(("dan".to_string(), 50)));
        let mut seen = Vec::new();
        range.for_each_ref(|key, age| {
            seen.push((<String as Key>::decode(key).unwrap(), <u32 as Value>::decode(age).unwrap()));
            true
        })?;
        assert_eq!(seen, [("bob".to_string(), 29), ("cid".to_string(), 47)]);
        let mut count = 0;
        ages.prefix("")?.for_each_ref(|_, _| {
            count += 1;
            count < 2
        })?;
        assert_eq!(count, 2);
        Ok(())
    });
}

/// What the transaction changes between the look and the use counts.
#[test]
fn an_entry_looks_again_if_the_transaction_has_changed_something_since() {
    with(|_, txn| {
        let ages = txn.open(AGES)?;
        let entry = ages.entry("ann")?;
        ages.put("ann", 10)?;
        assert_eq!(entry.or_insert(1)?, 10);
        let entry = ages.entry("bob")?;
        let made = entry.or_insert_with(|| {
            ages.put("bob", 20).unwrap();
            2
        });
        assert_eq!((made?, ages.get("bob")?), (20, Some(20)));
        let before = txn.savepoint()?;
        ages.put("cid", 30)?;
        let [removed, replaced] = [ages.entry("cid")?, ages.entry("cid")?];
        let modified = ages.entry("cid")?;
        txn.rollback_to(before)?;
        assert_eq!(removed.remove()?, None);
        assert_eq!(modified.and_modify(|age| *age += 1)?.or_insert(5)?, 5);
        assert_eq!(replaced.replace(6)?, Some(5));
        let bytes = txn.bytes_or_create("bytes")?;
        let entry = bytes.entry("k")?;
        bytes.put("k", "there")?;
        assert_eq!(entry.or_insert("late")?, b"there");
        let [one, other] = [bytes.entry("k")?, bytes.entry("k")?];
        assert_eq!(one.and_modify(|value| value.push(b'!'))?.remove()?.as_deref(), Some(&b"there!"[..]));
        assert_eq!(other.remove()?, None);
        Ok(())
    });
}

#[test]
fn a_value_is_read_where_the_transaction_can_be_used() {
    with(|_, txn| {
        let ages = txn.open(AGES)?;
        ages.put("ann", 31)?;
        ages.put("bob", 29)?;
        let both = ages.get_with("ann", |ann| {
            let bob = ages.get_with("bob", |bob| {
                ages.put("ann", 0).unwrap(); // What is lent does not change.
                (ann.to_vec(), bob.to_vec())
            });
            bob.unwrap().unwrap()
        });
        assert_eq!(both?, Some((31_u32.to_le_bytes().to_vec(), 29_u32.to_le_bytes().to_vec())));
        assert_eq!(ages.get("ann")?, Some(0));
        assert_eq!(ages.get_with("cid", |_| ())?, None);
        Ok(())
    });
}

#[test]
fn a_load_of_results_loads_all_or_returns_the_first_error() {
    #[derive(Debug)]
    enum Refused {
        Line(String),
        Store(Error),
    }
    impl From<Error> for Refused {
        fn from(error: Error) -> Refused {
            Refused::Store(error)
        }
    }
    fn load(ages: &mut Table<String, u32>, text: &str) -> Result<u64, Refused> {
        ages.try_load_sorted(text.lines().map(|line| {
            let bad = || Refused::Line(line.to_string());
            let (name, age) = line.split_once(' ').ok_or_else(bad)?;
            Ok((name, age.parse::<u32>().map_err(|_| bad())?))
        }))
    }
    with(|_, txn| {
        let mut ages = txn.open(AGES)?;
        assert!(matches!(load(&mut ages, "ann 31\nbob old"), Err(Refused::Line(line)) if line == "bob old"));
        assert_eq!(ages.count()?, 0);
        assert_eq!(load(&mut ages, "ann 31\nbob 29").unwrap(), 2);
        // Appended.
        assert!(matches!(load(&mut ages, "cid 47\ndot"), Err(Refused::Line(_))));
        assert!(matches!(load(&mut ages, "cid 47\nann 1"), Err(Refused::Store(Error::NotSorted { record: 1, .. }))));
        assert_eq!(ages.count()?, 2);
        assert_eq!(load(&mut ages, "cid 47").unwrap(), 1);
        assert_eq!(ages.load_sorted([("dot", 5)])?, 1);
        Ok(())
    });
}

/// A key that has no bytes for zero, and a value that has none for odd numbers.
#[derive(Debug)]
struct Picky(u8);

impl AsKey<Picky> for Picky {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if self.0 == 0 {
            return Err(EncodeError::of::<Picky>("it is zero"));
        }
        AsKey::<u8>::encode(&self.0, out)
    }
}

impl Key for Picky {
    const TYPE: TypeName = TypeName::Named("test.picky");
    fn decode(bytes: &[u8]) -> Result<Self, ledgerstone::typed::DecodeError> {
        <u8 as Key>::decode(bytes).map(Picky)
    }
    fn decode_part(bytes: &mut &[u8]) -> Result<Self, ledgerstone::typed::DecodeError> {
        u8::decode_part(bytes).map(Picky)
    }
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Odd(HashMap<(u8, u8), u8>);

impl Named for Odd {
    const NAME: TypeName = TypeName::Named("test.odd");
}

#[test]
fn what_cannot_be_encoded_is_refused_by_name_and_changes_nothing() {
    with(|_, txn| {
        let mut odd = txn.open(TableDef::<Picky, Json<Odd>>::new("odd"))?;
        odd.put(Picky(1), Json(Odd(HashMap::new())))?;
        let bad = || Json(Odd(HashMap::from([((1, 2), 3)])));
        let said = odd.put(Picky(1), bad()).unwrap_err();
        let expected = "value cannot be used with table \"odd\": typed::Odd cannot be encoded: key must be a string";
        assert_eq!(said.to_string(), expected);
        assert!(std::error::Error::source(&said).is_some_and(|source| source.is::<EncodeError>()));
        let is_refused =
            |found: Result<(), Error>| matches!(found, Err(Error::NotEncodable { table, .. }) if table == "odd");
        assert!(is_refused(odd.get(Picky(0)).map(drop)));
        assert!(is_refused(odd.range(Picky(0)..).map(drop)));
        assert!(is_refused(odd.delete_range(..Picky(0)).map(drop)));
        assert!(is_refused(odd.insert(Picky(2), bad()).map(drop)));
        assert!(is_refused(odd.modify(Picky(1), |_| Some(bad())).map(drop)));
        let mut loader = odd.sorted_loader()?;
        assert!(is_refused(loader.push(Picky(0), Json(Odd(HashMap::new())))));
        assert!(is_refused(loader.push(Picky(2), bad())));
        assert_eq!(loader.finish()?.count()?, 1);
        assert!(is_refused(odd.load_sorted([(Picky(2), Json(Odd(HashMap::new()))), (Picky(3), bad())]).map(drop)));
        assert_eq!(odd.count()?, 1);
        assert!(odd.get(Picky(1))?.is_some_and(|value| value.0.0.is_empty()));
        Ok(())
    });
}

#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
struct Order {
    customer: String,
    cents: u64,
}

impl Named for Order {
    const NAME: TypeName = TypeName::Named("shop.order");
}

#[test]
fn values_of_serde_are_stored_under_a_name_of_their_own() {
    with(|_, txn| {
        let order = Order { customer: "Ann".into(), cents: 1250 };
        let json = txn.open(TableDef::<u64, Json<Order>>::new("json"))?;
        json.put(1, Json(&order))?;
        json.put(2, &Json(order.clone()))?;
        assert_eq!(json.get(1)?, Some(Json(order.clone())));
        assert_eq!(json.as_bytes().types().value.as_deref(), Some("json<shop.order>"));
        let compact = txn.open(TableDef::<u64, Postcard<Order>>::new("compact"))?;
        compact.put(1, Postcard(&order))?;
        assert_eq!(compact.get(1)?, Some(Postcard(order)));
        assert_eq!(compact.as_bytes().types().value.as_deref(), Some("postcard<shop.order>"));
        assert!(matches!(
            txn.open(TableDef::<u64, Postcard<Order>>::new("json")),
            Err(Error::TableTypeMismatch { .. })
        ));
        Ok(())
    });
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Key, Value)]
struct Place {
    shop: String,
    shelf: u32,
    note: Option<Vec<u8>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Key, Value)]
struct Id(u64);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Key, Value)]
#[ledgerstone(name = "shop.line")]
struct Line(Place, Id);

#[test]
fn derived_types_are_called_as_a_tuple_of_their_fields_or_as_they_say() {
    assert_eq!(<Id as Key>::TYPE, <u64 as Key>::TYPE);
    assert_eq!(<Place as Key>::TYPE.to_string(), "(string, u32, option<bytes>)");
    assert_eq!(
        (<Line as Key>::TYPE, <Line as Value>::TYPE),
        (TypeName::Named("shop.line"), TypeName::Named("shop.line"))
    );
    with(|_, txn| {
        let lines = txn.open(TableDef::<Line, Place>::new("lines"))?;
        let place = Place { shop: "north".into(), shelf: 4, note: None };
        lines.put(Line(place.clone(), Id(1)), &place)?;
        assert_eq!(lines.first()?, Some((Line(place.clone(), Id(1)), place)));
        Ok(())
    });
}

fn key_bytes<K: Key>(key: &K) -> Vec<u8> {
    let mut out = Vec::new();
    key.encode(&mut out).unwrap();
    out
}

fn value_bytes<V: Value>(value: &V) -> Vec<u8> {
    let mut out = Vec::new();
    AsValue::<V>::encode(value, &mut out).unwrap();
    out
}

fn lines() -> impl Strategy<Value = Line> {
    let spiky = || prop::collection::vec(prop::sample::select(vec![0_u8, 1, 0xff]), 0..4);
    ("[a\0]{0,3}", 0..3_u32, prop::option::of(spiky()), 0..3_u64)
        .prop_map(|(shop, shelf, note, id)| Line(Place { shop, shelf, note }, Id(id)))
}

proptest! {
    #[test]
    fn derived_types_have_the_bytes_and_the_order_of_tuples(a in lines(), b in lines(), any: Vec<u8>) {
        prop_assert_eq!(key_bytes(&a).cmp(&key_bytes(&b)), a.cmp(&b));
        prop_assert_eq!(<Line as Key>::decode(&key_bytes(&a)), Ok(a.clone()));
        prop_assert_eq!(<Line as Value>::decode(&value_bytes(&a)), Ok(a.clone()));
        let Line(Place { shop, shelf, note }, Id(id)) = a.clone();
        prop_assert_eq!(key_bytes(&a), key_bytes(&((shop.clone(), shelf, note.clone()), id)));
        prop_assert_eq!(value_bytes(&a), value_bytes(&((shop, shelf, note), id)));
        if let Ok(line) = <Line as Key>::decode(&any) {
            prop_assert_eq!(key_bytes(&line), any.clone());
        }
        let _ = <Line as Value>::decode(&any);
    }

    #[test]
    fn a_table_is_a_map(script in prop::collection::vec((0..6_u8, 0..8_u8, any::<u16>()), 0..40)) {
        with(|_, txn| {
            let table = txn.open(TableDef::<u8, u16>::new("map"))?;
            let mut model = BTreeMap::new();
            for (what, key, value) in script {
                match what {
                    0 | 1 => assert_eq!(table.insert(key, value)?, model.insert(key, value)),
                    2 => assert_eq!(table.remove(key)?, model.remove(&key)),
                    3 => assert_eq!(table.pop_first()?, model.pop_first()),
                    4 => assert_eq!(table.pop_last()?, model.pop_last()),
                    _ => assert_eq!(table.entry(key)?.or_insert(value)?, *model.entry(key).or_insert(value)),
                }
                assert_eq!(table.is_empty()?, model.is_empty());
            }
            assert_eq!(table.range(..)?.collect::<Result<Vec<_>, _>>()?, Vec::from_iter(model));
            Ok(())
        });
    }
}

/// What programs store without a type of their own: lists, maps and tuples of plain things.
#[test]
fn plain_collections_go_by_serde_without_a_name() {
    type Scores = Json<BTreeMap<String, Vec<(u32, f64)>>>;
    type Settings = Postcard<HashMap<String, (Option<String>, bool, [u8; 2])>>;
    const SCORES: TableDef<u64, Scores> = TableDef::new("scores");
    const SETTINGS: TableDef<u64, Settings> = TableDef::new("settings");
    let dir = tempfile::tempdir().unwrap();
    let env = Environment::options().open(dir.path()).unwrap();
    env.transact(|txn| {
        let (scores, settings) = (txn.open(SCORES)?, txn.open(SETTINGS)?);
        let ann = Json(BTreeMap::from([("ann".to_owned(), vec![(1, 0.5), (2, 0.25)])]));
        scores.put(1, &ann)?;
        assert_eq!(scores.get(1)?, Some(ann));
        let colour = Postcard(HashMap::from([("colour".to_owned(), (Some("red".to_owned()), true, [1, 2]))]));
        settings.put(1, &colour)?;
        assert_eq!(settings.get(1)?, Some(colour));
        Ok(())
    })
    .unwrap();
    // A map is a map, and other elements are another type.
    type Hashed = Json<HashMap<String, Vec<(u32, f64)>>>;
    type Others = Json<BTreeMap<String, Vec<(u32, f32)>>>;
    const HASHED: TableDef<u64, Hashed> = TableDef::new("scores");
    const OTHERS: TableDef<u64, Others> = TableDef::new("scores");
    assert_eq!(env.transact(|txn| txn.open(HASHED)?.count()).unwrap(), 1);
    let said = env.transact(|txn| txn.open(OTHERS)?.count()).unwrap_err().to_string();
    assert!(said.contains("json<map<string, list<(u32, f64)>>>"), "{said}");
}
