//! What committed transactions changed, as lines: `changes`. It does not wait for more: while it has the environment open, nobody
//! else can commit.

use ledgerstone::{ChangeValue, CommittedChanges, FeedItem, Lsn, TableEvent, TableTypes};
use serde_json::{Value, json};

use crate::interrupt;
use crate::opening::{DirArgs, open};
use crate::outcome::Outcome;
use crate::output::Output;
use crate::text::{readable, to_hex};

/// `changes`
#[derive(Clone, Debug, clap::Args)]
pub struct ChangesArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub at: DirArgs,
    /// Begin behind this LSN; 0: with the oldest change that the log holds whole.
    #[arg(long, value_name = "LSN", default_value_t = 0, conflicts_with = "name")]
    pub from: u64,
    /// Begin where the feed of this name has come to, and make durable how far it comes; the log is kept for it.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Forget the feed of this name instead: the log is not kept for it any more (exit code 1 if there is none).
    #[arg(long, value_name = "NAME", conflicts_with_all = ["name", "from"])]
    pub forget: Option<String>,
    /// Only changes of this table.
    #[arg(long, value_name = "TABLE")]
    pub table: Option<String>,
    /// At most the changes of so many commits.
    #[arg(long, value_name = "COUNT", conflicts_with = "forget")]
    pub limit: Option<u64>,
}

pub(crate) fn run(args: &ChangesArgs, output: &Output) -> anyhow::Result<Outcome> {
    let env = open(&args.at, output)?;
    if let Some(name) = &args.forget {
        let was_there = env.forget_changes(name)?;
        env.close()?;
        if !was_there {
            output.note(format_args!("no feed is named {name}"));
            return Ok(Outcome::Not);
        }
        return Ok(Outcome::Done);
    }
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
            let (table, to) = tables_of(item);
            if args.table.as_deref().is_none_or(|wanted| table == wanted || to == Some(wanted)) {
                show(&commit, item, output)?;
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
    Ok(Outcome::Done)
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

fn show(commit: &CommittedChanges, item: &FeedItem, output: &Output) -> std::io::Result<()> {
    if !output.is_json {
        return output.line(format_args!("{}\t{}", commit.lsn, item_text(item, "\t")));
    }
    let mut object = json!({
        "lsn": commit.lsn.0,
        "position": commit.position.0,
        "xid": commit.xid.0,
        "time_ns": commit.time_ns,
    });
    match item {
        FeedItem::Record(change) => {
            object["table"] = json!(&*change.table);
            object["table_id"] = change.table_id.0.into();
            object["key_hex"] = to_hex(&change.key).into();
            object["old"] = value_json(&change.old);
            object["new"] = value_json(&change.new);
        }
        FeedItem::Table(change) => {
            object["table"] = json!(&*change.table);
            object["table_id"] = change.table_id.0.into();
            let (event, details) = event_words(&change.event);
            object["event"] = event.into();
            for (name, value) in details {
                object[name] = value.into();
            }
        }
        _ => {}
    }
    output.json(&object)
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

/// Of a record: table, key, value before, value after. Of a table: table, what became of it, and more.
pub(crate) fn item_text(item: &FeedItem, separator: &str) -> String {
    match item {
        FeedItem::Record(change) => {
            let table = readable(change.table.as_bytes());
            [table, readable(&change.key), value_text(&change.old), value_text(&change.new)].join(separator)
        }
        FeedItem::Table(change) => {
            let (event, details) = event_words(&change.event);
            let head = [readable(change.table.as_bytes()), format!("({event})")];
            let details = details.into_iter().map(|(_, value)| readable(value.as_bytes()));
            head.into_iter().chain(details).collect::<Vec<_>>().join(separator)
        }
        _ => String::new(),
    }
}

fn value_json(value: &ChangeValue) -> Value {
    match value {
        ChangeValue::Absent => Value::Null,
        ChangeValue::Whole(bytes) => json!({ "hex": to_hex(bytes) }),
        ChangeValue::Large(bytes) => json!({ "large_bytes": bytes }),
        ChangeValue::Part { offset, bytes } => json!({ "offset": offset, "part_hex": to_hex(bytes) }),
        _ => json!({ "unknown": true }),
    }
}

fn value_text(value: &ChangeValue) -> String {
    match value {
        ChangeValue::Absent => "(none)".into(),
        ChangeValue::Whole(bytes) => format!("\"{}\"", readable(bytes)),
        ChangeValue::Large(bytes) => format!("({bytes} bytes)"),
        ChangeValue::Part { offset, bytes } => format!("(at {offset} \"{}\")", readable(bytes)),
        _ => "(not in the log)".into(),
    }
}
