//! Transactions in doubt: listed, committed, aborted.

use anyhow::anyhow;
use ledgerstone::Error;
use serde_json::{Map, Value};

use crate::args::{PreparedArgs, PreparedCommand, PreparedIdArgs};
use crate::commands::add_bytes;
use crate::opening::open;
use crate::outcome::Outcome;
use crate::output::Output;
use crate::text::{from_hex, readable};

pub(crate) fn run(args: &PreparedArgs, output: &Output) -> anyhow::Result<Outcome> {
    match &args.command {
        PreparedCommand::List => list(args, output),
        PreparedCommand::Commit(id) => decide(args, id, true, output),
        PreparedCommand::Abort(id) => decide(args, id, false, output),
    }
}

fn list(args: &PreparedArgs, output: &Output) -> anyhow::Result<Outcome> {
    let env = open(&args.at, output)?;
    for found in env.in_doubt() {
        if output.is_json {
            let mut object = id_json(&found.global_id);
            object.insert("xid".into(), found.xid.0.into());
            object.insert("prepared_lsn".into(), found.prepared_lsn.0.into());
            object.insert("first_lsn".into(), found.first_lsn.0.into());
            object.insert("lock_count".into(), found.lock_count.into());
            output.json(&Value::from(object))?;
        } else {
            let (xid, lsn, count) = (found.xid, found.prepared_lsn, found.lock_count);
            let id = readable(&found.global_id);
            output.line(format_args!("{id}\ttransaction {xid}\tprepared at LSN {lsn}\t{count} locks"))?;
        }
    }
    output.flush()?;
    env.close()?;
    Ok(Outcome::Done)
}

fn decide(args: &PreparedArgs, id: &PreparedIdArgs, commits: bool, output: &Output) -> anyhow::Result<Outcome> {
    let global_id = match id.hex {
        true => from_hex(&id.id).map_err(|what| anyhow!("the global id: {what}"))?,
        false => id.id.as_bytes().to_vec(),
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

fn id_json(global_id: &[u8]) -> Map<String, Value> {
    let mut object = Map::new();
    add_bytes(&mut object, "global_id", global_id, std::str::from_utf8(global_id).ok().map(Value::from));
    object
}
