//! What can be typed. The texts here are the manual: `ledgerstone help COMMAND` shows them.
//!
//! This file knows every command's module. A module knows this file only for arguments of its own that stand here. Arguments
//! that several commands share stand with what they are for: a directory or a table in `opening`, how keys and values are written
//! in `text`.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use ledgerstone::IndexKeys;
use ledgerstone_bench as bench;

use crate::opening::{DirArgs, TableArgs};
use crate::rows::ColumnType;
use crate::rows::Format;
use crate::text::TextArgs;

/// A transactional key-value environment: a directory that survives.
///
/// Every command names the environment's directory first. Exit codes: 0 done, 1 not found or a check failed, 2 error, 130
/// interrupted.
#[derive(Debug, Parser)]
#[command(name = "ledgerstone", version, arg_required_else_help = true)]
pub struct Args {
    /// Data as JSON; one object a line where there are many.
    #[arg(long, global = true)]
    pub json: bool,
    /// Say nothing but data and errors; no progress.
    #[arg(long, short, global = true)]
    pub quiet: bool,
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a new environment.
    Init(InitArgs),
    /// Set the value of a key.
    Put(PutArgs),
    /// Print the value of a key.
    Get(GetArgs),
    /// Delete a key.
    Del(DelArgs),
    /// Print records in the order of their keys.
    Scan(ScanArgs),
    /// List the tables.
    Tables(TablesArgs),
    /// Give a table another name.
    Rename(RenameArgs),
    /// Make, drop, list indexes, and find records by them.
    Index {
        #[command(subcommand)]
        #[allow(missing_docs)]
        command: IndexCommand,
    },
    /// Read rows of a file into a table.
    Import(ImportArgs),
    /// Write a table to a file.
    Export(ExportArgs),
    /// Show sizes, settings and counters, and what opening had to recover.
    Stat(StatArgs),
    /// Check every page, every tree, and that every page in use is reached exactly once.
    Verify(DirArgs),
    /// Shorten the data file to what its records need: merge sparse pages, move pages down, cut the end off.
    Compact(DirArgs),
    /// Take a checkpoint: a restart will begin there.
    Checkpoint(DirArgs),
    /// Recover after a crash, as every open does, and say what was done.
    Recover(crate::recover::RecoverArgs),
    /// Print the records of the log, also beside a program that has the environment open.
    Log(LogArgs),
    /// Type commands, or pipe them in: several named transactions at once, one line of answer a command from a pipe.
    Shell(DirArgs),
    /// Show the settings in force and where each comes from, or check the settings file.
    Config(ConfigArgs),
    /// List, commit or abort the transactions that were prepared for a two-phase commit and are in doubt.
    Prepared(PreparedArgs),
    /// Back up an environment, in full or only the log since the last backup, and verify backups.
    Backup(crate::media::BackupArgs),
    /// Make an environment anew from backups and log: to the end, a time or an LSN.
    Restore(crate::media::RestoreArgs),
    /// Make damaged pages whole again from a backup and the log.
    Repair(crate::media::RepairArgs),
    /// Show, fill, check and trim the archive of the log.
    Archive(crate::media::ArchiveArgs),
    /// Write tables as text that load and Berkeley DB's db_load read.
    Dump(crate::dump::DumpArgs),
    /// Read tables from a dump, ours or one of Berkeley DB's db_dump.
    Load(crate::dump::LoadArgs),
    /// Print what committed transactions changed, in their order.
    Changes(crate::changes::ChangesArgs),
    /// Measure.
    Bench(BenchArgs),
    /// Measure what this machine gives a transactional system, and what to set.
    Probe(crate::probe::ProbeArgs),
    /// Transactions on raw flash: demonstration, power cuts, benchmark, traces, TPC-C.
    Flash(crate::flash::FlashArgs),
    /// Print a completion script for a shell.
    Completions(CompletionsArgs),
    /// Write the manual pages, one for each command.
    Man(ManArgs),
}

/// `prepared`
#[derive(Clone, Debug, clap::Args)]
pub struct PreparedArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub at: DirArgs,
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub command: PreparedCommand,
}

/// What to do with the transactions in doubt.
#[derive(Clone, Debug, Subcommand)]
pub enum PreparedCommand {
    /// Print them, by global id.
    List,
    /// Commit one (exit code 1 if none has that id).
    Commit(PreparedIdArgs),
    /// Roll one back (exit code 1 if none has that id).
    Abort(PreparedIdArgs),
}

/// A transaction in doubt.
#[derive(Clone, Debug, clap::Args)]
pub struct PreparedIdArgs {
    /// The global id that it was prepared under.
    #[arg(value_name = "GLOBAL_ID")]
    pub id: String,
    /// The global id is hexadecimal.
    #[arg(long)]
    pub hex: bool,
}

