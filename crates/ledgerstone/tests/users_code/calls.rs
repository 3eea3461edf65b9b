//! What is called inside of closures: every public method, on handles that were made before.

use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use ledgerstone::extend::Mode;
use ledgerstone::{
    Backup, BackupOptions, Durability, Environment, Error, IndexDef, IndexKeys, Lsn, Prepared, RepairPages, TableDef,
    TableTypes, Ticket, Transaction, TransactionOptions,
};
use ledgerstone_disk::SimDisk;
use ledgerstone_dump::{Dump, DumpOptions, LoadOptions};

use super::common::number::NUMBER;
use super::told::{TOLD, Told};
use super::{Hook, env_table, environment, typed_env_table};

/// One call of a method, named as the method is, up to a comma.
pub struct Call {
    pub name: &'static str,
    run: Box<dyn FnOnce() -> Result<(), Error> + Send>,
}

impl Call {
    pub fn run(self) -> Result<(), Error> {
        (self.run)()
    }
}

/// A call on a handle that others use, too.
fn on<H: Clone + Send + 'static>(name: &'static str, handle: &H, f: fn(&H) -> Result<(), Error>) -> Call {
    let handle = handle.clone();
    Call { name, run: Box::new(move || f(&handle)) }
}

/// A call on a handle of its own.
fn with<H: Send + 'static>(name: &'static str, handle: H, f: fn(H) -> Result<(), Error>) -> Call {
    Call { name, run: Box::new(move || f(handle)) }
}

fn io(error: std::io::Error) -> Error {
    error.downcast().unwrap_or_else(Error::Disk)
}

/// The names of all calls.
pub fn names() -> Vec<&'static str> {
    let env = environment(&Hook::default());
    let txn = Arc::new(env.begin().unwrap());
    let all = of_transaction(&txn).into_iter().chain(of_environment(&env)).chain(answered_at_once(&txn));
    all.chain(ends(&env)).map(|call| call.name).collect()
}

fn prepare(env: &Environment, id: &[u8]) -> Result<Prepared, Error> {
    let txn = env.begin()?;
    txn.bytes("prepared")?.put(id, b"1")?;
    txn.prepare(id)
}

