//! The environment as a whole: init, tables, stat, verify, compact, checkpoint.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context;
use comfy_table::{Table, presets};
use ledgerstone::config::CONFIG_FILE;
use ledgerstone::{BytesTable, CompactPhase, Environment, Error, Problem, Quoted, Skipped, TableTypes, VerifyReport};
use ledgerstone_bench::{self as bench, Recovery};
use serde_json::{Value, json};

use crate::interrupt::{self, Interrupted};
use crate::opening::{DirArgs, is_device, open, open_to_read};
use crate::outcome::Outcome;
use crate::output::{Output, bytes_readable, counted};
use crate::progress::{Progress, Unit, Watched};
use crate::text::readable;

/// `init`
#[derive(Clone, Debug, clap::Args)]
pub struct InitArgs {
    /// Directory to make. If it exists, it must be empty, or hold what an `init` that failed has left. Or a block
    /// device, which is formatted if it is empty.
    pub dir: PathBuf,
    /// Page size: a power of two from 4K to 32K.
    #[arg(long, value_name = "BYTES", value_parser = bench::parse_bytes)]
    pub page: Option<u64>,
    /// Size of a log segment: a power of two from 64K.
    #[arg(long, value_name = "BYTES", value_parser = bench::parse_bytes)]
    pub segment: Option<u64>,
    /// Format a block device that is not empty. Everything on it is lost.
    #[arg(long)]
    pub overwrite: bool,
}

/// `tables`
#[derive(Clone, Debug, clap::Args)]
pub struct TablesArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub at: DirArgs,
    /// Count the records of each table. This reads all of them.
    #[arg(long)]
    pub count: bool,
}

/// `stat`
#[derive(Clone, Debug, clap::Args)]
pub struct StatArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub at: DirArgs,
    /// Print sizes in bytes, not in larger units.
    #[arg(long)]
    pub bytes: bool,
}

pub(crate) fn init(args: &InitArgs, output: &Output) -> anyhow::Result<Outcome> {
    let dir = args.dir.display();
    match Environment::options().create(false).open(&args.dir) {
        Err(Error::NotAnEnvironment { .. }) => {}
        Err(Error::Corrupt { .. }) if args.overwrite && is_device(&args.dir) => {}
        Ok(_) => anyhow::bail!("{dir} is an environment already; nothing was changed"),
        Err(error) => return Err(error.into()),
    }
    anyhow::ensure!(!args.dir.is_file(), "{dir} is a file, not a directory");
    anyhow::ensure!(!args.overwrite || is_device(&args.dir), "{dir} is not a block device; --overwrite is for those");
    if is_device(&args.dir) {
        if args.overwrite {
            Environment::overwrite_device(&args.dir)?;
        }
    } else if let Some(name) = stranger_in(&args.dir)? {
        anyhow::bail!(
            "{dir} is not empty, it holds {}; name a new directory or an empty one",
            Quoted(name.as_encoded_bytes())
        );
    }
    let mut options = Environment::options();
    if let Some(bytes) = args.page {
        options = options.page_bytes(u32::try_from(bytes).unwrap_or(u32::MAX));
    }
    if let Some(bytes) = args.segment {
        options = options.log_segment_bytes(bytes);
    }
    let made = options.open(&args.dir).and_then(ledgerstone::Environment::close);
    made.with_context(|| format!("cannot make an environment in {dir}"))?;
    output.done(json!({ "dir": args.dir }), true)?;
    output.note(format_args!("environment made in {dir}"));
    Ok(Outcome::Done)
}

/// Names that a creation leaves behind when it is cut short, by a full file system or by a kill. The library knows
/// whether the files of these names are such remains, removes those, and refuses all others.
const OF_ENVIRONMENT: [&str; 7] = ["control.new", "data", "double_write", "lock", "log", "restore.new", "sharing"];

