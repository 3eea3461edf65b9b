//! `log`: the records of the log, printed. Reads the files and opens no environment, so it works beside a program that
//! has the environment open, and after a crash before anything is recovered.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow};
use ledgerstone::{
    Environment, Error, LogDirectory, LogFilter, LogReader, LogRecord, Lsn, PageId, RecordKind, Sharing, Xid, quoted,
};
use serde_json::{Map, Value, json};

use crate::interrupt;
use crate::opening::{is_device, open_with};
use crate::outcome::Outcome;
use crate::output::Output;
use crate::text::to_hex;

/// `log`
#[derive(Clone, Debug, clap::Args)]
pub struct LogArgs {
    /// Directory of the environment. The command does not open it.
    pub dir: PathBuf,
    /// Only records of the transaction with this number.
    #[arg(long, value_name = "XID")]
    pub transaction: Option<u64>,
    /// Only records that change this page.
    #[arg(long, value_name = "PAGE")]
    pub page: Option<u64>,
    /// Only records that change a page of this table. To find its root page, the command opens the environment for a
    /// moment.
    #[arg(long, value_name = "TABLE", conflicts_with = "root")]
    pub table: Option<String>,
    /// Only records that change a page of the table with this root page.
    #[arg(long, value_name = "PAGE")]
    pub root: Option<u64>,
    /// Only records of these kinds, with commas between them: update, group, commit, checkpoint ...
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub kind: Vec<String>,
    /// Only records that begin at this LSN or later.
    #[arg(long, value_name = "LSN", allow_negative_numbers = true, value_parser = crate::text::parse_count)]
    pub from: Option<u64>,
    /// Only records that begin below this LSN.
    #[arg(long, value_name = "LSN", allow_negative_numbers = true, value_parser = crate::text::parse_count)]
    pub to: Option<u64>,
    /// Print from the newest record to the oldest.
    #[arg(long, conflicts_with = "follow")]
    pub reverse: bool,
    /// Print at most this many records.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true, value_parser = crate::text::parse_count)]
    pub limit: Option<u64>,
    /// At the end, wait for more records until Ctrl-C.
    #[arg(long)]
    pub follow: bool,
}

/// How often the files are looked at again for what was written meanwhile.
const FOLLOW_PERIOD: Duration = Duration::from_millis(100);

pub(crate) fn run(args: &LogArgs, output: &Output) -> anyhow::Result<Outcome> {
    let is_there = args.dir.is_dir() || is_device(&args.dir);
    anyhow::ensure!(is_there, "{}: no such directory or block device", args.dir.display());
    let filter = filter(args, output)?;
    let from = Lsn(args.from.unwrap_or(0));
    let start = if args.reverse { Lsn(args.to.unwrap_or(u64::MAX)) } else { from };
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut reader = open(args, start)?.with_filter(filter.clone());
    let _heeding = interrupt::heed();
    let mut count = 0_u64;
    while left > 0 {
        interrupt::check(|| format!("after {count} records"))?;
        let record = if args.reverse { reader.prev()? } else { reader.next()? };
        match record {
            Some(record) => {
                print(&record, output)?;
                (left, count) = (left - 1, count + 1);
            }
            None if args.follow => {
                output.flush()?;
                std::thread::sleep(FOLLOW_PERIOD);
                // What was written since lies behind the end that this reader knows.
                reader = open(args, reader.position())?.with_filter(filter.clone());
            }
            None => break,
        }
    }
    output.flush()?;
    Ok(Outcome::Done)
}

fn open(args: &LogArgs, at: Lsn) -> Result<LogReader, Error> {
    LogDirectory::open(&args.dir)?.log_reader(at)
}

fn filter(args: &LogArgs, output: &Output) -> anyhow::Result<LogFilter> {
    let mut filter = LogFilter::default();
    if let Some(xid) = args.transaction {
        filter = filter.transaction(Xid(xid));
    }
    if let Some(page) = args.page {
        filter = filter.page(PageId(page));
    }
    if let Some(from) = args.from {
        filter = filter.from(Lsn(from));
    }
    if let Some(to) = args.to {
        filter = filter.below(Lsn(to));
    }
    for kind in &args.kind {
        filter = filter.kind(kind_of(kind)?);
    }
    if let Some(table) = &args.table {
        filter = filter.root(root_of(args, table, output)?);
    }
    if let Some(root) = args.root {
        filter = filter.root(PageId(root));
    }
    Ok(filter)
}

/// The kind with that name, however it is written.
fn kind_of(name: &str) -> anyhow::Result<RecordKind> {
    let plain = |name: &str| name.to_ascii_lowercase().replace(['-', '_'], "");
    let known = |kind: &RecordKind| format!("{kind:?}");
    RecordKind::ALL.into_iter().find(|kind| plain(&known(kind)) == plain(name)).ok_or_else(|| {
        let kinds: Vec<String> = RecordKind::ALL.iter().map(|kind| known(kind).to_ascii_lowercase()).collect();
        anyhow!("{} is not a kind of record; the kinds are {}", quoted(name), kinds.join(", "))
    })
}

/// Where the table begins. Only the catalog knows, so the environment is opened for a moment.
fn root_of(args: &LogArgs, table: &str, output: &Output) -> anyhow::Result<PageId> {
    let opened = open_with(Environment::options().create(false).sharing(Sharing::AsFound), &args.dir, output);
    let env = opened.context("the root page of the table cannot be looked up; --root PAGE needs no look")?;
    let root = env.transact(|txn| Ok(txn.bytes(table)?.root_page()))?;
    env.close()?;
    Ok(root)
}

fn print(record: &LogRecord, output: &Output) -> std::io::Result<()> {
    if !output.is_json {
        return output.line(record.print());
    }
    let mut object = Map::new();
    object.insert("lsn".into(), record.lsn().0.into());
    object.insert("end".into(), record.end().0.into());
    object.insert("kind".into(), format!("{:?}", record.kind()).to_ascii_lowercase().into());
    let mut add = |name: &str, number: u64| {
        if number != 0 {
            object.insert(name.into(), number.into());
        }
    };
    add("transaction", record.xid().0);
    add("prev", record.prev_lsn().0);
    add("undo_next", record.undo_next().0);
    add("commit_time_ns", record.commit_time_ns().unwrap_or(0));
    let changes: Vec<Value> = record
        .changes()
        .map(|change| json!({ "page": change.page.0, "op": change.op.0, "args_hex": to_hex(change.args) }))
        .collect();
    if !changes.is_empty() {
        object.insert("changes".into(), changes.into());
    } else if !record.body().is_empty() {
        object.insert("body_hex".into(), to_hex(record.body()).into());
    }
    object.insert("text".into(), record.print().into());
    output.json(&object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_known_by_their_names() {
        assert_eq!(kind_of("commit").unwrap(), RecordKind::Commit);
        assert_eq!(kind_of("nta-begin").unwrap(), RecordKind::NtaBegin);
        assert!(kind_of("strange").unwrap_err().to_string().contains("update, compensation"));
    }
}
