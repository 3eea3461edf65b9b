//! Which anomaly can appear at which level: played with two transactions, and compared with the table of
//! docs/isolation.md.
//!
//! Both transactions run in one thread, call by call. A call that has to wait runs into the lock time-out: the level
//! keeps the anomaly from appearing by waiting.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ledgerstone::{Durability, Environment, Error, IndexDef, IndexKeys, Isolation, Transaction, TransactionOptions};
use ledgerstone_disk::SimDisk;

const TABLE: &str = include_str!("../../../docs/isolation.md");

/// Plays an anomaly; true if it appeared. A refused call means that it did not.
type Play = fn(&Scene) -> Result<bool, Error>;

const PLAYS: [(&str, Play); 8] = [
    ("dirty write", dirty_write),
    ("dirty read", dirty_read),
    ("lost update", lost_update),
    ("fuzzy read", fuzzy_read),
    ("phantom", phantom),
    ("phantom by index", phantom_by_index),
    ("read skew", read_skew),
    ("write skew", write_skew),
];

/// Records `x` and `y`, both 1, and the level that is tried.
struct Scene {
    env: Environment,
    isolation: Isolation,
}

impl Scene {
    fn new(isolation: Isolation) -> Scene {
        let env = Environment::options()
            .cache_bytes(1 << 20)
            .page_count_max(1 << 14)
            .durability(Durability::Volatile)
            .lock_timeout(Duration::from_millis(20))
            .open_on(Arc::new(SimDisk::new()))
            .unwrap();
        env.transact(|txn| {
            let t = txn.create_table("t")?;
            t.put(b"x", b"1")?;
            t.put(b"y", b"1")
        })
        .unwrap();
        Scene { env, isolation }
    }

    fn begin(&self) -> Result<Actor, Error> {
        let isolation = Some(self.isolation);
        Ok(Actor(self.env.begin_with(TransactionOptions { isolation, ..TransactionOptions::default() })?))
    }

    /// What is committed of both, in the end.
    fn outcome(&self) -> Result<(u8, u8), Error> {
        let actor = Actor(self.env.snapshot()?);
        Ok((actor.get(b"x")?, actor.get(b"y")?))
    }
}

struct Actor(Transaction);

impl Actor {
    fn get(&self, key: &[u8]) -> Result<u8, Error> {
        Ok(self.0.bytes("t")?.get(key)?.map_or(b'-', |value| value[0]))
    }

    fn put(&self, key: &[u8], value: u8) -> Result<(), Error> {
        self.0.bytes("t")?.put(key, &[value])
    }

    fn count(&self) -> Result<u64, Error> {
        self.0.bytes("t")?.count()
    }

    fn commit(self) -> Result<(), Error> {
        self.0.commit().map(drop)
    }
}

fn dirty_write(scene: &Scene) -> Result<bool, Error> {
    let (a, b) = (scene.begin()?, scene.begin()?);
    a.put(b"x", b'a')?;
    b.put(b"x", b'b')?;
    Ok(true)
}

fn dirty_read(scene: &Scene) -> Result<bool, Error> {
    let (a, b) = (scene.begin()?, scene.begin()?);
    a.put(b"x", b'a')?;
    let seen = b.get(b"x")?;
    drop(a); // It never was.
    Ok(seen == b'a')
}

fn lost_update(scene: &Scene) -> Result<bool, Error> {
    let (a, b) = (scene.begin()?, scene.begin()?);
    let (at_a, at_b) = (a.get(b"x")?, b.get(b"x")?);
    a.put(b"x", at_a + 1)?;
    a.commit()?;
    b.put(b"x", at_b + 1)?;
    b.commit()?;
    Ok(scene.outcome()?.0 == b'2')
}

fn fuzzy_read(scene: &Scene) -> Result<bool, Error> {
    let (a, b) = (scene.begin()?, scene.begin()?);
    let before = a.get(b"x")?;
    b.put(b"x", b'b')?;
    b.commit()?;
    Ok(a.get(b"x")? != before)
}

fn phantom(scene: &Scene) -> Result<bool, Error> {
    let (a, b) = (scene.begin()?, scene.begin()?);
    let before = a.count()?;
    b.put(b"new", b'b')?;
    b.commit()?;
    Ok(a.count()? != before)
}

fn phantom_by_index(scene: &Scene) -> Result<bool, Error> {
    scene.env.transact(|txn| txn.create_index("t", &IndexDef::new("value", IndexKeys::Value)))?;
    let (a, b) = (scene.begin()?, scene.begin()?);
    let count = |actor: &Actor| -> Result<usize, Error> {
        let found: Vec<_> = actor.0.bytes("t")?.index("value")?.lookup(b"b")?.collect::<Result<_, _>>()?;
        Ok(found.len())
    };
    let before = count(&a)?;
    b.put(b"x", b'b')?; // A record that was there comes to match.
    b.commit()?;
    Ok(count(&a)? != before)
}