/// What is in a directory where an environment is to be made, but for settings made beforehand, what `mkfs` puts there,
/// and what the library judges.
fn stranger_in(dir: &Path) -> anyhow::Result<Option<OsString>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot make an environment in {}", dir.display())),
    };
    for entry in entries {
        let name = entry.with_context(|| format!("cannot read {}", dir.display()))?.file_name();
        if name != CONFIG_FILE && name != "lost+found" && !OF_ENVIRONMENT.iter().any(|own| name == *own) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

pub(crate) fn tables(args: &TablesArgs, output: &Output) -> anyhow::Result<Outcome> {
    let env = open_to_read(&args.at, output)?;
    let txn = env.snapshot()?; // Waits for nobody, a transaction in doubt perhaps.
    let mut progress = Progress::new(output);
    let _heeding = interrupt::heed();
    for name in txn.table_names()? {
        let table = txn.bytes(&name)?;
        let count = if args.count { Some(count(&name, &table, &mut progress)?) } else { None };
        if output.is_json {
            let mut about = table_json(&table);
            if let Some(count) = count {
                about["record_count"] = count.into();
            }
            output.json(&about)?;
        } else {
            let count = count.map_or(String::new(), |count| format!("\t{count}"));
            let name = readable(name.as_bytes());
            let indexes: Vec<_> = table.indexes().iter().map(|index| readable(index.name().as_bytes())).collect();
            let indexes = if indexes.is_empty() { String::new() } else { format!("\tindexes: {}", indexes.join(", ")) };
            let types = match table.types() {
                TableTypes { key: None, value: None } => String::new(),
                TableTypes { key, value } => {
                    let of = |name: &Option<String>| name.clone().unwrap_or_else(|| "any".into());
                    format!("\tkeys: {}, values: {}", of(key), of(value))
                }
            };
            output.line(format_args!("{name}{count}{types}{indexes}"))?;
        }
    }
    output.flush()?;
    txn.end()?;
    env.close()?;
    Ok(Outcome::Done)
}

/// A table as an object.
pub(crate) fn table_json(table: &BytesTable) -> Value {
    let indexes: Vec<String> = table.indexes().iter().map(|index| index.name().to_owned()).collect();
    let TableTypes { key, value } = table.types();
    json!({ "table": table.name(), "key_type": key, "value_type": value, "indexes": indexes })
}

/// How many records a table has.
fn count(name: &str, table: &BytesTable, progress: &mut Progress) -> anyhow::Result<u64> {
    let about = progress.about(|| table.estimated_count());
    let mut count = 0_u64;
    for record in table.range(..)? {
        interrupt::check(|| format!("after {count} records of table {name}"))?;
        record?;
        count += 1;
        if count.is_multiple_of(4096) {
            progress.show_about(&format!("count {name}"), count, about, Unit::Count("records"));
        }
    }
    Ok(count)
}

pub(crate) fn stat(args: &StatArgs, output: &Output) -> anyhow::Result<Outcome> {
    let env = open_to_read(&args.at, output)?;
    let recovery = Recovery::from(env.recovery_report());
    let told = stat_json(&env)?;
    warn_of_lsns(env.stat()?.lsn_used_percent, output);
    env.close()?;
    if output.is_json {
        output.json(&told)?;
    } else {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        add_rows(&mut table, "", &told["stat"], args.bytes);
        table.add_row(["recovery".to_owned(), recovery.to_string()]);
        output.line(table.to_string())?;
    }
    output.flush()?;
    Ok(Outcome::Done)
}

/// Sizes and counters, and what the opening recovered, as an object.
pub(crate) fn stat_json(env: &Environment) -> Result<Value, Error> {
    let (stat, recovery) = (env.stat()?, Recovery::from(env.recovery_report()));
    Ok(json!({ "stat": stat, "recovery": recovery }))
}

/// From this share on.
const LSN_WARN_PERCENT: u64 = 90;

fn warn_of_lsns(used_percent: u64, output: &Output) {
    if used_percent >= LSN_WARN_PERCENT {
        output.note(format_args!(
            "the log has used {used_percent} % of its LSNs: dump the environment and load it into a new one before it refuses changes"
        ));
    }
}

/// Figures for people, a row each.
pub(crate) fn figures_text(figures: &Value) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    add_rows(&mut table, "", figures, false);
    table.trim_fmt()
}

