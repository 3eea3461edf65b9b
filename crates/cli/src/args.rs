//! What can be typed. The texts here are the manual: `ledgerstone help COMMAND` shows them.
//!
//! This file knows every command's module. A module knows this file only for arguments of its own that stand here. Arguments
//! that several commands share stand with what they are for: a directory or a table in `opening`, how keys and values are written
//! in `text`.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use ledgerstone::IndexKeys;
use ledgerstone_bench as bench;

use crate::complete::Shell;
use crate::opening::{DirArgs, TableArgs};
use crate::rows::ColumnType;
use crate::rows::Format;
use crate::text::TextArgs;

/// A transactional storage engine. Its tables live in a directory, the environment.
///
/// Every command names the directory first. Exit codes: 0 done, 1 not found or a check failed, 2 an error, 130
/// interrupted.
#[derive(Debug, Parser)]
#[command(name = "ledgerstone", version, arg_required_else_help = true)]
pub struct Args {
    /// Answer in JSON, one object a line. docs/json.md says what each command answers.
    #[arg(long, global = true)]
    pub json: bool,
    /// Print only data and errors: no notes, no progress.
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
    /// Make, drop and list indexes, and find records by them.
    Index {
        #[command(subcommand)]
        #[allow(missing_docs)]
        command: IndexCommand,
    },
    /// Read the rows of a file into a table.
    Import(ImportArgs),
    /// Write a table to a file.
    Export(ExportArgs),
    /// Show sizes, settings and counters, and what this opening had to recover.
    Stat(StatArgs),
    /// Check every page, every tree and every index.
    Verify(DirArgs),
    /// Shorten the data file to what its records need.
    Compact(DirArgs),
    /// Take a checkpoint, so that the next restart reads less of the log.
    Checkpoint(DirArgs),
    /// Recover after a crash, as every open does, and report what was done.
    Recover(crate::recover::RecoverArgs),
    /// Print the records of the log, even while a program has the environment open.
    Log(LogArgs),
    /// Run commands from a terminal or a pipe, in several transactions at once.
    Shell(DirArgs),
    /// Show the settings and where each comes from, or check the settings file.
    Config(ConfigArgs),
    /// List, commit or abort transactions that are in doubt after a two-phase commit.
    Prepared(PreparedArgs),
    /// Back up an environment, in full or incrementally, and verify backups.
    Backup(crate::media::BackupArgs),
    /// Make a new environment from backups and log, as of the end, a time or an LSN.
    Restore(crate::media::RestoreArgs),
    /// Repair damaged pages from a backup and the log.
    Repair(crate::media::RepairArgs),
    /// List, fill, check and trim the archive of the log.
    Archive(crate::media::ArchiveArgs),
    /// Write tables as text that `load` and Berkeley DB's db_load read.
    Dump(crate::dump::DumpArgs),
    /// Read tables from a dump, by `dump` or by Berkeley DB's db_dump.
    Load(crate::dump::LoadArgs),
    /// Print what committed transactions changed, in the order of their commits.
    Changes(crate::changes::ChangesArgs),
    /// Measure the engine.
    Bench(BenchArgs),
    /// Measure what this machine offers a database, and recommend settings.
    Probe(crate::probe::ProbeArgs),
    /// Try transactions on raw flash: demonstration, power cuts, benchmark, traces, TPC-C.
    Flash(crate::flash::FlashArgs),
    /// Print a script that completes commands, options and tables in a shell.
    Completions(CompletionsArgs),
    /// Write the manual pages, one for each command.
    Man(ManArgs),
    /// Say what may come next on a command line, for the completion scripts.
    #[command(hide = true)]
    Complete(CompleteArgs),
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
    /// List the transactions in doubt by their global ids.
    List,
    /// Commit the transaction with this id. Exit code 1: there is none.
    Commit(PreparedIdArgs),
    /// Roll back the transaction with this id. Exit code 1: there is none.
    Abort(PreparedIdArgs),
}

/// A transaction in doubt.
#[derive(Clone, Debug, clap::Args)]
pub struct PreparedIdArgs {
    /// The global id that the transaction was prepared under.
    #[arg(value_name = "GLOBAL_ID")]
    pub id: String,
    /// The global id is in hexadecimal digits, because it is not UTF-8.
    #[arg(long)]
    pub hex: bool,
}