/// Calls of the environment. None of them waits for ever, whoever calls it from where.
pub fn of_environment(env: &Environment) -> Vec<Call> {
    let env_on = |name, f: fn(&Environment) -> Result<(), Error>| on(name, env, f);
    let ticket = || -> Ticket {
        let committed = env.begin().unwrap().commit_with(Durability::Pipelined).unwrap();
        committed.ticket
    };
    let (feed, reader) = (|| env.changes(Lsn(u64::MAX)).unwrap(), || env.log_reader(Lsn(0)).unwrap());
    vec![
        env_on("Environment::begin", |env| env.begin().map(drop)),
        env_on("Environment::begin_with", |env| env.begin_with(TransactionOptions::default()).map(drop)),
        env_on("Environment::snapshot", |env| env.snapshot()?.bytes("t")?.count().map(drop)),
        env_on("Environment::transact, elsewhere", |env| env.transact(|txn| txn.bytes("other")?.put(b"k", b"inside"))),
        env_on("Environment::transact, reading", |env| env.transact(|txn| txn.bytes("t")?.count()).map(drop)),
        env_on("Environment::transact, writing", |env| env.transact(|txn| txn.bytes("t")?.put(&[3], b"inside"))),
        env_on("Environment::transact, writing plainly", |env| {
            env.transact(|txn| txn.bytes("plain")?.put(&[3], b"inside"))
        }),
        env_on("Environment::transact, writing typed", |env| env.transact(|txn| txn.bytes("told")?.put([3], [9]))),
        env_on("Environment::transact, creating", |env| {
            env.transact(|txn| txn.create_table("inside")?.put(b"k", b"v"))
        }),
        env_on("Environment::transact, dropping", |env| env.transact(|txn| txn.drop_table("other"))),
        env_on("Environment::transact_with", |env| {
            env.transact_with(TransactionOptions::default(), |txn| txn.bytes("t")?.put(&[4], b"inside"))
        }),
        env_on("Environment::transact_ticket", |env| {
            env.transact_ticket(TransactionOptions::default(), |txn| txn.bytes("t")?.put(&[4], b"inside")).map(drop)
        }),
        env_on("Environment::try_transact", |env| env.try_transact(|txn| txn.bytes("t")?.put(&[4], b"inside"))),
        env_on("Environment::try_transact_with", |env| {
            env.try_transact_with(TransactionOptions::default(), |txn| txn.bytes("t")?.put(&[4], b"inside"))
        }),
        env_on("Environment::try_transact_ticket", |env| {
            let put = |txn: &Transaction| txn.bytes("t")?.put(&[4], b"inside");
            env.try_transact_ticket(TransactionOptions::default(), put).map(drop)
        }),
        env_on("Environment::checkpoint", |env| env.checkpoint().map(drop)),
        env_on("Environment::sync", |env| env.sync()),
        env_on("Environment::durable_lsn", |env| {
            let _ = env.durable_lsn();
            Ok(())
        }),
        env_on("Environment::table_names", |env| env.table_names().map(drop)),
        env_on("Environment::table", |env| env.table("plain").map(drop)),
        env_on("Environment::table_or_create", |env| env.table_or_create("plain").map(drop)),
        env_on("Environment::table_or_create, creating", |env| env.table_or_create("kept inside").map(drop)),
        env_on("Environment::typed_table", |env| env.typed_table(TOLD).map(drop)),
        env_on("Environment::stat", |env| env.stat().map(drop)),
        env_on("Environment::verify", |env| env.verify().map(drop)),
        env_on("Environment::verify_with", |env| env.verify_with(|_| ()).map(drop)),
        env_on("Environment::compact", |env| env.compact().map(drop)),
        env_on("Environment::compact_with", |env| env.compact_with(|_| ()).map(drop)),
        env_on("Environment::reclaim", |env| env.reclaim()),
        env_on("Environment::archive_now", |env| env.archive_now().map(drop)),
        env_on("Environment::backup", |env| {
            let dir = tempfile::tempdir().unwrap();
            env.backup(dir.path(), BackupOptions::default()).map(drop)
        }),
        env_on("Environment::backup_with", |env| {
            let dir = tempfile::tempdir().unwrap();
            env.backup_with(dir.path(), BackupOptions::default(), |_| ()).map(drop)
        }),
        env_on("Environment::check_is_outside", |env| env.check_is_outside(std::env::temp_dir())),
        env_on("Environment::backup_on", |env| {
            let disk = Arc::new(SimDisk::new());
            env.backup_on(disk, BackupOptions::default(), |_| ()).map(drop)
        }),
        env_on("Environment::backup_to", |env| {
            env.backup_to(&mut Vec::new(), BackupOptions::default(), |_| ()).map(drop)
        }),
        env_on("Environment::repair", |env| {
            let disk = Arc::new(SimDisk::new());
            env.backup_on(Arc::clone(&disk) as _, BackupOptions::default(), |_| ())?;
            env.repair(&Backup::open_on(&*disk)?, &RepairPages::AllDamaged).map(drop)
        }),
        env_on("Environment::damaged_pages", |env| env.damaged_pages().map(drop)),
        env_on("dump", |env| env.dump(&mut Vec::new(), &DumpOptions::default()).map(drop)),
        env_on("dump, locked", |env| {
            let options = DumpOptions::default().locked(true);
            env.dump(&mut Vec::new(), &options).map(drop)
        }),
        env_on("load", |env| {
            let text = "VERSION=3\nformat=print\ndatabase=inside2\ntype=btree\nHEADER=END\n k\n v\nDATA=END\n";
            env.load(&mut text.as_bytes(), &LoadOptions::default()).map(drop)
        }),
        env_on("Environment::changes", |env| env.changes(Lsn(0)).map(drop)),
        env_on("Environment::named_changes", |env| env.named_changes("inside").map(drop)),
        env_on("Environment::forget_changes", |env| env.forget_changes("inside").map(drop)),
        env_on("Environment::log_reader", |env| env.log_reader(Lsn(0)).map(drop)),
        env_on("Environment::lock_waits", |env| {
            drop(env.lock_waits());
            Ok(())
        }),
        env_on("Environment::in_doubt", |env| {
            drop(env.in_doubt());
            Ok(())
        }),
        env_on("Environment::commit_in_doubt", |env| {
            drop(prepare(env, b"committed in doubt")?);
            env.commit_in_doubt(b"committed in doubt").map(drop)
        }),
        env_on("Environment::abort_in_doubt", |env| {
            drop(prepare(env, b"aborted in doubt")?);
            env.abort_in_doubt(b"aborted in doubt")
        }),
        env_on("Environment::is_failed", |env| {
            assert!(!env.is_failed());
            Ok(())
        }),
        env_on("Environment::effective", |env| {
            assert!(env.effective().cache_bytes > 0);
            Ok(())
        }),
        env_on("Environment::rolling_back", |env| {
            assert!(env.rolling_back().is_empty());
            Ok(())
        }),
        env_on("Environment::wait_rolled_back", |env| env.wait_rolled_back()),
        env_on("Environment::wait_rolled_back_with", |env| env.wait_rolled_back_with(|_| ())),
        env_on("Environment::recovery_report", |env| {
            let _ = env.recovery_report();
            Ok(())
        }),
        env_on("Prepared::commit", |env| prepare(env, b"committed")?.commit().map(drop)),
        env_on("Prepared::abort", |env| prepare(env, b"aborted")?.abort()),
        with("Ticket::wait", ticket(), |ticket| ticket.wait()),
        with("Ticket::is_durable", ticket(), |ticket| {
            let _ = ticket.is_durable();
            Ok(())
        }),
        with("ChangeFeed::next", feed(), |mut feed| feed.next().map(drop)),
        with("ChangeFeed::follow", feed(), |mut feed| feed.follow(Some(Duration::ZERO)).map(drop)),
        with("ChangeFeed::acknowledge", feed(), |mut feed| {
            let position = feed.position();
            feed.acknowledge(position)
        }),
        with("LogReader::next", reader(), |mut reader| reader.next().map(drop)),
        with("LogReader::prev", reader(), |mut reader| reader.prev().map(drop)),
        with("LogReader::follow", reader(), |mut reader| reader.follow(Some(Duration::ZERO)).map(drop)),
        with("LogReader::wait", reader(), |mut reader| reader.wait(Some(Duration::ZERO)).map(drop)),
        with("LogReader::oldest", reader(), |reader| reader.oldest().map(drop)),
        with("LogReader::seek", reader(), |mut reader| {
            let position = reader.position();
            reader.seek(position)
        }),
    ]
}