/// One row a figure, under the name that it has in JSON; that of an inner object comes in front of its members, with a
/// dot.
fn add_rows(table: &mut Table, prefix: &str, value: &Value, is_exact: bool) {
    let Value::Object(members) = value else { return };
    for (name, value) in members {
        let is_bytes = name.split('_').any(|word| word == "bytes");
        let name = format!("{prefix}{name}");
        match value {
            Value::Object(_) => add_rows(table, &format!("{name}."), value, is_exact),
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(plain).collect();
                table.add_row([name, items.join(", ")]);
            }
            Value::Number(number) if !is_exact && is_bytes => {
                let text = number.as_u64().map_or_else(|| number.to_string(), bytes_readable);
                table.add_row([name, text]);
            }
            other => {
                table.add_row([name, plain(other)]);
            }
        }
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "none".into(),
        Value::String(text) => text.clone(),
        Value::Object(members) => members.values().map(plain).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

pub(crate) fn verify(args: &DirArgs, output: &Output) -> anyhow::Result<Outcome> {
    let report = open_to_read(args, output).and_then(|env| {
        let mut progress = Progress::new(output);
        let _heeding = interrupt::heed();
        let (mut done, mut total) = (0, 0);
        let report = env.verify_with(|at| {
            (done, total) = (at.done, at.total);
            progress.show(&format!("verify {}", at.what), at.done, at.total, Unit::Count("pages"));
            interrupt::flow()
        });
        let how_far =
            || format!("after {done} of {total} pages, each of which is looked at twice: nothing was changed");
        let report = report.map_err(|error| interrupt::told(error, how_far))?;
        warn_of_lsns(env.stat()?.lsn_used_percent, output);
        env.close()?;
        anyhow::Ok(report)
    });
    let report = match report {
        Err(error) if matches!(error.downcast_ref(), Some(Error::Corrupt { .. })) => {
            return verify_pages(args, error, output);
        }
        other => other?,
    };
    let is_good = report.problems.is_empty();
    if output.is_json {
        output.json(&report)?;
    } else {
        for Problem { place, page, what, mend } in &report.problems {
            let page = page.map_or(String::new(), |page| format!(", page {page}"));
            let mend = mend.as_ref().map_or(String::new(), |mend| format!("; to mend it: {mend}"));
            output.line(format_args!("{place}{page}: {what}{mend}"))?;
        }
        for Skipped { place, why } in &report.skipped {
            output.line(format_args!("{place}: not verified; {why}"))?;
        }
        for index in &report.unchecked_indexes {
            output.note(format_args!("{index}: its function is not registered here, so its keys were not compared"));
        }
        output.line(format_args!(
            "{}, {}, {}, {}, {} in use: {} found",
            counted(report.table_count, "table"),
            counted(report.index_count, "index"),
            counted(report.record_count, "record"),
            counted(report.blob_count, "large value"),
            counted(report.page_count, "page"),
            match report.problems.len() as u64 {
                0 => "no problems".into(),
                count => counted(count, "problem"),
            }
        ))?;
    }
    output.flush()?;
    Ok(if is_good { Outcome::Done } else { Outcome::Not })
}

/// Where the damage hides everything else: which pages it is in.
fn verify_pages(args: &DirArgs, error: anyhow::Error, output: &Output) -> anyhow::Result<Outcome> {
    let mut progress = Watched::new(output);
    let damaged = Environment::damaged_pages_in(&args.dir, |at| progress.show(at));
    let damaged = damaged.map_err(|error| progress.told(error, "nothing was changed"))?;
    drop(progress);
    if damaged.is_empty() {
        return Err(error);
    }
    if output.is_json {
        let problem = |place: &str, page, what: String| Problem { place: place.into(), page, what, mend: None };
        let mut report = VerifyReport::default();
        report.problems.push(problem("environment", None, error.to_string()));
        report.problems.extend(damaged.iter().map(|page| problem("data file", Some(page.0), "damaged".into())));
        output.json(&report)?;
    } else {
        output.line(&error)?;
        for page in &damaged {
            output.line(format_args!("data file, page {page}: damaged"))?;
        }
        let count = counted(damaged.len() as u64, "damaged page");
        output.line(format_args!("{count} found; the tables cannot be verified before they are repaired"))?;
    }
    output.flush()?;
    Ok(Outcome::Not)
}

pub(crate) fn compact(args: &DirArgs, output: &Output) -> anyhow::Result<Outcome> {
    let env = open(args, output)?;
    let mut progress = Progress::new(output);
    let _heeding = interrupt::heed();
    let report = env.compact_with(|at| {
        let what = match at.phase {
            CompactPhase::Pack => "pack",
            CompactPhase::Move => "move",
        };
        let what = format!("{what} {}", at.table);
        progress.show_about(&what, at.leaf_count, at.leaf_count_about, Unit::Count("leaves"));
        interrupt::flow()
    })?;
    drop(progress);
    env.close()?;
    if output.is_json {
        output.json(&report)?;
    } else {
        output.line(format_args!(
            "{} before, {} after, {} in use; {} purged, {} merged, {} moved",
            counted(report.page_count_before, "page"),
            report.page_count_after,
            report.allocated_page_count,
            counted(report.ghost_count, "deleted record"),
            counted(report.merged_page_count, "page"),
            report.moved_page_count
        ))?;
        for table in &report.skipped_tables {
            output.note(format_args!("table {table} was locked and passed over; compact again"));
        }
        for structure in &report.unmoved_structures {
            output.note(format_args!("the pages of structure {structure} stay where they are"));
        }
        for table in &report.roots_in_the_way {
            output.note(format_args!("the root page of table {table} cannot move and keeps the file longer"));
        }
    }
    output.flush()?;
    if report.was_cancelled {
        return Err(Interrupted("before the end: what was compacted stays so".into()).into());
    }
    Ok(Outcome::Done)
}

pub(crate) fn checkpoint(args: &DirArgs, output: &Output) -> anyhow::Result<Outcome> {
    let env = open(args, output)?;
    let lsn = env.checkpoint()?;
    env.close()?;
    if output.is_json {
        output.json(&json!({ "checkpoint_lsn": lsn.0 }))?;
        output.flush()?;
    } else {
        output.note(format_args!("checkpoint taken at LSN {lsn}"));
    }
    Ok(Outcome::Done)
}