/// `init`
#[derive(Clone, Debug, clap::Args)]
pub struct InitArgs {
    /// Directory to make; it may be there if it is empty.
    pub dir: PathBuf,
    /// Page size: a power of two from 4K to 32K.
    #[arg(long, value_name = "BYTES", value_parser = bench::parse_bytes)]
    pub page: Option<u64>,
    /// Size of a log segment: a power of two from 64K.
    #[arg(long, value_name = "BYTES", value_parser = bench::parse_bytes)]
    pub segment: Option<u64>,
}

/// `put`
#[derive(Clone, Debug, clap::Args)]
pub struct PutArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub table: TableArgs,
    /// The key.
    #[arg(allow_negative_numbers = true)]
    pub key: String,
    /// The value; `-` reads it from standard input, byte for byte.
    #[arg(allow_negative_numbers = true)]
    pub value: String,
    /// Refuse a key that has a value already (exit code 1).
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
    /// The first key.
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub from: Option<String>,
    /// The end: keys below this one.
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub to: Option<String>,
    /// Keys that begin so.
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to", "key_type"])]
    pub prefix: Option<String>,
    /// From the last key to the first.
    #[arg(long)]
    pub reverse: bool,
    /// At most so many records.
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,
    /// Print no values.
    #[arg(long)]
    pub keys_only: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub text: TextArgs,
}

/// `tables`
#[derive(Clone, Debug, clap::Args)]
pub struct TablesArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub at: DirArgs,
    /// Count the records of each, which reads them all.
    #[arg(long)]
    pub count: bool,
}

/// `rename`
#[derive(Clone, Debug, clap::Args)]
pub struct RenameArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub table: TableArgs,
    /// The name that it gets.
    pub new: String,
}

/// What to do with indexes.
#[derive(Clone, Debug, Subcommand)]
pub enum IndexCommand {
    /// Make an index of a table. It holds the records that are there and follows every later change.
    Create(IndexCreateArgs),
    /// Drop an index (exit code 1 if there is none of that name).
    Drop(IndexNameArgs),
    /// Print the indexes of a table, or of all.
    List(IndexListArgs),
    /// Print records in the order of their index keys: index key, key, value (exit code 1 if a KEY is not there).
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
    /// Where its keys come from: value, bytes:FROM..TO, field:NUMBER (tabs), field:NUMBER:SEPARATOR, json:MEMBER (as import
    /// stores rows) or json:/POINTER.
    pub keys: IndexKeys,
    /// Refuse a record whose index key another one has.
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
    /// Name of the table; otherwise all.
    pub table: Option<String>,
}

/// `index lookup`
#[derive(Clone, Debug, clap::Args)]
pub struct IndexLookupArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub index: IndexNameArgs,
    /// The index key; otherwise all, or those that the options choose. Of an index by a JSON member, a number is the number and
    /// the text, and in double quotes the text only; bounds hold among keys of their kind.
    #[arg(allow_negative_numbers = true, conflicts_with_all = ["from", "to", "prefix"])]
    pub key: Option<String>,
    /// The first index key.
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub from: Option<String>,
    /// The end: index keys below this one.
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub to: Option<String>,
    /// Index keys that begin so.
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
    pub prefix: Option<String>,
    /// From the last index key to the first.
    #[arg(long)]
    pub reverse: bool,
    /// At most so many records.
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,
    /// Print no values, and do not read them.
    #[arg(long)]
    pub keys_only: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub text: TextArgs,
}

/// `import`
#[derive(Clone, Debug, clap::Args)]
pub struct ImportArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub table: TableArgs,
    /// The file; `-` for standard input. A name that ends in .gz is of a compressed file.
    pub file: String,
    /// What the file holds; known from its name's ending otherwise.
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// The column that is the key; several are joined by --separator, in this order.
    #[arg(long, value_name = "COLUMN", value_delimiter = ',', required = true)]
    pub key: Vec<String>,
    /// The column that is the value; otherwise the whole row, as a JSON object.
    #[arg(long, value_name = "COLUMN")]
    pub value: Option<String>,
    /// What is put between the columns of a key.
    #[arg(long, default_value = ":")]
    pub separator: String,
    /// What separates the fields of CSV: one byte.
    #[arg(long, default_value = ",")]
    pub delimiter: String,
    /// What fields of CSV and TSV are in the JSON object: numbers and truth values as such, empty ones as null. `auto` takes
    /// as a number or a truth value whatever is one in JSON. Without --types all are texts.
    #[arg(long, value_name = "auto|COLUMN=text|number|bool|auto", value_delimiter = ',', conflicts_with = "value")]
    pub types: Vec<ColumnType>,
    /// Names of the columns, for a file whose first line is a row.
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    pub columns: Option<Vec<String>>,
    /// All or nothing: one transaction for the whole file.
    #[arg(long, conflicts_with = "batch")]
    pub one_transaction: bool,
    /// The rows come in the order of their keys, as bytes, each key once: full pages and less log, in one transaction. The
    /// table is new, or empty, or all its keys are below.
    #[arg(long, conflicts_with_all = ["batch", "one_transaction"])]
    pub sorted: bool,
    /// Rows of a transaction.
    #[arg(long, value_name = "ROWS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub batch: u64,
    /// Leave malformed lines out, name each, and go on (exit code 1 if there was one); otherwise stop at the first.
    #[arg(long)]
    pub keep_going: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub text: TextArgs,
}

