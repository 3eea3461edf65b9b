//! Tables as text, and back: dump, load.

use std::fs::File;
use std::io::BufReader;

use anyhow::Context;
use ledgerstone_dump::{Dump, DumpFormat, DumpOptions, DumpProgress, Duplicates, LoadOptions};
use serde_json::json;

use crate::export::target_left;
use crate::interrupt;
use crate::opening::{DirArgs, open, open_to_read};
use crate::outcome::Outcome;
use crate::output::{Output, counted, file_named};
use crate::progress::{Progress, Unit};
use crate::target::Target;

/// `dump`
#[derive(Clone, Debug, clap::Args)]
pub struct DumpArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub at: DirArgs,
    /// Dump only these tables.
    #[arg(value_name = "TABLE")]
    pub tables: Vec<String>,
    /// The file to write, or `-` for standard output.
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    pub output: String,
    /// Replace the file if it exists.
    #[arg(long)]
    pub force: bool,
    /// Print readable characters as they are, not as hexadecimal digits.
    #[arg(long, short)]
    pub print: bool,
}

/// `load`
#[derive(Clone, Debug, clap::Args)]
pub struct LoadArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub at: DirArgs,
    /// The file, or `-` for standard input.
    #[arg(default_value = "-")]
    pub file: String,
    /// The table to load, if the dump does not name it.
    #[arg(long, value_name = "TABLE")]
    pub table: Option<String>,
    /// Commit after this many records.
    #[arg(long, value_name = "RECORDS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub batch: u64,
    /// Load each database of the dump in one transaction.
    #[arg(long, conflicts_with = "batch")]
    pub one_transaction: bool,
    /// If a key occurs more than once, append 4 bytes to it: its place among the equal keys, counted from 0.
    #[arg(long)]
    pub number_duplicates: bool,
}

pub(crate) fn dump(args: &DumpArgs, output: &Output) -> anyhow::Result<Outcome> {
    let env = open_to_read(&args.at, output)?;
    let format = if args.print { DumpFormat::Print } else { DumpFormat::ByteValue };
    let options = args.tables.iter().fold(DumpOptions::default().format(format), |options, table| options.table(table));
    let mut target = Target::open_new(&args.output, args.force, "--force replaces it", output)?;
    let mut bar = Progress::new(output);
    let about = bar.about(|| {
        let txn = env.snapshot()?; // Waits for nobody.
        let tables = if args.tables.is_empty() { txn.table_names()? } else { args.tables.clone() };
        tables.iter().map(|table| txn.bytes(table)?.estimated_count()).sum()
    });
    let mut count = 0;
    let _heeding = interrupt::heed();
    let mut progress = |at: DumpProgress| {
        count = at.record_count;
        bar.show_about("dump", count, about, Unit::Count("records"));
        interrupt::flow()
    };
    let done = env.dump_with(target.writer(), &options, &mut progress);
    let done = done.map_err(|error| interrupt::told(error, || target_left(&args.output, count)))?;
    target.finish()?;
    env.close()?;
    if output.is_json && args.output != "-" {
        output.json(&json!({ "file": args.output, "record_count": done.record_count }))?;
        output.flush()?;
    }
    Ok(Outcome::Done)
}

pub(crate) fn load(args: &LoadArgs, output: &Output) -> anyhow::Result<Outcome> {
    let mut options = LoadOptions::default().batch(if args.one_transaction { 0 } else { args.batch });
    if args.number_duplicates {
        options = options.duplicates(Duplicates::Number);
    }
    if let Some(table) = &args.table {
        options = options.table(table);
    }
    let env = open(&args.at, output)?;
    let mut bar = Progress::new(output);
    let file = (args.file != "-").then(|| File::open(&args.file)).transpose();
    let file = file.with_context(|| format!("cannot read {}", args.file))?;
    let all = file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |about| about.len());
    let mut count = 0;
    let _heeding = interrupt::heed();
    let mut progress = |at: DumpProgress| {
        bar.show("load", at.bytes, all, Unit::Bytes);
        count = at.record_count;
        interrupt::flow()
    };
    let report = match file {
        Some(file) => env.load_with(&mut BufReader::with_capacity(1 << 16, file), &options, &mut progress),
        None => env.load_with(&mut std::io::stdin().lock(), &options, &mut progress),
    };
    let stays = if args.one_transaction { "databases" } else { "batches" };
    let how_far = || format!("after {count} records: the {stays} that were committed before stay");
    let report = report
        .map_err(|error| interrupt::told(error, how_far))
        .with_context(|| format!("cannot load {}", file_named(&args.file)))?;
    env.close()?;
    drop(bar);
    if output.is_json {
        output.json(&report)?;
    } else {
        match report.tables.is_empty() {
            true => output.note("the dump names no database: nothing was loaded"),
            false => {
                let count = counted(report.record_count, "record");
                output.note(format_args!("{count} loaded into {}", report.tables.join(", ")));
            }
        }
        if !report.indexes.is_empty() {
            output.note(format_args!("indexes made: {}", report.indexes.join(", ")));
        }
        if !report.skipped_indexes.is_empty() {
            let names = report.skipped_indexes.join(", ");
            output.note(format_args!("indexes not made, since their keys come from a program's function: {names}"));
        }
    }
    output.flush()?;
    Ok(Outcome::Done)
}
