//! Transactions in doubt: listed, committed, aborted.

use anyhow::anyhow;
use ledgerstone::Error;
use serde_json::{Map, Value};

use crate::args::{PreparedArgs, PreparedCommand, PreparedIdArgs};
use crate::opening::open;
use crate::outcome::Outcome;
use crate::output::Output;
use crate::text::{from_hex, readable, to_hex};

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
            let mut object = Map::new();
            match std::str::from_utf8(&found.global_id) {
                Ok(text) => object.insert("global_id".into(), text.into()),
                Err(_) => object.insert("global_id_hex".into(), to_hex(&found.global_id).into()),
            };
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
    match decided {
        Ok(()) => {}
        Err(error @ Error::NotPrepared { .. }) => {
            output.note(error);
            env.close()?;
            return Ok(Outcome::Not);
        }
        Err(error) => return Err(error.into()),
    }
    env.close()?;
    Ok(Outcome::Done)
}
