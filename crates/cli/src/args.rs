//! What can be typed. The texts here are the manual: `ledgerstone help COMMAND` shows them.
//!
//! This file names the module of every command. The arguments of a command are declared beside what the command does.
//! Arguments that several commands share are declared with what they are for: a directory or a table in `opening`, how
//! keys and values are written in `text`.
//!
//! The files that need the whole list use this one: `help` adds to each command's help, and the shell reads its lines
//! with it (`shell/outer.rs`, `shell/worker.rs`). Completions and manual pages are made from what `help` returns. No
//! other command knows this file.

use clap::{Parser, Subcommand};

use crate::opening::DirArgs;

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
    Init(crate::inspect::InitArgs),
    /// Set the value of a key.
    Put(crate::commands::PutArgs),
    /// Print the value of a key, on one line.
    Get(crate::commands::GetArgs),
    /// Delete a key.
    Del(crate::commands::DelArgs),
    /// Print records in the order of their keys.
    Scan(crate::commands::ScanArgs),
    /// List the tables.
    Tables(crate::inspect::TablesArgs),
    /// Give a table another name.
    Rename(crate::index::RenameArgs),
    /// Make, drop and list indexes, and find records by them.
    Index {
        #[command(subcommand)]
        #[allow(missing_docs)]
        command: crate::index::IndexCommand,
    },
    /// Read the rows of a file into a table.
    Import(crate::import::ImportArgs),
    /// Write a table to a file.
    Export(crate::export::ExportArgs),
    /// Show sizes, settings and counters, and what this opening had to recover.
    Stat(crate::inspect::StatArgs),
    /// Show the processes that have the environment open.
    Processes(DirArgs),
    /// Check every page, every tree and every index.
    Verify(DirArgs),
    /// Shorten the data file to what its records need.
    Compact(DirArgs),
    /// Take a checkpoint, so that the next restart reads less of the log.
    Checkpoint(DirArgs),
    /// Recover after a crash, as every open does, and report what was done.
    Recover(crate::recover::RecoverArgs),
    /// Print the records of the log, even while a program has the environment open.
    Log(crate::log::LogArgs),
    /// Run commands from a terminal or a pipe, in several transactions at once.
    Shell(DirArgs),
    /// Show the settings and where each comes from, or check the settings file.
    Config(crate::config::ConfigArgs),
    /// List, commit or abort transactions that are in doubt after a two-phase commit.
    Prepared {
        #[command(subcommand)]
        #[allow(missing_docs)]
        command: crate::prepared::PreparedCommand,
    },
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
    Bench(crate::bench::BenchArgs),
    /// Measure what this machine offers a database, and recommend settings.
    Probe(crate::probe::ProbeArgs),
    /// Try transactions on raw flash: demonstration, power cuts, benchmark, traces, TPC-C.
    Flash(crate::flash::FlashArgs),
    /// Print a script that completes commands, options and tables in a shell.
    Completions(crate::complete::CompletionsArgs),
    /// Write the manual pages, one for each command.
    Man(crate::man::ManArgs),
    /// Say what may come next on a command line, for the completion scripts.
    #[command(hide = true)]
    Complete(crate::complete::CompleteArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Args::command().debug_assert();
    }
}
