//! `man`: the manual pages, written into a directory.

use std::path::PathBuf;

use anyhow::Context;
use serde_json::json;

use crate::help;
use crate::outcome::Outcome;
use crate::output::Output;

/// `man`
#[derive(Clone, Debug, clap::Args)]
pub struct ManArgs {
    /// Directory for the pages. It is made if it is missing. For `man -M` and MANPATH, call it man1.
    pub dir: PathBuf,
}

pub(crate) fn run(args: &ManArgs, output: &Output) -> anyhow::Result<Outcome> {
    let to = || format!("cannot write manual pages into {}", args.dir.display());
    std::fs::create_dir_all(&args.dir).with_context(to)?;
    help::write_pages(&args.dir).with_context(to)?;
    if output.is_json {
        output.json(&json!({ "dir": args.dir }))?;
    }
    output.note(format_args!("manual pages written to {}", args.dir.display()));
    Ok(Outcome::Done)
}
