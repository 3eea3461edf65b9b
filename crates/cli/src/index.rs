//! Indexes: made, dropped, listed, and records found by them; and tables that get another name.

use std::ops::Bound;

use anyhow::anyhow;
use ledgerstone::{Error, IndexDef, IndexRange, IndexedRecord, IndexedRecords};
use serde_json::json;

use crate::args::{IndexCommand, IndexCreateArgs, IndexListArgs, IndexLookupArgs, IndexNameArgs, RenameArgs};
use crate::commands::{index_key_json, record_json, value_line};
use crate::interrupt;
use crate::opening::{open, open_to_read};
use crate::outcome::Outcome;
use crate::output::Output;
use crate::progress::{Progress, Unit};
use crate::text::{Text, readable};

pub(crate) fn run(command: &IndexCommand, output: &Output) -> anyhow::Result<Outcome> {
    match command {
        IndexCommand::Create(args) => create(args, output),
        IndexCommand::Drop(args) => drop_index(args, output),
        IndexCommand::List(args) => list(args, output),
        IndexCommand::Lookup(args) => lookup(args, output),
    }
}

fn create(args: &IndexCreateArgs, output: &Output) -> anyhow::Result<Outcome> {
    let table = &args.table.table;
    let index = IndexDef::new(&args.name, args.keys.clone());
    let index = if args.unique { index.unique() } else { index };
    let env = open(&args.table.at, output)?;
    let mut progress = Progress::new(output);
    let mut count = 0;
    let heeding = interrupt::heed();
    let mut step = |now: u64| {
        count = now;
        progress.show("read and sort", count, 0, Unit::Count);
        interrupt::flow()
    };
    let made = env.transact(|txn| txn.create_index_with(table, &index, &mut step));
    made.map_err(|error| interrupt::told(error, || format!("after {count} records and entries: no index was made")))?;
    drop((progress, heeding));
    env.close()?;
    let made = json!({ "table": table, "index": args.name, "keys": args.keys.to_string(), "unique": args.unique });
    output.done(made, true)?;
    output.note(format_args!("index {} of table {table} made by {}", args.name, args.keys));
    Ok(Outcome::Done)
}

fn drop_index(args: &IndexNameArgs, output: &Output) -> anyhow::Result<Outcome> {
    let env = open(&args.table.at, output)?;
    let done = env.transact(|txn| txn.drop_index(&args.table.table, &args.name));
    let is_done = match done {
        Err(error @ Error::NoSuchIndex { .. }) => {
            output.note(error);
            false
        }
        other => other.map(|()| true)?,
    };
    env.close()?;
    output.done(json!({ "table": args.table.table, "index": args.name }), is_done)?;
    Ok(if is_done { Outcome::Done } else { Outcome::Not })
}

fn list(args: &IndexListArgs, output: &Output) -> anyhow::Result<Outcome> {
    let env = open_to_read(&args.at, output)?;
    let txn = env.snapshot()?; // Waits for nobody.
    let tables = match &args.table {
        Some(table) => vec![table.clone()],
        None => txn.table_names()?,
    };
    for table in tables {
        for index in txn.bytes(&table)?.indexes() {
            let (name, keys, is_unique) = (index.name(), index.keys().to_string(), index.is_unique());
            if output.is_json {
                output.json(&json!({ "table": table, "index": name, "keys": keys, "unique": is_unique }))?;
            } else {
                let unique = if is_unique { "\tunique" } else { "" };
                let (table, name, keys) =
                    (readable(table.as_bytes()), readable(name.as_bytes()), readable(keys.as_bytes()));
                output.line(format_args!("{table}\t{name}\t{keys}{unique}"))?;
            }
        }
    }
    output.flush()?;
    txn.abort()?; // It only read.
    env.close()?;
    Ok(Outcome::Done)
}

