//! Indexes: made, dropped, listed, and records found by them; and tables that get another name.

use std::ops::Bound;

use anyhow::anyhow;
use ledgerstone::{Error, IndexDef, IndexKeys, IndexRange, IndexedRecord, IndexedRecords};
use serde_json::{Value, json};

use crate::commands::{ShownArgs, index_key_json, record_json, value_line};
use crate::interrupt;
use crate::opening::{DirArgs, TableArgs, open, open_to_read};
use crate::outcome::Outcome;
use crate::output::Output;
use crate::progress::{Progress, Unit};
use crate::text::{Text, TextArgs, readable};

/// `rename`
#[derive(Clone, Debug, clap::Args)]
pub struct RenameArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub table: TableArgs,
    /// The new name.
    pub new: String,
}

/// What to do with indexes.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum IndexCommand {
    /// Make an index from the records of a table. Every later change updates the index.
    Create(IndexCreateArgs),
    /// Drop an index. Exit code 1: the table has no such index.
    Drop(IndexNameArgs),
    /// List the indexes of one table or of all.
    List(IndexListArgs),
    /// Print records by an index: index key, key, value. Exit code 1: no record has this KEY.
    Lookup(IndexLookupArgs),
}

/// `index create`
#[derive(Clone, Debug, clap::Args)]
pub struct IndexCreateArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub table: TableArgs,
    /// Name of the index.
    #[arg(value_name = "INDEX")]
    pub name: String,
    /// What the index keys are: `value`, `bytes:FROM..TO`, `field:NUMBER` (fields end with tabs),
    /// `field:NUMBER:SEPARATOR`, `json:MEMBER` (for rows that `import` has stored) or `json:/POINTER`.
    pub keys: IndexKeys,
    /// Refuse a record if another record has the same index key.
    #[arg(long)]
    pub unique: bool,
}

/// An index of a table.
#[derive(Clone, Debug, clap::Args)]
pub struct IndexNameArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub table: TableArgs,
    /// Name of the index.
    #[arg(value_name = "INDEX")]
    pub name: String,
}

/// `index list`
#[derive(Clone, Debug, clap::Args)]
pub struct IndexListArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub at: DirArgs,
    /// List only the indexes of this table.
    pub table: Option<String>,
}

/// `index lookup`
#[derive(Clone, Debug, clap::Args)]
pub struct IndexLookupArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub index: IndexNameArgs,
    /// The index key. Without it, all records are printed, or those that the options choose. In an index by a JSON
    /// member, a number finds both the number and the same text. In double quotes it finds only the text.
    #[arg(allow_negative_numbers = true, conflicts_with_all = ["from", "to", "prefix"])]
    pub key: Option<String>,
    /// Begin with this index key.
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub from: Option<String>,
    /// End before this index key.
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub to: Option<String>,
    /// Print only index keys that begin with this.
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
    pub prefix: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub shown: ShownArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub text: TextArgs,
}

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
    // A record is read, and then its entry is written. Few indexes have more entries for a record, or none.
    let about = progress.about(|| Ok(2 * env.snapshot()?.bytes(table)?.estimated_count()?));
    let mut count = 0;
    let heeding = interrupt::heed();
    let mut step = |now: u64| {
        count = now;
        progress.show_about("read and sort", count, about, Unit::Count("records"));
        interrupt::flow()
    };
    let made = env.transact(|txn| txn.create_index_with(table, &index, &mut step));
    made.map_err(|error| interrupt::told(error, || format!("after {count} records and entries: no index was made")))?;
    drop((progress, heeding));
    env.close()?;
    output.done(index_json(table, &index), true)?;
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
            if output.is_json {
                output.json(&index_json(&table, &index))?;
            } else {
                let unique = if index.is_unique() { "\tunique" } else { "" };
                let [table, name, keys] =
                    [&table, index.name(), &index.keys().to_string()].map(|text| readable(text.as_bytes()));
                output.line(format_args!("{table}\t{name}\t{keys}{unique}"))?;
            }
        }
    }
    output.flush()?;
    txn.end()?;
    env.close()?;
    Ok(Outcome::Done)
}

/// An index as an object.
pub(crate) fn index_json(table: &str, index: &IndexDef) -> Value {
    let (name, keys, is_unique) = (index.name(), index.keys().to_string(), index.is_unique());
    json!({ "table": table, "index": name, "keys": keys, "unique": is_unique })
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
    txn.end()?;
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
    let limit = args.shown.limit();
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
    if args.shown.keys_only {
        let mut entry = |entry: Result<(Vec<u8>, Vec<u8>), Error>| {
            let (index_key, key) = entry?;
            print(&index_key, &key, None)
        };
        if args.shown.reverse {
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
        if args.shown.reverse {
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
