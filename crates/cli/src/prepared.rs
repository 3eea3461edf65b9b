//! Transactions in doubt: listed, committed, aborted.

use anyhow::anyhow;
use ledgerstone::{Error, InDoubt};
use serde_json::{Map, Value};

use crate::commands::add_bytes;
use crate::opening::{DirArgs, open};
use crate::outcome::Outcome;
use crate::output::{Output, counted};
use crate::text::{from_hex, readable};

/// What to do with the transactions in doubt.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum PreparedCommand {
    /// List the transactions in doubt by their global ids.
    List(DirArgs),
    /// Commit the transaction with this id. Exit code 1: there is none.
    Commit(PreparedIdArgs),
    /// Roll back the transaction with this id. Exit code 1: there is none.
    Abort(PreparedIdArgs),
}

/// A transaction in doubt.
#[derive(Clone, Debug, clap::Args)]
pub struct PreparedIdArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub at: DirArgs,
    /// The global id that the transaction was prepared under.
    #[arg(value_name = "GLOBAL_ID")]
    pub id: String,
    /// The global id is in hexadecimal digits, because it is not UTF-8.
    #[arg(long)]
    pub hex: bool,
}

pub(crate) fn run(command: &PreparedCommand, output: &Output) -> anyhow::Result<Outcome> {
    match command {
        PreparedCommand::List(at) => list(at, output),
        PreparedCommand::Commit(args) => decide(args, true, output),
        PreparedCommand::Abort(args) => decide(args, false, output),
    }
}

fn list(at: &DirArgs, output: &Output) -> anyhow::Result<Outcome> {
    let env = open(at, output)?;
    for found in env.in_doubt() {
        if output.is_json {
            output.json(&in_doubt_json(&found))?;
        } else {
            let (xid, lsn, locks) = (found.xid, found.prepared_lsn, counted(found.lock_count, "lock"));
            let id = readable(&found.global_id);
            output.line(format_args!("{id}\ttransaction {xid}\tprepared at LSN {lsn}\t{locks}"))?;
        }
    }
    output.flush()?;
    env.close()?;
    Ok(Outcome::Done)
}

/// A transaction in doubt as an object.
pub(crate) fn in_doubt_json(found: &InDoubt) -> Value {
    let mut object = id_json(&found.global_id);
    object.insert("xid".into(), found.xid.0.into());
    object.insert("prepared_lsn".into(), found.prepared_lsn.0.into());
    object.insert("first_lsn".into(), found.first_lsn.0.into());
    object.insert("lock_count".into(), found.lock_count.into());
    object.into()
}

fn decide(args: &PreparedIdArgs, commits: bool, output: &Output) -> anyhow::Result<Outcome> {
    let global_id = match args.hex {
        true => from_hex(&args.id).map_err(|what| anyhow!("the global id: {what}"))?,
        false => args.id.as_bytes().to_vec(),
    };
    let env = open(&args.at, output)?;
    let decided = match commits {
        true => env.commit_in_doubt(&global_id).map(drop),
        false => env.abort_in_doubt(&global_id),
    };
    let is_done = match decided {
        Err(error @ Error::NotPrepared { .. }) => {
            output.note(error);
            false
        }
        other => other.map(|()| true)?,
    };
    env.close()?;
    output.done(id_json(&global_id).into(), is_done)?;
    Ok(if is_done { Outcome::Done } else { Outcome::Not })
}

/// A global id as an object.
pub(crate) fn id_json(global_id: &[u8]) -> Map<String, Value> {
    let mut object = Map::new();
    add_bytes(&mut object, "global_id", global_id, std::str::from_utf8(global_id).ok().map(Value::from));
    object
}
