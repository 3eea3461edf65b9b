//! One record or a range of them: put, get, del, scan.

use std::io::Read;
use std::ops::Bound;

use anyhow::{Context, anyhow};
use ledgerstone::{Environment, Error, Options};
use serde_json::{Map, Value, json};

use crate::args::{DelArgs, DirArgs, GetArgs, PutArgs, ScanArgs, TextArgs};
use crate::outcome::Outcome;
use crate::output::Output;
use crate::text::{readable, to_hex};

/// How to open an environment that must exist.
pub(crate) fn options(at: &DirArgs) -> Options {
    let options = Environment::options().create(false);
    at.cache.into_iter().fold(options, Options::cache_bytes)
}

/// Opens an environment to read it: as it is if it was closed in order, so that nothing is written and others may read beside.
pub(crate) fn open_to_read(at: &DirArgs) -> Result<Environment, Error> {
    options(at).read_only(true).open(&at.dir)
}

/// Opens an environment that must exist.
pub(crate) fn open(at: &DirArgs) -> Result<Environment, Error> {
    options(at).open(&at.dir)
}

pub(crate) fn put(args: &PutArgs, output: &Output) -> anyhow::Result<Outcome> {
    let key = key(&args.text, &args.key)?;
    let value = if args.value == "-" {
        let mut value = Vec::new();
        std::io::stdin().lock().read_to_end(&mut value).context("cannot read the value from standard input")?;
        value
    } else {
        args.text.value(&args.value).map_err(|what| anyhow!("the value: {what}"))?
    };
    let env = open(&args.table.at)?;
    let done = env.transact(|txn| {
        let table = txn.bytes_or_create(&args.table.table)?;
        if args.new { table.insert_new(&key, &value) } else { table.put(&key, &value) }
    });
    let outcome = match done {
        Ok(()) => Outcome::Done,
        Err(Error::KeyExists) => {
            output.note(format_args!("key {} has a value already; put without --new replaces it", args.key));
            Outcome::Not
        }
        Err(error) => return Err(error.into()),
    };
    env.close()?;
    Ok(outcome)
}

pub(crate) fn get(args: &GetArgs, output: &Output) -> anyhow::Result<Outcome> {
    let key = key(&args.text, &args.key)?;
    let env = open_to_read(&args.table.at)?;
    let value = env.transact(|txn| txn.bytes(&args.table.table)?.get(&key))?;
    env.close()?;
    let Some(value) = value else {
        output.note(format_args!("no key {} in table {}", args.key, args.table.table));
        return Ok(Outcome::Not);
    };
    if args.raw {
        output.bytes(&value)?;
    } else if output.is_json {
        output.json(&record_json(&args.text, &key, Some(&value)))?;
    } else {
        let text = args.text.value_text(&value).filter(|text| !text.contains('\0'));
        output.line(text.unwrap_or_else(|| readable(&value)))?;
    }
    output.flush()?;
    Ok(Outcome::Done)
}

pub(crate) fn del(args: &DelArgs, output: &Output) -> anyhow::Result<Outcome> {
    let key = key(&args.text, &args.key)?;
    let env = open(&args.table.at)?;
    let was_there = env.transact(|txn| txn.bytes(&args.table.table)?.delete(&key))?;
    env.close()?;
    if was_there {
        return Ok(Outcome::Done);
    }
    output.note(format_args!("no key {} in table {}", args.key, args.table.table));
    Ok(Outcome::Not)
}

pub(crate) fn scan(args: &ScanArgs, output: &Output) -> anyhow::Result<Outcome> {
    let bound = |text: &Option<String>| text.as_ref().map(|text| key(&args.text, text)).transpose();
    let (from, to, prefix) = (bound(&args.from)?, bound(&args.to)?, bound(&args.prefix)?);
    let env = open_to_read(&args.table.at)?;
    let txn = env.begin()?;
    let table = txn.bytes(&args.table.table)?;
    let range = match &prefix {
        Some(prefix) => table.prefix(prefix)?,
        None => {
            let from = from.as_deref().map_or(Bound::Unbounded, Bound::Included);
            let to = to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            table.range((from, to))?
        }
    };
    let limit = usize::try_from(args.limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    let print = |record: Result<(Vec<u8>, Vec<u8>), Error>| -> anyhow::Result<()> {
        let (key, value) = record?;
        let value = (!args.keys_only).then_some(value.as_slice());
        if output.is_json {
            output.json(&record_json(&args.text, &key, value))?;
        } else {
            let key = args.text.key_text(&key).map_or_else(|| readable(&key), |key| readable(key.as_bytes()));
            match value {
                None => output.line(key)?,
                Some(value) if args.text.hex => output.line(format_args!("{key}\t{}", to_hex(value)))?,
                Some(value) => output.line(format_args!("{key}\t{}", readable(value)))?,
            }
        }
        Ok(())
    };
    if args.reverse {
        range.rev().take(limit).try_for_each(print)?;
    } else {
        range.take(limit).try_for_each(print)?;
    }
    output.flush()?;
    drop(table);
    txn.abort()?; // It only read.
    env.close()?;
    Ok(Outcome::Done)
}

fn key(text: &TextArgs, key: &str) -> anyhow::Result<Vec<u8>> {
    text.key(key).map_err(|what| anyhow!("the key: {what}"))
}

/// A record as an object: `key` and `value` as text, `key_hex` and `value_hex` where they are none; numbers as numbers.
pub(crate) fn record_json(text: &TextArgs, key: &[u8], value: Option<&[u8]>) -> Value {
    use crate::text::KeyType::{I64, Text, U32, U64};
    let mut object = Map::new();
    match (text.hex, text.key_text(key)) {
        (true, _) | (_, None) => object.insert("key_hex".into(), to_hex(key).into()),
        (_, Some(key)) => {
            let key = match text.key_type {
                U32 | U64 | I64 => serde_json::from_str(&key).unwrap_or(json!(key)),
                Text => json!(key),
            };
            object.insert("key".into(), key)
        }
    };
    if let Some(value) = value {
        match (text.hex, text.value_text(value)) {
            (false, Some(value)) => object.insert("value".into(), value.into()),
            _ => object.insert("value_hex".into(), to_hex(value).into()),
        };
    }
    object.into()
}
