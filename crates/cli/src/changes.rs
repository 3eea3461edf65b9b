//! What committed transactions changed, as lines: `changes`. It does not wait for more: while it has the environment
//! open, nobody else can commit.

use std::collections::HashMap;

use ledgerstone::{ChangeValue, CommittedChanges, Environment, Error, FeedItem, Lsn, TableEvent, TableId, TableTypes};
use serde_json::{Map, Value, json};

use crate::commands::{add_bytes, value_line};
use crate::interrupt;
use crate::opening::{DirArgs, open};
use crate::outcome::Outcome;
use crate::output::Output;
use crate::text::{PLAIN, Text, readable};

/// `changes`
#[derive(Clone, Debug, clap::Args)]
pub struct ChangesArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub at: DirArgs,
    /// Begin behind this LSN. 0 means the oldest change that the log holds in full.
    #[arg(long, value_name = "LSN", default_value_t = 0, conflicts_with = "name", allow_negative_numbers = true, value_parser = crate::text::parse_count)]
    pub from: u64,
    /// Go on where the feed of this name ended, and remember durably how far it comes. The log is kept for the feed.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Forget the feed of this name, so that no log is kept for it. Exit code 1: there is none.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["name", "from"])]
    pub forget: Option<String>,
    /// Only changes of this table.
    #[arg(long, value_name = "TABLE")]
    pub table: Option<String>,
    /// Print the changes of at most this many commits.
    #[arg(long, value_name = "COUNT", conflicts_with = "forget", allow_negative_numbers = true, value_parser = crate::text::parse_count)]
    pub limit: Option<u64>,
}

pub(crate) fn run(args: &ChangesArgs, output: &Output) -> anyhow::Result<Outcome> {
    let env = open(&args.at, output)?;
    if let Some(name) = &args.forget {
        let was_there = env.forget_changes(name)?;
        env.close()?;
        output.done(json!({ "name": name }), was_there)?;
        if !was_there {
            output.note(format_args!("no feed is named {name}"));
            return Ok(Outcome::Not);
        }
        return Ok(Outcome::Done);
    }
    let mut types = Types::of(&env)?;
    let mut feed = match &args.name {
        Some(name) => env.named_changes(name)?,
        None => env.changes(Lsn(args.from))?,
    };
    let (mut count, mut is_shown) = (0, false);
    let _heeding = interrupt::heed();
    while count < args.limit.unwrap_or(u64::MAX) {
        interrupt::check(|| format!("after the changes of {count} commits"))?;
        let Some(commit) = feed.next()? else { break };
        for item in &commit.items {
            types.learn(item);
            let (table, to) = tables_of(item);
            if args.table.as_deref().is_none_or(|wanted| table == wanted || to == Some(wanted)) {
                show(&commit, item, &types.of_item(item), output)?;
                is_shown = true;
            }
        }
        // A large commit comes in several pieces.
        if commit.is_last && std::mem::take(&mut is_shown) {
            count += 1;
        }
        // What is shown is shown before it counts as taken care of.
        output.flush()?;
        if args.name.is_some() && commit.is_last {
            feed.acknowledge(commit.position)?;
        }
    }
    drop(feed);
    env.close()?;
    if let Some(table) = args.table.as_ref().filter(|_| count == 0) {
        output.note(format_args!("no change of a table named {table}"));
    }
    Ok(Outcome::Done)
}

/// How the records of each table are written: as its types say now, or said before it was dropped.
pub(crate) struct Types(HashMap<TableId, TableTypes>);

impl Types {
    pub(crate) fn of(env: &Environment) -> Result<Types, Error> {
        let txn = env.snapshot()?; // Waits for nobody.
        let mut known = HashMap::new();
        for name in txn.table_names()? {
            let table = txn.bytes(&name)?;
            known.insert(table.table_id(), table.types().clone());
        }
        txn.abort()?; // It only read.
        Ok(Types(known))
    }

    pub(crate) fn learn(&mut self, item: &FeedItem) {
        if let FeedItem::Table(change) = item
            && let TableEvent::Created { types } | TableEvent::Typed { types } = &change.event
        {
            self.0.entry(change.table_id).or_insert_with(|| types.clone());
        }
    }

    pub(crate) fn of_item(&self, item: &FeedItem) -> Text {
        let types = match item {
            FeedItem::Record(change) => self.0.get(&change.table_id),
            _ => None,
        };
        types.map_or(PLAIN, Text::of_types)
    }
}

/// The table of an item, and the name that it gets.
fn tables_of(item: &FeedItem) -> (&str, Option<&str>) {
    match item {
        FeedItem::Record(change) => (&change.table, None),
        FeedItem::Table(change) => match &change.event {
            TableEvent::Renamed { to } => (&change.table, Some(to)),
            _ => (&change.table, None),
        },
        _ => ("", None),
    }
}