fn read_skew(scene: &Scene) -> Result<bool, Error> {
    let (a, b) = (scene.begin()?, scene.begin()?);
    let x = a.get(b"x")?;
    b.put(b"x", b'2')?;
    b.put(b"y", b'2')?;
    b.commit()?;
    Ok(a.get(b"y")? != x)
}

/// At least one of the two must stay 1, and each sees to it.
fn write_skew(scene: &Scene) -> Result<bool, Error> {
    let (a, b) = (scene.begin()?, scene.begin()?);
    let (y, x) = (a.get(b"y")?, b.get(b"x")?);
    if y == b'1' {
        a.put(b"x", b'0')?;
    }
    if x == b'1' {
        b.put(b"y", b'0')?;
    }
    a.commit()?;
    b.commit()?;
    Ok(scene.outcome()? == (b'0', b'0'))
}

/// Plays one; a conflict is an anomaly that did not appear.
fn appears(play: Play, isolation: Isolation) -> bool {
    match play(&Scene::new(isolation)) {
        Ok(appeared) => appeared,
        Err(error) if error.is_retryable() => false,
        Err(error) => panic!("{isolation}: {error}"),
    }
}

/// The table of docs/isolation.md: anomaly, then one word for each level, the weakest first.
fn documented() -> BTreeMap<String, Vec<bool>> {
    let head = "| anomaly | read uncommitted | read committed | snapshot | serializable |";
    let rows = TABLE.split(head).nth(1).expect("docs/isolation.md has the table");
    let rows = rows.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let can = |cell: &&str| match *cell {
            "yes" => true,
            "no" => false,
            other => panic!("{other:?} is neither yes nor no"),
        };
        (cells[0].to_string(), cells[1..].iter().map(can).collect())
    })
    .collect()
}

#[test]
fn every_anomaly_appears_exactly_where_the_table_says() {
    let documented = documented();
    assert_eq!(documented.len(), PLAYS.len());
    for (name, play) in PLAYS {
        let found: Vec<bool> = Isolation::ALL.into_iter().map(|isolation| appears(play, isolation)).collect();
        assert_eq!(Some(&found), documented.get(name), "{name}: what was found, and what docs/isolation.md says");
    }
}

macro_rules! anomaly {
    ($test:ident, $play:ident, $isolation:ident, $appears:literal) => {
        #[test]
        fn $test() {
            assert_eq!(appears($play, Isolation::$isolation), $appears);
        }
    };
}

anomaly!(a_dirty_write_cannot_appear_at_read_uncommitted, dirty_write, ReadUncommitted, false);
anomaly!(a_dirty_write_cannot_appear_at_read_committed, dirty_write, ReadCommitted, false);
anomaly!(a_dirty_write_cannot_appear_at_snapshot, dirty_write, Snapshot, false);
anomaly!(a_dirty_write_cannot_appear_at_serializable, dirty_write, Serializable, false);
anomaly!(a_dirty_read_can_appear_at_read_uncommitted, dirty_read, ReadUncommitted, true);
anomaly!(a_dirty_read_cannot_appear_at_read_committed, dirty_read, ReadCommitted, false);
anomaly!(a_dirty_read_cannot_appear_at_snapshot, dirty_read, Snapshot, false);
anomaly!(a_dirty_read_cannot_appear_at_serializable, dirty_read, Serializable, false);
anomaly!(a_lost_update_can_appear_at_read_uncommitted, lost_update, ReadUncommitted, true);
anomaly!(a_lost_update_can_appear_at_read_committed, lost_update, ReadCommitted, true);
anomaly!(a_lost_update_cannot_appear_at_snapshot, lost_update, Snapshot, false);
anomaly!(a_lost_update_cannot_appear_at_serializable, lost_update, Serializable, false);
anomaly!(a_fuzzy_read_can_appear_at_read_uncommitted, fuzzy_read, ReadUncommitted, true);
anomaly!(a_fuzzy_read_can_appear_at_read_committed, fuzzy_read, ReadCommitted, true);
anomaly!(a_fuzzy_read_cannot_appear_at_snapshot, fuzzy_read, Snapshot, false);
anomaly!(a_fuzzy_read_cannot_appear_at_serializable, fuzzy_read, Serializable, false);
anomaly!(a_phantom_can_appear_at_read_uncommitted, phantom, ReadUncommitted, true);
anomaly!(a_phantom_can_appear_at_read_committed, phantom, ReadCommitted, true);
anomaly!(a_phantom_cannot_appear_at_snapshot, phantom, Snapshot, false);
anomaly!(a_phantom_cannot_appear_at_serializable, phantom, Serializable, false);
anomaly!(a_phantom_by_index_can_appear_at_read_uncommitted, phantom_by_index, ReadUncommitted, true);
anomaly!(a_phantom_by_index_can_appear_at_read_committed, phantom_by_index, ReadCommitted, true);
anomaly!(a_phantom_by_index_cannot_appear_at_snapshot, phantom_by_index, Snapshot, false);
anomaly!(a_phantom_by_index_cannot_appear_at_serializable, phantom_by_index, Serializable, false);
anomaly!(a_read_skew_can_appear_at_read_uncommitted, read_skew, ReadUncommitted, true);
anomaly!(a_read_skew_can_appear_at_read_committed, read_skew, ReadCommitted, true);
anomaly!(a_read_skew_cannot_appear_at_snapshot, read_skew, Snapshot, false);
anomaly!(a_read_skew_cannot_appear_at_serializable, read_skew, Serializable, false);
anomaly!(a_write_skew_can_appear_at_read_uncommitted, write_skew, ReadUncommitted, true);
anomaly!(a_write_skew_can_appear_at_read_committed, write_skew, ReadCommitted, true);
anomaly!(a_write_skew_can_appear_at_snapshot, write_skew, Snapshot, true);
anomaly!(a_write_skew_cannot_appear_at_serializable, write_skew, Serializable, false);