/// Calls of a transaction and of all that was made of it before: inside of a closure of its own they are refused.
pub fn of_transaction(txn: &Arc<Transaction>) -> Vec<Call> {
    let txn_on = |name, f: fn(&Arc<Transaction>) -> Result<(), Error>| on(name, txn, f);
    let plain = txn.bytes("plain").unwrap();
    let indexed = txn.bytes("t").unwrap();
    let told = txn.open(TOLD).unwrap();
    let loading = txn.bytes_or_create("loading").unwrap();
    let (index, typed_index) = (indexed.index("i").unwrap(), told.index::<Told>("i").unwrap());
    let entry = |key: u8| plain.entry([key]).unwrap();
    let typed_entry = |key: u8| told.entry(Told(key)).unwrap();
    let loader = || loading.sorted_loader().unwrap();
    let reader = || plain.value_reader(b"large").unwrap().unwrap();
    let writer = || plain.value_writer(b"large").unwrap();
    let structure = || txn.structure("number", NUMBER).unwrap();
    let (early, late) = (txn.savepoint().unwrap(), txn.savepoint().unwrap());
    vec![
        txn_on("Transaction::create_table", |txn| txn.create_table("made inside").map(drop)),
        txn_on("Transaction::drop_table", |txn| txn.drop_table("other")),
        txn_on("Transaction::rename_table", |txn| txn.rename_table("other", "renamed")),
        txn_on("Transaction::table_names", |txn| txn.table_names().map(drop)),
        txn_on("Transaction::set_table_types", |txn| {
            let types = TableTypes { key: Some("u64".into()), value: None };
            txn.set_table_types("empty", &types)
        }),
        txn_on("Transaction::bytes", |txn| txn.bytes("plain").map(drop)),
        txn_on("Transaction::bytes_or_create", |txn| txn.bytes_or_create("plain").map(drop)),
        txn_on("Transaction::open", |txn| txn.open(TableDef::<u64, u64>::new("typed2")).map(drop)),
        txn_on("Transaction::savepoint", |txn| txn.savepoint().map(drop)),
        with("Transaction::release", (Arc::clone(txn), late), |(txn, point)| txn.release(point)),
        txn_on("Transaction::nested", |txn| txn.nested(|_| Ok::<_, Error>(()))),
        txn_on("Transaction::try_nested", |txn| txn.try_nested(|_| Ok::<_, Error>(()))),
        txn_on("Transaction::nested_read_only", |txn| txn.nested_read_only(|_| Ok::<_, Error>(()))),
        txn_on("Transaction::create_index", |txn| {
            txn.create_index("plain", &IndexDef::new("x", IndexKeys::Bytes { from: 0, to: Some(4) }))
        }),
        txn_on("Transaction::create_index_with", |txn| {
            let index = IndexDef::new("y", IndexKeys::Bytes { from: 0, to: Some(4) });
            txn.create_index_with("plain", &index, &mut |_| ControlFlow::Continue(()))
        }),
        txn_on("Transaction::create_index_if_missing", |txn| {
            let index = IndexDef::new("z", IndexKeys::Bytes { from: 0, to: Some(4) });
            txn.create_index_if_missing("plain", &index).map(drop)
        }),
        txn_on("Transaction::drop_index", |txn| txn.drop_index("t", "whole")),
        txn_on("Transaction::create_structure", |txn| txn.create_structure("third", NUMBER, &[]).map(drop)),
        txn_on("Transaction::structure", |txn| txn.structure("number", NUMBER).map(drop)),
        txn_on("Transaction::structure_names", |txn| txn.structure_names().map(drop)),
        txn_on("Transaction::drop_structure", |txn| txn.drop_structure("number")),
        with("StructureHandle::enter", structure(), |handle| handle.enter(Mode::IX, |_, _| Ok(()))),
        on("BytesTable::get", &plain, |t| t.get([3]).map(drop)),
        on("BytesTable::get_with", &plain, |t| t.get_with([3], |_| ()).map(drop)),
        on("BytesTable::get_for_update", &plain, |t| t.get_for_update([3]).map(drop)),
        on("BytesTable::contains", &plain, |t| t.contains([3]).map(drop)),
        on("BytesTable::put", &plain, |t| t.put([3], b"x")),
        on("BytesTable::put, indexed", &indexed, |t| t.put([3], b"x")),
        on("BytesTable::insert", &plain, |t| t.insert([3], b"x").map(drop)),
        on("BytesTable::insert_new", &plain, |t| t.insert_new(b"n", b"x")),
        on("BytesTable::delete", &plain, |t| t.delete([3]).map(drop)),
        on("BytesTable::remove", &plain, |t| t.remove([4]).map(drop)),
        on("BytesTable::pop_first", &plain, |t| t.pop_first().map(drop)),
        on("BytesTable::pop_last", &plain, |t| t.pop_last().map(drop)),
        on("BytesTable::delete_range", &plain, |t| t.delete_range(&[6u8][..]..&[7u8][..]).map(drop)),
        on("BytesTable::modify", &plain, |t| t.modify([3], |_| None).map(drop)),
        on("BytesTable::entry", &plain, |t| t.entry([3]).map(drop)),
        on("BytesTable::range", &plain, |t| t.range(..).map(drop)),
        on("BytesTable::prefix", &plain, |t| t.prefix([3]).map(drop)),
        on("BytesTable::first", &plain, |t| t.first().map(drop)),
        on("BytesTable::last", &plain, |t| t.last().map(drop)),
        on("BytesTable::is_empty", &plain, |t| t.is_empty().map(drop)),
        on("BytesTable::count", &plain, |t| t.count().map(drop)),
        on("BytesTable::estimated_count", &plain, |t| t.estimated_count().map(drop)),
        on("BytesTable::value_len", &plain, |t| t.value_len(b"large").map(drop)),
        on("BytesTable::value_reader", &plain, |t| t.value_reader(b"large").map(drop)),
        on("BytesTable::value_writer", &plain, |t| t.value_writer(b"large")?.set_len(10)),
        on("BytesTable::sorted_loader", &plain, |t| t.sorted_loader().map(drop)),
        on("BytesTable::load_sorted", &loading, |t| t.clone().load_sorted([([1], [1])]).map(drop)),
        on("BytesTable::try_load_sorted", &loading, |t| {
            t.clone().try_load_sorted([Ok::<_, Error>(([2], [1]))]).map(drop)
        }),
        with("Entry::or_insert", entry(20), |entry| entry.or_insert(b"x").map(drop)),
        with("Entry::or_insert_with", entry(21), |entry| entry.or_insert_with(|| vec![1]).map(drop)),
        with("Entry::and_modify", entry(3), |entry| entry.and_modify(|value| value.push(1)).map(drop)),
        with("Entry::replace", entry(3), |entry| entry.replace(b"x").map(drop)),
        with("Entry::remove", entry(3), |entry| entry.remove().map(drop)),
        with("Range::for_each_ref", plain.range(..).unwrap(), |range| range.for_each_ref(|_, _| true)),
        with("next of a range", plain.range(..).unwrap(), |mut range| range.next().unwrap_or_else(none).map(drop)),
        with("next_back of a range", plain.range(..).unwrap(), |mut range| {
            range.next_back().unwrap_or_else(none).map(drop)
        }),
        with("SortedLoader::push", loader(), |mut loader| loader.push([1], [1])),
        with("SortedLoader::finish", loader(), |loader| loader.finish().map(drop)),
        with("ValueReader::len", reader(), |reader| reader.len().map(drop)),
        with("ValueReader::is_empty", reader(), |reader| reader.is_empty().map(drop)),
        with("read of a value reader", reader(), |mut reader| reader.read(&mut [0; 9]).map(drop).map_err(io)),
        with("seek of a value reader", reader(), |mut reader| reader.seek(SeekFrom::End(-1)).map(drop).map_err(io)),
        with("ValueWriter::len", writer(), |writer| writer.len().map(drop)),
        with("ValueWriter::is_empty", writer(), |writer| writer.is_empty().map(drop)),
        with("ValueWriter::set_len", writer(), |mut writer| writer.set_len(10)),
        with("write of a value writer", writer(), |mut writer| writer.write(&[0; 9]).map(drop).map_err(io)),
        with("seek of a value writer", writer(), |mut writer| writer.seek(SeekFrom::End(-1)).map(drop).map_err(io)),
        on("BytesTable::index", &indexed, |t| t.index("i")?.lookup(b"a").map(drop)),
        on("Index::lookup", &index, |index| index.lookup(b"a").map(drop)),
        on("Index::get", &index, |index| index.get(b"a").map(drop)),
        on("Index::range", &index, |index| index.range(..).map(drop)),
        on("Index::prefix", &index, |index| index.prefix(b"a").map(drop)),
        with("next of an index", index.range(..).unwrap(), |mut range| range.next().unwrap_or_else(none).map(drop)),
        with("IndexRange::records", index.range(..).unwrap(), |range| {
            range.records().next().unwrap_or_else(none).map(drop)
        }),
        on("Table::get", &told, |t| t.get(Told(3)).map(drop)),
        on("Table::get_with", &told, |t| t.get_with(Told(3), |_| ()).map(drop)),
        on("Table::get_for_update", &told, |t| t.get_for_update(Told(3)).map(drop)),
        on("Table::contains", &told, |t| t.contains(Told(3)).map(drop)),
        on("Table::put", &told, |t| t.put(Told(3), Told(3))),
        on("Table::insert", &told, |t| t.insert(Told(3), Told(3)).map(drop)),
        on("Table::insert_new", &told, |t| t.insert_new(Told(100), Told(3))),
        on("Table::delete", &told, |t| t.delete(Told(3)).map(drop)),
        on("Table::remove", &told, |t| t.remove(Told(4)).map(drop)),
        on("Table::pop_first", &told, |t| t.pop_first().map(drop)),
        on("Table::pop_last", &told, |t| t.pop_last().map(drop)),
        on("Table::delete_range", &told, |t| t.delete_range(Told(6)..Told(7)).map(drop)),
        on("Table::load_sorted", &told, |t| t.clone().load_sorted([(Told(200), Told(1))]).map(drop)),
        on("Table::try_load_sorted", &told, |t| {
            t.clone().try_load_sorted([Ok::<_, Error>((Told(201), Told(1)))]).map(drop)
        }),
        on("Table::modify", &told, |t| t.modify(Told(3), Some).map(drop)),
        on("Table::entry", &told, |t| t.entry(Told(3)).map(drop)),
        on("Table::get_or_insert_with", &told, |t| t.get_or_insert_with(Told(101), || Told(1)).map(drop)),
        on("Table::range", &told, |t| t.range(..).map(drop)),
        on("Table::prefix", &told, |t| t.prefix(Told(3)).map(drop)),
        on("Table::first", &told, |t| t.first().map(drop)),
        on("Table::last", &told, |t| t.last().map(drop)),
        on("Table::is_empty", &told, |t| t.is_empty().map(drop)),
        on("Table::count", &told, |t| t.count().map(drop)),
        on("Table::index", &told, |t| t.index::<Told>("i")?.lookup(Told(1)).map(drop)),
        on("Table::sorted_loader", &told, |t| t.sorted_loader().map(drop)),
        with("TypedRange::for_each_ref", told.range(..).unwrap(), |range| range.for_each_ref(|_, _| true)),
        with("next of a typed range", told.range(..).unwrap(), |mut range| range.next().unwrap_or_else(none).map(drop)),
        with("TypedEntry::or_insert", typed_entry(120), |entry| entry.or_insert(Told(1)).map(drop)),
        with("TypedEntry::or_insert_with", typed_entry(121), |entry| entry.or_insert_with(|| Told(1)).map(drop)),
        with("TypedEntry::and_modify", typed_entry(3), |entry| entry.and_modify(|value| value.0 += 1).map(drop)),
        with("TypedEntry::replace", typed_entry(3), |entry| entry.replace(Told(9)).map(drop)),
        with("TypedEntry::remove", typed_entry(3), |entry| entry.remove().map(drop)),
        on("TypedIndex::lookup", &typed_index, |index| index.lookup(Told(1)).map(drop)),
        on("TypedIndex::get", &typed_index, |index| index.get(Told(1)).map(drop)),
        on("TypedIndex::range", &typed_index, |index| index.range(..).map(drop)),
        on("TypedIndex::prefix", &typed_index, |index| index.prefix(Told(1)).map(drop)),
        with("next of a typed index", typed_index.range(..).unwrap(), |mut range| {
            range.next().unwrap_or_else(none).map(drop)
        }),
        with("Transaction::rollback_to", (Arc::clone(txn), early), |(txn, point)| txn.rollback_to(point)),
    ]
    .into_iter()
    .chain(of_environments_tables(txn))
    .collect()
}

