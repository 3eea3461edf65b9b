//! `man`: the manual pages, written into a directory.

use std::path::PathBuf;

use anyhow::Context;
use serde_json::json;

use crate::help;
use crate::outcome::Outcome;
use crate::output::Output;
use crate::target::Target;

/// `man`
#[derive(Clone, Debug, clap::Args)]
pub struct ManArgs {
    /// Directory for the pages. It is made if it is missing. For `man -M` and MANPATH, call it man1.
    pub dir: PathBuf,
    /// Replace pages that are there.
    #[arg(long)]
    pub force: bool,
}

pub(crate) fn run(args: &ManArgs, output: &Output) -> anyhow::Result<Outcome> {
    let to = || format!("cannot write manual pages into {}", args.dir.display());
    std::fs::create_dir_all(&args.dir).with_context(to)?;
    let pages = help::pages().with_context(to)?;
    for (name, _) in &pages {
        Target::check_new(&args.dir.join(name), args.force, "--force replaces it")?;
    }
    for (name, page) in &pages {
        std::fs::write(args.dir.join(name), page).with_context(to)?;
    }
    if output.is_json {
        output.json(&json!({ "dir": args.dir }))?;
    }
    output.note(format_args!("manual pages written to {}", args.dir.display()));
    Ok(Outcome::Done)
}
