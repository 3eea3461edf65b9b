//! One record or a range of them: put, get, del, scan.

use std::io::Read;
use std::ops::Bound;

use anyhow::{Context, anyhow};
use ledgerstone::Error;
use serde_json::{Map, Value};

use crate::interrupt;
use crate::opening::{TableArgs, open, open_to_read};
use crate::outcome::Outcome;
use crate::output::Output;
use crate::text::{Text, TextArgs, readable, to_hex};

/// `put`
#[derive(Clone, Debug, clap::Args)]
pub struct PutArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub table: TableArgs,
    /// The key.
    #[arg(allow_negative_numbers = true)]
    pub key: String,
    /// The value. `-` reads the value from standard input, byte for byte.
    #[arg(allow_negative_numbers = true)]
    pub value: String,
    /// Do nothing if the key has a value already (exit code 1).
    #[arg(long)]
    pub new: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub text: TextArgs,
}

/// `get`
#[derive(Clone, Debug, clap::Args)]
pub struct GetArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub table: TableArgs,
    /// The key.
    #[arg(allow_negative_numbers = true)]
    pub key: String,
    /// Print the value byte for byte, without a line ending.
    #[arg(long, conflicts_with = "hex")]
    pub raw: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub text: TextArgs,
}

/// `del`
#[derive(Clone, Debug, clap::Args)]
pub struct DelArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub table: TableArgs,
    /// The key.
    #[arg(allow_negative_numbers = true)]
    pub key: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub text: TextArgs,
}

/// `scan`
#[derive(Clone, Debug, clap::Args)]
pub struct ScanArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub table: TableArgs,
    /// Begin with this key.
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub from: Option<String>,
    /// End before this key.
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub to: Option<String>,
    /// Print only keys that begin with this.
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to", "key_type"])]
    pub prefix: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub shown: ShownArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub text: TextArgs,
}

/// Which records of a range are printed, and what of them: of a table, or of an index. From where to where is said
/// beside this, because the one means keys and the other index keys.
#[derive(Clone, Debug, clap::Args)]
pub struct ShownArgs {
    /// Print from the last key to the first.
    #[arg(long)]
    pub reverse: bool,
    /// Print at most this many records.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true, value_parser = crate::text::parse_count)]
    pub limit: Option<u64>,
    /// Print keys without values.
    #[arg(long)]
    pub keys_only: bool,
}

impl ShownArgs {
    /// At most this many records.
    pub(crate) fn limit(&self) -> usize {
        self.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
    }
}

pub(crate) fn put(args: &PutArgs, output: &Output) -> anyhow::Result<Outcome> {
    let piped = match args.value.as_str() {
        "-" => {
            let mut value = Vec::new();
            std::io::stdin().lock().read_to_end(&mut value).context("cannot read the value from standard input")?;
            Some(value)
        }
        _ => None,
    };
    let env = open(&args.table.at, output)?;
    let mut record = None;
    let done = env.try_transact(|txn| {
        let table = args.text.open_or_create(txn, &args.table.table)?;
        let text = args.text.of(&table)?;
        let key = key(&text, &args.key)?;
        let value = match &piped {
            Some(value) => text.piped_value(value).map_err(|what| anyhow!("the value: {what}"))?,
            None => text.value(&args.value).map_err(|what| anyhow!("the value: {what}"))?,
        };
        record = Some(record_json(&text, &key, None));
        if args.new {
            table.insert_new(&key, &value)?
        } else {
            table.put(&key, &value)?
        }
        anyhow::Ok(())
    });
    let outcome = match done {
        Ok(()) => Outcome::Done,
        Err(error) if matches!(error.downcast_ref(), Some(Error::KeyExists { .. })) => {
            output.note(format_args!("key {} has a value already; put without --new replaces it", args.key));
            Outcome::Not
        }
        Err(error) => return Err(error),
    };
    env.close()?;
    if let Some(record) = record {
        output.done(record, outcome == Outcome::Done)?;
    }
    Ok(outcome)
}

pub(crate) fn get(args: &GetArgs, output: &Output) -> anyhow::Result<Outcome> {
    let env = open_to_read(&args.table.at, output)?;
    let txn = env.begin()?;
    let table = txn.bytes(&args.table.table)?;
    let text = args.text.of(&table)?;
    let key = key(&text, &args.key)?;
    let value = table.get(&key)?;
    drop(table);
    txn.end()?;
    env.close()?;
    let Some(value) = value else {
        if output.is_json {
            let mut record = record_json(&text, &key, None);
            record["value"] = Value::Null;
            output.json(&record)?;
        }
        output.note(format_args!("no key {} in table {}", args.key, args.table.table));
        return Ok(Outcome::Not);
    };
    if args.raw {
        output.bytes(&value)?;
    } else if output.is_json {
        output.json(&record_json(&text, &key, Some(&value)))?;
    } else {
        output.line(value_line(&text, &value))?;
    }
    output.flush()?;
    Ok(Outcome::Done)
}