/// `export`
#[derive(Clone, Debug, clap::Args)]
pub struct ExportArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub table: TableArgs,
    /// The file, which is replaced; `-` for standard output. A name that ends in .gz is written compressed.
    #[arg(default_value = "-")]
    pub file: String,
    /// What to write; known from the file's name otherwise, JSON lines if it has none.
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Values are JSON objects, as `import` stores rows: write their members as columns, and no key column.
    #[arg(long, conflicts_with = "hex")]
    pub rows: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub text: TextArgs,
}

/// `stat`
#[derive(Clone, Debug, clap::Args)]
pub struct StatArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub at: DirArgs,
    /// Exact numbers instead of readable ones.
    #[arg(long)]
    pub bytes: bool,
}

/// `log`
#[derive(Clone, Debug, clap::Args)]
pub struct LogArgs {
    /// Directory of the environment, which is not opened.
    pub dir: PathBuf,
    /// Only records of the transaction with this number.
    #[arg(long, value_name = "XID")]
    pub transaction: Option<u64>,
    /// Only records that change this page.
    #[arg(long, value_name = "PAGE")]
    pub page: Option<u64>,
    /// Only records that change a page of this table; opens the environment for a moment to look its root page up.
    #[arg(long, value_name = "TABLE", conflicts_with = "root")]
    pub table: Option<String>,
    /// Only records that change a page of the table with this root page.
    #[arg(long, value_name = "PAGE")]
    pub root: Option<u64>,
    /// Only records of this kind: update, group, commit, checkpoint ...; several by commas.
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub kind: Vec<String>,
    /// Only records that begin at this LSN or later.
    #[arg(long, value_name = "LSN")]
    pub from: Option<u64>,
    /// Only records that begin below this LSN.
    #[arg(long, value_name = "LSN")]
    pub to: Option<u64>,
    /// From the newest record to the oldest.
    #[arg(long, conflicts_with = "follow")]
    pub reverse: bool,
    /// At most so many records.
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,
    /// At the end, wait for more; ends when it is interrupted.
    #[arg(long)]
    pub follow: bool,
}

/// `config`
#[derive(Clone, Debug, clap::Args)]
pub struct ConfigArgs {
    /// Directory of the environment, which is not opened: somebody else may have it open.
    #[arg(required_unless_present = "defaults")]
    pub dir: Option<PathBuf>,
    /// Only say what is wrong with the settings file (exit code 1 if something is).
    #[arg(long, conflicts_with = "defaults")]
    pub check: bool,
    /// Print a settings file with every setting, its default and what it does, to begin with.
    #[arg(long)]
    pub defaults: bool,
}

/// `bench`
#[derive(Clone, Debug, clap::Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub what: Bench,
}

/// What to measure.
#[derive(Clone, Debug, Subcommand)]
pub enum Bench {
    /// TPC-B as LIBTP ran it: throughput, latency, aborts, log and syncs of a transaction; --check proves the books.
    Tpcb(bench::tpcb::TpcbArgs),
    /// Random point reads of a table in the cache.
    Points(bench::points::PointsArgs),
    /// Scans of a whole table in the cache.
    Scan(bench::scan::ScanArgs),
    /// Snapshot readers beside writers, and what each costs the other.
    Snapshots(bench::snapshots::SnapshotsArgs),
    /// Many threads with short transactions, against a few: records of their own, or the same hot ones.
    Crowd(bench::crowd::CrowdArgs),
    /// TPC-B with sync under a settings file, beside the built-in defaults.
    Settings(bench::settings::SettingsArgs),
    /// The device alone: durable overwrites, random reads.
    Device(bench::device::DeviceArgs),
    /// Kill a process that ran TPC-B and measure the restart.
    Recovery(bench::recovery::RecoveryArgs),
    /// Kill a process in the middle of a large transaction and measure the restart.
    Loser(bench::loser::LoserArgs),
    /// Roll a large transaction back and compare that with making its changes.
    Rollback(bench::rollback::RollbackArgs),
    /// An environment far larger than its cache through everything: load, index, verify, backup, kill, many tables.
    Scale(bench::scale::ScaleArgs),
    /// Resident memory against the limit; a table ten times the cache.
    Memory(bench::memory::MemoryArgs),
    /// All of the above against their targets, as a table.
    Gates(bench::gates::GatesArgs),
}

/// `completions`
#[derive(Clone, Debug, clap::Args)]
pub struct CompletionsArgs {
    /// Which shell.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `man`
#[derive(Clone, Debug, clap::Args)]
pub struct ManArgs {
    /// Directory for the pages, made if it is missing; `man -M` and MANPATH want it to be named man1.
    pub dir: PathBuf,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Args::command().debug_assert();
    }
}