/// Calls of a transaction by handles of the environment.
fn of_environments_tables(txn: &Arc<Transaction>) -> Vec<Call> {
    let plain = (Arc::clone(txn), env_table());
    let told = (Arc::clone(txn), typed_env_table());
    vec![
        on("EnvTable::of", &plain, |(txn, t)| t.of(txn).map(drop)),
        on("EnvTable::table_id", &plain, |(txn, t)| t.table_id(txn).map(drop)),
        on("EnvTable::root_page", &plain, |(txn, t)| t.root_page(txn).map(drop)),
        on("EnvTable::types", &plain, |(txn, t)| t.types(txn).map(drop)),
        on("EnvTable::indexes", &plain, |(txn, t)| t.indexes(txn).map(drop)),
        on("EnvTable::index", &plain, |(txn, t)| t.index(txn, "i").map(drop)),
        on("EnvTable::get", &plain, |(txn, t)| t.get(txn, [3]).map(drop)),
        on("EnvTable::get_with", &plain, |(txn, t)| t.get_with(txn, [3], |_| ()).map(drop)),
        on("EnvTable::get_for_update", &plain, |(txn, t)| t.get_for_update(txn, [3]).map(drop)),
        on("EnvTable::contains", &plain, |(txn, t)| t.contains(txn, [3]).map(drop)),
        on("EnvTable::put", &plain, |(txn, t)| t.put(txn, [3], b"x")),
        on("EnvTable::insert", &plain, |(txn, t)| t.insert(txn, [3], b"x").map(drop)),
        on("EnvTable::insert_new", &plain, |(txn, t)| t.insert_new(txn, b"o", b"x")),
        on("EnvTable::delete", &plain, |(txn, t)| t.delete(txn, [3]).map(drop)),
        on("EnvTable::remove", &plain, |(txn, t)| t.remove(txn, [5]).map(drop)),
        on("EnvTable::pop_first", &plain, |(txn, t)| t.pop_first(txn).map(drop)),
        on("EnvTable::pop_last", &plain, |(txn, t)| t.pop_last(txn).map(drop)),
        on("EnvTable::delete_range", &plain, |(txn, t)| t.delete_range(txn, &[6u8][..]..&[7u8][..]).map(drop)),
        on("EnvTable::modify", &plain, |(txn, t)| t.modify(txn, [3], |_| None).map(drop)),
        on("EnvTable::entry", &plain, |(txn, t)| t.entry(txn, [3]).map(drop)),
        on("EnvTable::range", &plain, |(txn, t)| t.range(txn, ..).map(drop)),
        on("EnvTable::prefix", &plain, |(txn, t)| t.prefix(txn, [3]).map(drop)),
        on("EnvTable::first", &plain, |(txn, t)| t.first(txn).map(drop)),
        on("EnvTable::last", &plain, |(txn, t)| t.last(txn).map(drop)),
        on("EnvTable::is_empty", &plain, |(txn, t)| t.is_empty(txn).map(drop)),
        on("EnvTable::count", &plain, |(txn, t)| t.count(txn).map(drop)),
        on("EnvTable::estimated_count", &plain, |(txn, t)| t.estimated_count(txn).map(drop)),
        on("EnvTable::value_len", &plain, |(txn, t)| t.value_len(txn, b"large").map(drop)),
        on("EnvTable::value_reader", &plain, |(txn, t)| t.value_reader(txn, b"large").map(drop)),
        on("EnvTable::value_writer", &plain, |(txn, t)| t.value_writer(txn, b"large")?.set_len(10)),
        on("EnvTable::sorted_loader", &plain, |(txn, t)| t.sorted_loader(txn).map(drop)),
        on("EnvTable::load_sorted", &plain, |(txn, t)| t.load_sorted(txn, [([201], [1])]).map(drop)),
        on("EnvTable::try_load_sorted", &plain, |(txn, t)| {
            t.try_load_sorted(txn, [Ok::<_, Error>(([202], [1]))]).map(drop)
        }),
        on("TypedEnvTable::of", &told, |(txn, t)| t.of(txn).map(drop)),
        on("TypedEnvTable::get", &told, |(txn, t)| t.get(txn, Told(3)).map(drop)),
        on("TypedEnvTable::get_with", &told, |(txn, t)| t.get_with(txn, Told(3), |_| ()).map(drop)),
        on("TypedEnvTable::get_for_update", &told, |(txn, t)| t.get_for_update(txn, Told(3)).map(drop)),
        on("TypedEnvTable::contains", &told, |(txn, t)| t.contains(txn, Told(3)).map(drop)),
        on("TypedEnvTable::put", &told, |(txn, t)| t.put(txn, Told(3), Told(3))),
        on("TypedEnvTable::insert", &told, |(txn, t)| t.insert(txn, Told(3), Told(3)).map(drop)),
        on("TypedEnvTable::insert_new", &told, |(txn, t)| t.insert_new(txn, Told(102), Told(3))),
        on("TypedEnvTable::delete", &told, |(txn, t)| t.delete(txn, Told(3)).map(drop)),
        on("TypedEnvTable::remove", &told, |(txn, t)| t.remove(txn, Told(5)).map(drop)),
        on("TypedEnvTable::pop_first", &told, |(txn, t)| t.pop_first(txn).map(drop)),
        on("TypedEnvTable::pop_last", &told, |(txn, t)| t.pop_last(txn).map(drop)),
        on("TypedEnvTable::delete_range", &told, |(txn, t)| t.delete_range(txn, Told(6)..Told(7)).map(drop)),
        on("TypedEnvTable::sorted_loader", &told, |(txn, t)| t.sorted_loader(txn).map(drop)),
        on("TypedEnvTable::load_sorted", &told, |(txn, t)| t.load_sorted(txn, [(Told(203), Told(1))]).map(drop)),
        on("TypedEnvTable::try_load_sorted", &told, |(txn, t)| {
            t.try_load_sorted(txn, [Ok::<_, Error>((Told(204), Told(1)))]).map(drop)
        }),
        on("TypedEnvTable::modify", &told, |(txn, t)| t.modify(txn, Told(3), Some).map(drop)),
        on("TypedEnvTable::entry", &told, |(txn, t)| t.entry(txn, Told(3)).map(drop)),
        on("TypedEnvTable::get_or_insert_with", &told, |(txn, t)| {
            t.get_or_insert_with(txn, Told(103), || Told(1)).map(drop)
        }),
        on("TypedEnvTable::index", &told, |(txn, t)| t.index::<Told>(txn, "i")?.lookup(Told(1)).map(drop)),
        on("TypedEnvTable::range", &told, |(txn, t)| t.range(txn, ..).map(drop)),
        on("TypedEnvTable::prefix", &told, |(txn, t)| t.prefix(txn, Told(3)).map(drop)),
        on("TypedEnvTable::first", &told, |(txn, t)| t.first(txn).map(drop)),
        on("TypedEnvTable::last", &told, |(txn, t)| t.last(txn).map(drop)),
        on("TypedEnvTable::is_empty", &told, |(txn, t)| t.is_empty(txn).map(drop)),
        on("TypedEnvTable::count", &told, |(txn, t)| t.count(txn).map(drop)),
    ]
}