/// `init`
#[derive(Clone, Debug, clap::Args)]
pub struct InitArgs {
    /// Directory to make. If it exists, it must be empty.
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
    /// Print from the last key to the first.
    #[arg(long)]
    pub reverse: bool,
    /// Print at most this many records.
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,
    /// Print keys without values.
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
    /// Count the records of each table. This reads all of them.
    #[arg(long)]
    pub count: bool,
}

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
#[derive(Clone, Debug, Subcommand)]
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
    /// Print from the last index key to the first.
    #[arg(long)]
    pub reverse: bool,
    /// Print at most this many records.
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,
    /// Print keys without values, and do not read the values.
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
    /// The file, or `-` for standard input. A file whose name ends in .gz is read compressed.
    pub file: String,
    /// The format of the file. Without this, the ending of its name tells.
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// The column that is the key. Several columns are joined by --separator, in this order.
    #[arg(long, value_name = "COLUMN", value_delimiter = ',', required = true)]
    pub key: Vec<String>,
    /// The column that is the value. Without this, the value is the whole row as a JSON object.
    #[arg(long, value_name = "COLUMN")]
    pub value: Option<String>,
    /// What to put between the columns of a key.
    #[arg(long, default_value = ":")]
    pub separator: String,
    /// The byte between the fields of CSV.
    #[arg(long, default_value = ",")]
    pub delimiter: String,
    /// Types of CSV and TSV columns in the JSON object. Empty numbers and truth values become null. `auto` makes a
    /// number or a truth value of every field that is one in JSON. Without --types, all fields are text.
    #[arg(long, value_name = "auto|COLUMN=text|number|bool|auto", value_delimiter = ',', conflicts_with = "value")]
    pub types: Vec<ColumnType>,
    /// Names of the columns, if the first line of the file does not name them.
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    pub columns: Option<Vec<String>>,
    /// Import all rows or none, in one transaction.
    #[arg(long, conflicts_with = "batch")]
    pub one_transaction: bool,
    /// Load rows that are in the order of their keys, as bytes, into full pages with less log. All rows are one
    /// transaction. Any keys that the table has must be below those of the file.
    #[arg(long, conflicts_with_all = ["batch", "one_transaction"])]
    pub sorted: bool,
    /// Commit after this many rows.
    #[arg(long, value_name = "ROWS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub batch: u64,
    /// Report malformed lines and go on (exit code 1 if there are any). Without this, the first one stops the import.
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
    /// The file, or `-` for standard output. A file that exists is replaced. A name that ends in .gz means a compressed
    /// file.
    #[arg(default_value = "-")]
    pub file: String,
    /// The format. Without this, the ending of the file's name tells. It is JSON lines if nothing else is known.
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Write the members of the values as columns, and no column for the key. The values must be JSON objects, as
    /// `import` stores rows.
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
    /// Print sizes in bytes, not in larger units.
    #[arg(long)]
    pub bytes: bool,
}

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
    #[arg(long, value_name = "LSN")]
    pub from: Option<u64>,
    /// Only records that begin below this LSN.
    #[arg(long, value_name = "LSN")]
    pub to: Option<u64>,
    /// Print from the newest record to the oldest.
    #[arg(long, conflicts_with = "follow")]
    pub reverse: bool,
    /// Print at most this many records.
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,
    /// At the end, wait for more records until Ctrl-C.
    #[arg(long)]
    pub follow: bool,
}

/// `config`
#[derive(Clone, Debug, clap::Args)]
pub struct ConfigArgs {
    /// Directory of the environment. The command does not open it, so a program may have it open.
    #[arg(required_unless_present = "defaults")]
    pub dir: Option<PathBuf>,
    /// Report what is wrong with the settings file (exit code 1), and nothing else.
    #[arg(long, conflicts_with = "defaults")]
    pub check: bool,
    /// Print a settings file to start from, with every setting, its default and what it does.
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
    /// Run TPC-B as LIBTP did: throughput, latency, aborts, log and syncs of a transaction.
    Tpcb(bench::tpcb::TpcbArgs),
    /// Read records at random from a table in the cache.
    Points(bench::points::PointsArgs),
    /// Scan a whole table in the cache.
    Scan(bench::scan::ScanArgs),
    /// Run snapshot readers and writers together, and measure what each costs the other.
    Snapshots(bench::snapshots::SnapshotsArgs),
    /// Compare many threads with a few, in short transactions.
    Crowd(bench::crowd::CrowdArgs),
    /// Compare a settings file with the defaults, by TPC-B with durable commits.
    Settings(bench::settings::SettingsArgs),
    /// Measure the device alone: durable overwrites and random reads.
    Device(bench::device::DeviceArgs),
    /// Kill a process that runs TPC-B, and measure the restart.
    Recovery(bench::recovery::RecoveryArgs),
    /// Kill a process in the middle of a large transaction, and measure the restart.
    Loser(bench::loser::LoserArgs),
    /// Compare rolling back a large transaction with making its changes.
    Rollback(bench::rollback::RollbackArgs),
    /// Take an environment far larger than its cache through every command.
    Scale(bench::scale::ScaleArgs),
    /// Compare resident memory with the limit, on a table ten times the cache.
    Memory(bench::memory::MemoryArgs),
    /// Run all of these, and compare the results with their targets.
    Gates(bench::gates::GatesArgs),
}

/// `completions`
#[derive(Clone, Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub shell: Shell,
}

/// `complete`
#[derive(Clone, Debug, clap::Args)]
pub struct CompleteArgs {
    /// The line up to the cursor, as it is typed.
    #[arg(long)]
    pub line: Option<String>,
    /// What the shell takes for the word to complete.
    #[arg(long, allow_hyphen_values = true)]
    pub word: Option<String>,
    /// The words of the line behind the program's name; the last one is to be completed.
    #[arg(last = true, conflicts_with = "line")]
    pub words: Vec<String>,
}

/// `man`
#[derive(Clone, Debug, clap::Args)]
pub struct ManArgs {
    /// Directory for the pages. It is made if it is missing. For `man -M` and MANPATH, call it man1.
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
