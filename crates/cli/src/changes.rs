//! What committed transactions changed, as lines: `changes`. It does not wait for more: while it has the environment open, nobody
//! else can commit.

use ledgerstone::{Change, ChangeValue, CommittedChanges, Lsn};
use serde_json::{Value, json};

use crate::args::DirArgs;
use crate::commands::open;
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
}

pub(crate) fn run(args: &ChangesArgs, output: &Output) -> anyhow::Result<Outcome> {
    let env = open(&args.at)?;
    if let Some(name) = &args.forget {
        let was_there = env.forget_changes(name)?;
        env.close()?;
        return Ok(if was_there { Outcome::Done } else { Outcome::Not });
    }
    let mut feed = match &args.name {
        Some(name) => env.named_changes(name)?,
        None => env.changes(Lsn(args.from))?,
    };
    while let Some(commit) = feed.next()? {
        for change in &commit.changes {
            if args.table.is_none() || args.table == change.table {
                show(&commit, change, output)?;
            }
        }
        // What is shown is shown before it counts as taken care of.
        output.flush()?;
        if args.name.is_some() {
            feed.acknowledge(commit.position)?;
        }
    }
    drop(feed);
    env.close()?;
    Ok(Outcome::Done)
}

fn show(commit: &CommittedChanges, change: &Change, output: &Output) -> std::io::Result<()> {
    if output.is_json {
        return output.json(&json!({
            "lsn": commit.lsn.0,
            "position": commit.position.0,
            "xid": commit.xid.0,
            "time_ns": commit.time_ns,
            "table": change.table,
            "root": change.root.0,
            "key_hex": to_hex(&change.key),
            "old": value_json(&change.old),
            "new": value_json(&change.new),
        }));
    }
    output.line(format_args!("{}\t{}", commit.lsn, change_text(change, "\t")))
}

/// Table, key, value before, value after.
pub(crate) fn change_text(change: &Change, separator: &str) -> String {
    let table =
        change.table.as_ref().map_or_else(|| format!("(root {})", change.root), |name| readable(name.as_bytes()));
    [table, readable(&change.key), value_text(&change.old), value_text(&change.new)].join(separator)
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