fn none<T>() -> Result<T, Error> {
    Err(Error::Finished)
}

/// Calls that need nothing of the transaction.
pub fn answered_at_once(txn: &Arc<Transaction>) -> Vec<Call> {
    let (plain, indexed, told) = (txn.bytes("plain").unwrap(), txn.bytes("t").unwrap(), txn.open(TOLD).unwrap());
    let (index, typed_index) = (indexed.index("i").unwrap(), told.index::<Told>("i").unwrap());
    fn ok<T>(_: T) -> Result<(), Error> {
        Ok(())
    }
    vec![
        on("Transaction::xid", txn, |txn| ok((txn.xid(), format!("{txn:?}")))),
        on("Transaction::isolation", txn, |txn| ok(txn.isolation())),
        on("Transaction::snapshot_lsn", txn, |txn| ok(txn.snapshot_lsn())),
        on("Transaction::run_inside", txn, |txn| ok(txn.run_inside(|| 1))),
        on("BytesTable::name", &plain, |t| ok((t.name().len(), format!("{t:?}")))),
        on("BytesTable::table_id", &plain, |t| ok(t.table_id())),
        on("BytesTable::root_page", &plain, |t| ok(t.root_page())),
        on("BytesTable::types", &plain, |t| ok(t.types().clone())),
        on("BytesTable::indexes", &indexed, |t| ok(t.indexes())),
        with("EnvTable::name", env_table(), |t| ok((t.name().len(), format!("{t:?}")))),
        with("TypedEnvTable::name", typed_env_table(), |t| ok((t.name().len(), format!("{t:?}")))),
        with("TypedEnvTable::as_bytes", typed_env_table(), |t| ok(t.as_bytes().clone())),
        on("Table::name", &told, |t| ok(t.name().len())),
        on("Table::as_bytes", &told, |t| ok(t.as_bytes().clone())),
        on("Index::definition", &index, |index| ok(index.definition().clone())),
        on("Index::key_type", &index, |index| ok(index.key_type().map(str::len))),
        on("Index::table", &index, |index| ok(index.table().clone())),
        on("TypedIndex::definition", &typed_index, |index| ok(index.definition().clone())),
        with("Entry::key", plain.entry([3]).unwrap(), |entry| ok(entry.key().len())),
        with("Entry::value", plain.entry([3]).unwrap(), |entry| ok(entry.value().map(<[u8]>::len))),
        with("TypedEntry::key", told.entry(Told(3)).unwrap(), |entry| ok(entry.key().is_ok())),
        with("TypedEntry::value", told.entry(Told(3)).unwrap(), |entry| ok(entry.value().copied())),
        with(
            "SortedLoader::count",
            txn.bytes("loading").unwrap().sorted_loader().unwrap(),
            |loader| ok(loader.count()),
        ),
        with("StructureHandle::name", txn.structure("number", NUMBER).unwrap(), |handle| ok(handle.name().len())),
    ]
}

/// What ends a transaction or the environment, inside of a closure: on handles of their own.
pub fn ends(env: &Environment) -> Vec<Call> {
    let txn = || env.begin().unwrap();
    vec![
        with("Transaction::commit", txn(), |txn| txn.commit().map(drop)),
        with("Transaction::commit_with", txn(), |txn| txn.commit_with(Durability::Async).map(drop)),
        with("Transaction::abort", txn(), |txn| txn.abort()),
        with("Transaction::prepare", txn(), |txn| txn.prepare(b"ended inside").map(drop)),
        with("Environment::close", env.clone(), |env| env.close()),
    ]
}