fn lookup(args: &IndexLookupArgs, output: &Output) -> anyhow::Result<Outcome> {
    let env = open_to_read(&args.index.table.at, output)?;
    let txn = env.begin()?;
    let table = txn.bytes(&args.index.table.table)?;
    let text = args.text.of(&table)?;
    let index = table.index(&args.index.name)?;
    let keys = args.text.of_index_keys(index.key_type());
    let ranges = match &args.prefix {
        Some(prefix) => vec![index.prefix(&keys.prefix(prefix).map_err(|what| anyhow!(what))?)?],
        None => {
            let parts = keys.index_parts(args.key.as_deref(), args.from.as_deref(), args.to.as_deref());
            let range = |(from, to): (Bound<Vec<u8>>, Bound<Vec<u8>>)| {
                index.range((from.as_ref().map(|key| &key[..]), to.as_ref().map(|key| &key[..])))
            };
            let parts = parts.map_err(|what| anyhow!("the index key: {what}"))?;
            parts.into_iter().map(range).collect::<Result<Vec<_>, _>>()?
        }
    };
    let count = print_all(args, (&text, &keys), ranges, output)?;
    output.flush()?;
    drop((index, table));
    txn.abort()?; // It only read.
    env.close()?;
    match &args.key {
        Some(key) if count == 0 => {
            output.note(format_args!("no index key {key} in index {}", args.index.name));
            Ok(Outcome::Not)
        }
        _ => Ok(Outcome::Done),
    }
}

/// Prints the entries, with the records' values if they are wanted, and says how many there were.
fn print_all(
    args: &IndexLookupArgs,
    (text, keys): (&Text, &Text),
    ranges: Vec<IndexRange>,
    output: &Output,
) -> anyhow::Result<u64> {
    let limit = usize::try_from(args.limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    let mut count = 0;
    let _heeding = interrupt::heed();
    let mut print = |index_key: &[u8], key: &[u8], value: Option<&[u8]>| -> anyhow::Result<()> {
        interrupt::check(|| format!("after {count} records"))?;
        count += 1;
        if output.is_json {
            let mut record = record_json(text, key, value);
            index_key_json(keys, index_key, &mut record);
            output.json(&record)?;
            return Ok(());
        }
        let shown =
            |text: &Text, key: &[u8]| text.key_text(key).map_or_else(|| readable(key), |key| readable(key.as_bytes()));
        let (index_key, key) = (shown(keys, index_key), shown(text, key));
        match value {
            None => output.line(format_args!("{index_key}\t{key}"))?,
            Some(value) => output.line(format_args!("{index_key}\t{key}\t{}", value_line(text, value)))?,
        }
        Ok(())
    };
    if args.keys_only {
        let mut entry = |entry: Result<(Vec<u8>, Vec<u8>), Error>| {
            let (index_key, key) = entry?;
            print(&index_key, &key, None)
        };
        if args.reverse {
            ranges.into_iter().rev().flat_map(IndexRange::rev).take(limit).try_for_each(&mut entry)?;
        } else {
            ranges.into_iter().flatten().take(limit).try_for_each(&mut entry)?;
        }
    } else {
        let mut record = |record: Result<IndexedRecord, Error>| {
            let (index_key, key, value) = record?;
            print(&index_key, &key, Some(&value))
        };
        let records = ranges.into_iter().map(IndexRange::records);
        if args.reverse {
            records.rev().flat_map(IndexedRecords::rev).take(limit).try_for_each(&mut record)?;
        } else {
            records.flatten().take(limit).try_for_each(&mut record)?;
        }
    }
    Ok(count)
}

pub(crate) fn rename(args: &RenameArgs, output: &Output) -> anyhow::Result<Outcome> {
    let env = open(&args.table.at, output)?;
    env.transact(|txn| txn.rename_table(&args.table.table, &args.new))?;
    env.close()?;
    output.done(json!({ "table": args.table.table, "new": args.new }), true)?;
    output.note(format_args!("table {} is named {} now", args.table.table, args.new));
    Ok(Outcome::Done)
}