fn show(commit: &CommittedChanges, item: &FeedItem, text: &Text, output: &Output) -> std::io::Result<()> {
    if output.is_json {
        return output.json(&change_json(commit, item, text));
    }
    output.line(format_args!("{}\t{}", commit.lsn, item_text(item, text, "\t", readable)))
}

/// A change as an object.
pub(crate) fn change_json(commit: &CommittedChanges, item: &FeedItem, text: &Text) -> Value {
    let mut object = Map::new();
    object.insert("lsn".into(), commit.lsn.0.into());
    object.insert("position".into(), commit.position.0.into());
    object.insert("xid".into(), commit.xid.0.into());
    object.insert("time_ns".into(), commit.time_ns.into());
    match item {
        FeedItem::Record(change) => {
            object.insert("table".into(), (*change.table).into());
            object.insert("table_id".into(), change.table_id.0.into());
            add_bytes(&mut object, "key", &change.key, text.key_json(&change.key));
            add_value(&mut object, "old", &change.old, text);
            add_value(&mut object, "new", &change.new, text);
        }
        FeedItem::Table(change) => {
            object.insert("table".into(), (*change.table).into());
            object.insert("table_id".into(), change.table_id.0.into());
            let (event, details) = event_words(&change.event);
            object.insert("event".into(), event.into());
            for (name, value) in details {
                object.insert(name.into(), if name == "unique" { true.into() } else { value.into() });
            }
        }
        _ => {}
    }
    object.into()
}

/// A value, or as much of it as the log holds.
fn add_value(object: &mut Map<String, Value>, name: &str, value: &ChangeValue, text: &Text) {
    match value {
        ChangeValue::Absent => {
            object.insert(name.into(), Value::Null);
        }
        ChangeValue::Whole(bytes) => add_bytes(object, name, bytes, text.value_json(bytes)),
        ChangeValue::Large(bytes) => {
            object.insert(format!("{name}_bytes"), (*bytes).into());
        }
        ChangeValue::Part { offset, bytes } => {
            object.insert(format!("{name}_offset"), (*offset).into());
            add_bytes(object, &format!("{name}_part"), bytes, std::str::from_utf8(bytes).ok().map(Value::from));
        }
        _ => {} // The log does not say.
    }
}

/// What became of a table: a word, and what belongs to it, by name.
fn event_words(event: &TableEvent) -> (&'static str, Vec<(&'static str, String)>) {
    let types = |types: &TableTypes| {
        let of = [("key_type", &types.key), ("value_type", &types.value)];
        of.into_iter().filter_map(|(name, text)| Some((name, text.clone()?))).collect()
    };
    match event {
        TableEvent::Created { types: of } => ("created", types(of)),
        TableEvent::Dropped => ("dropped", Vec::new()),
        TableEvent::Renamed { to } => ("renamed", vec![("to", to.clone())]),
        TableEvent::IndexCreated { index } => {
            let unique = index.is_unique().then(|| ("unique", "true".to_string()));
            let details = [("index", index.name().to_string()), ("keys", index.keys().to_string())];
            ("index created", details.into_iter().chain(unique).collect())
        }
        TableEvent::IndexDropped { index } => ("index dropped", vec![("index", index.clone())]),
        TableEvent::Typed { types: of } => ("typed", types(of)),
        _ => ("changed", Vec::new()),
    }
}

/// Of a record: table, key, value before, value after. Of a table: table, what became of it, and more. Names and keys
/// are `written` so that the separator cannot be in them. Values are in double quotes, which are escaped inside, so
/// that their end is seen and none is taken for what stands without quotes.
pub(crate) fn item_text(item: &FeedItem, text: &Text, separator: &str, written: fn(&[u8]) -> String) -> String {
    match item {
        FeedItem::Record(change) => {
            let table = written(change.table.as_bytes());
            let key = text.key_text(&change.key).map_or_else(|| written(&change.key), |key| written(key.as_bytes()));
            [table, key, value_text(&change.old, text), value_text(&change.new, text)].join(separator)
        }
        FeedItem::Table(change) => {
            let (event, details) = event_words(&change.event);
            let head = [written(change.table.as_bytes()), format!("({event})")];
            let details = details.into_iter().map(|(_, value)| written(value.as_bytes()));
            head.into_iter().chain(details).collect::<Vec<_>>().join(separator)
        }
        _ => String::new(),
    }
}

fn value_text(value: &ChangeValue, text: &Text) -> String {
    let quoted = |readable: String| format!("\"{}\"", readable.replace('"', "\\\""));
    match value {
        ChangeValue::Absent => "(none)".into(),
        ChangeValue::Whole(bytes) => quoted(value_line(text, bytes)),
        ChangeValue::Large(bytes) => format!("({bytes} bytes)"),
        ChangeValue::Part { offset, bytes } => format!("(at {offset} {})", quoted(readable(bytes))),
        _ => "(not in the log)".into(),
    }
}