/// How a transaction comes to lock the whole table while it has a range open. None of them writes a record.
#[derive(Debug, Clone, Copy)]
enum Whole {
    /// By many reads, which become one lock.
    Escalation,
    /// By a call that locks the table exclusively, and then is refused.
    RefusedChange,
}

/// A leaf was copied while its keys were locked one by one. The lock on the table must not make that copy good.
#[test]
fn a_range_left_open_while_the_table_is_locked_reads_what_is_there() {
    for by_index in [false, true] {
        for whole in [Whole::Escalation, Whole::RefusedChange] {
            for backward in [false, true] {
                let what = format!("by index {by_index}, {whole:?}, backward {backward}");
                goes_on_with_what_is_there(by_index, whole, backward).unwrap_or_else(|error| panic!("{what}: {error}"));
            }
        }
    }
}

fn goes_on_with_what_is_there(by_index: bool, whole: Whole, backward: bool) -> Result<(), Error> {
    let env = Environment::options()
        .cache_bytes(1 << 20)
        .page_count_max(1 << 14)
        .durability(Durability::Volatile)
        .escalate_after(4)
        .open_on(Arc::new(SimDisk::new()))?;
    let by_value = IndexDef::new("value", IndexKeys::Value);
    env.transact(|txn| {
        txn.create_table("t")?;
        txn.create_index("t", &by_value)?;
        let t = txn.bytes("t")?;
        (0..20u8).try_for_each(|n| t.put([n], [n, 1]))
    })?;
    let txn = env.begin()?;
    let t = txn.bytes("t")?;
    let index = t.index("value")?;
    type Entries = Box<dyn DoubleEndedIterator<Item = Result<(Vec<u8>, Vec<u8>), Error>>>;
    let open =
        || -> Result<Entries, Error> { Ok(if by_index { Box::new(index.range(..)?) } else { Box::new(t.range(..)?) }) };
    let mut range = open()?;
    let step = |range: &mut Entries| if backward { range.next_back() } else { range.next() };
    let mut read: Vec<_> = step(&mut range).into_iter().collect::<Result<_, _>>()?;
    assert_eq!(read.len(), 1);
    env.transact(|other| {
        let t = other.bytes("t")?;
        t.put([10], [10, 2])?;
        assert!(t.delete([11])?);
        t.put([12, 1], [12, 2])
    })?;
    match whole {
        Whole::Escalation => {
            for n in 2..9u8 {
                let found = if by_index { index.get([n, 1])?.map(|(_, value)| value) } else { t.get([n])? };
                assert_eq!(found.as_deref(), Some(&[n, 1][..]));
            }
        }
        Whole::RefusedChange => {
            let refused = txn.create_index("t", &by_value);
            assert!(matches!(refused, Err(Error::IndexExists { .. })), "{refused:?}");
        }
    }
    while let Some(entry) = step(&mut range) {
        read.push(entry?);
    }
    if backward {
        read.reverse();
    }
    let anew: Vec<_> = open()?.collect::<Result<_, _>>()?;
    assert_eq!(read, anew, "by index {by_index}, {whole:?}, backward {backward}: left open, and read anew");
    txn.commit().map(drop)
}