pub(crate) fn del(args: &DelArgs, output: &Output) -> anyhow::Result<Outcome> {
    let env = open(&args.table.at, output)?;
    let (record, was_there) = env.try_transact(|txn| {
        let table = txn.bytes(&args.table.table)?;
        let text = args.text.of(&table)?;
        let key = key(&text, &args.key)?;
        anyhow::Ok((record_json(&text, &key, None), table.delete(&key)?))
    })?;
    env.close()?;
    output.done(record, was_there)?;
    if was_there {
        return Ok(Outcome::Done);
    }
    output.note(format_args!("no key {} in table {}", args.key, args.table.table));
    Ok(Outcome::Not)
}

pub(crate) fn scan(args: &ScanArgs, output: &Output) -> anyhow::Result<Outcome> {
    let env = open_to_read(&args.table.at, output)?;
    let txn = env.begin()?;
    let table = txn.bytes(&args.table.table)?;
    let text = args.text.of(&table)?;
    let bound = |bound: &Option<String>| bound.as_ref().map(|bound| key(&text, bound)).transpose();
    let (from, to) = (bound(&args.from)?, bound(&args.to)?);
    if let (Some(from), Some(to)) = (&from, &to)
        && from >= to
    {
        output.note("--from is not below --to: no key lies between them, and --reverse does not change that");
    }
    let prefix = args.prefix.as_ref().map(|prefix| text.prefix(prefix).map_err(|what| anyhow!(what))).transpose()?;
    let range = match &prefix {
        Some(prefix) => table.prefix(prefix)?,
        None => {
            let from = from.as_deref().map_or(Bound::Unbounded, Bound::Included);
            let to = to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            table.range((from, to))?
        }
    };
    let (mut count, mut has_strange_key) = (0_u64, false);
    let _heeding = interrupt::heed();
    let print = |record: Result<(Vec<u8>, Vec<u8>), Error>| -> anyhow::Result<()> {
        interrupt::check(|| format!("after {count} records"))?;
        count += 1;
        let (key, value) = record?;
        let value = (!args.shown.keys_only).then_some(value.as_slice());
        if output.is_json {
            output.json(&record_json(&text, &key, value))?;
        } else {
            let shown = text.key_text(&key);
            has_strange_key |= shown.is_none();
            let key = shown.map_or_else(|| readable(&key), |key| readable(key.as_bytes()));
            match value {
                None => output.line(key)?,
                Some(value) => output.line(format_args!("{key}\t{}", value_line(&text, value)))?,
            }
        }
        Ok(())
    };
    let limit = args.shown.limit();
    if args.shown.reverse {
        range.rev().take(limit).try_for_each(print)?;
    } else {
        range.take(limit).try_for_each(print)?;
    }
    output.flush()?;
    if has_strange_key {
        output.note(
            "some keys cannot be written as text: --hex prints their digits, which get, put and del read with --hex",
        );
    }
    drop(table);
    txn.end()?;
    env.close()?;
    Ok(Outcome::Done)
}

fn key(text: &Text, key: &str) -> anyhow::Result<Vec<u8>> {
    text.key(key).map_err(|what| anyhow!("the key: {what}"))
}

/// A value as a part of one line.
pub(crate) fn value_line(text: &Text, value: &[u8]) -> String {
    text.value_text(value).map_or_else(|| readable(value), |value| readable(value.as_bytes()))
}

/// Puts the key of an index into the object of its record, and says whether it is a number or text, if that is known.
pub(crate) fn index_key_json(keys: &Text, index_key: &[u8], record: &mut Value) {
    let Some(object) = record.as_object_mut() else { return };
    add_bytes(object, "index_key", index_key, keys.key_json(index_key));
    if let Some(kind) = keys.json_kind(index_key) {
        object.insert("index_key_kind".into(), kind.into());
    }
}

/// A record as an object with `key` and `value`.
pub(crate) fn record_json(text: &Text, key: &[u8], value: Option<&[u8]>) -> Value {
    let mut object = Map::new();
    add_bytes(&mut object, "key", key, text.key_json(key));
    if let Some(value) = value {
        add_bytes(&mut object, "value", value, text.value_json(value));
    }
    object.into()
}

/// Adds bytes to an object: what they say as `NAME`, or their hexadecimal digits as `NAME_hex`. All bytes go this way.
pub(crate) fn add_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8], says: Option<Value>) {
    match says {
        Some(says) => object.insert(name.into(), says),
        None => object.insert(format!("{name}_hex"), to_hex(bytes).into()),
    };
}
