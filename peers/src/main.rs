//! Ledgerstone beside other stores: `make peers` runs this program.
//!
//! `peers run` starts a process of its own for each peer, section and round, in turns, and writes the figures as JSON
//! and as a page. `peers one` is such a process. `peers counted` is what `make counts BESIDE=1` runs under callgrind.

mod book;
mod c;
mod counted;
mod experiments;
mod measure;
mod page;
mod peer;
mod peers;
mod rounds;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use anyhow::Context;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Ledgerstone measured beside other stores")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures, and writes the page.
    Run(rounds::RunArgs),
    /// Writes the page from the JSON that is there.
    Page(rounds::PageArgs),
    /// Measures one section with one peer, and prints the figures as JSON.
    One(OneArgs),
    /// Runs the operations that `make counts BESIDE=1` counts.
    #[command(hide = true)]
    Counted(counted::CountedArgs),
    /// Works until it is killed.
    #[command(hide = true)]
    Victim(experiments::Victim),
}

#[derive(clap::Args)]
struct OneArgs {
    /// The section.
    #[arg(long)]
    section: String,
    /// The peer.
    #[arg(long)]
    peer: String,
    /// An empty directory on the device to measure.
    #[arg(long)]
    dir: PathBuf,
    /// Short.
    #[arg(long)]
    quick: bool,
    /// Measure cases that others disturbed again, at most so many.
    #[arg(long, default_value_t = 6)]
    repeats: u64,
    /// Nanoseconds that a cache line takes at best from one processor to another, if that is known.
    #[arg(long, default_value_t = 0.0)]
    handover_ns: f64,
    /// Load so many records in the section of loads, instead of the page's number.
    #[arg(long)]
    records: Option<u64>,
    /// Measure the cases of this name only; `*` stands for anything.
    #[arg(long)]
    case: Vec<String>,
}

fn main() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::Run(args) => rounds::run(&args),
        Command::Page(args) => rounds::write_page(&args),
        Command::One(args) => {
            let section = experiments::SECTIONS.iter().find(|section| section.name == args.section);
            let section = section.with_context(|| format!("there is no section {:?}", args.section))?;
            let OneArgs { quick, repeats, handover_ns, records, case, .. } = args;
            let how = experiments::How { is_quick: quick, repeats, handover_ns, records, cases: case };
            let run = section.run(peer::find(&args.peer)?, &args.dir, how)?;
            println!("{}", serde_json::to_string(&run)?);
            Ok(())
        }
        Command::Counted(args) => counted::run(&args),
        Command::Victim(victim) => experiments::be_victim(&victim),
    }
}
