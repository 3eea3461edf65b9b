//! The demonstration: a bank on a NAND device in a file, under each protocol. A child process moves money between
//! accounts, one transaction for each transfer, and is killed in the middle. Then the device is mounted again. No money
//! may be lost or made, and every transfer whose commit was reported must be there.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::{FlashError, Result};
use crate::nand::Geometry;
use crate::nand::file::FileNand;
use crate::protocol::{AnyStore, Config, Protocol};
use crate::rng::Rng;
use crate::store::Store;

const ACCOUNTS: u32 = 200;
const PER_PAGE: u32 = 20;
const START: i64 = 1000;
const COUNTER_PAGE: u32 = ACCOUNTS / PER_PAGE;

type Bank = Store<AnyStore<FileNand>>;

/// The parent. `child` makes the command that runs [`work`] on a path. `say` is called with a line for each step.
///
/// # Errors
/// [`FlashError::Corrupt`] if money or transfers are lost, and those of the store, of files and processes.
pub fn watch(child: &mut dyn FnMut(&Path, Protocol) -> Command, say: &mut dyn FnMut(&str)) -> Result<()> {
    let dir = std::env::temp_dir().join(format!("flash-demo-{}", std::process::id()));
    let io = |source| FlashError::Io { context: format!("in {}", dir.display()), source };
    std::fs::create_dir_all(&dir).map_err(io)?;
    let outcome = Protocol::ALL.into_iter().try_for_each(|protocol| watch_protocol(&dir, protocol, child, say));
    std::fs::remove_dir_all(&dir).map_err(io)?;
    outcome
}

fn watch_protocol(
    dir: &Path,
    protocol: Protocol,
    child: &mut dyn FnMut(&Path, Protocol) -> Command,
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    let io = |source| FlashError::Io { context: "running the bank".to_string(), source };
    let path = dir.join(protocol.name());
    let device = FileNand::create(&path, Config::new(protocol).suitable(Geometry::small(64)))?;
    let mut bank = Store::new(AnyStore::open(device, Config::new(protocol))?);
    let txn = bank.begin();
    for account in 0..ACCOUNTS {
        bank.put(txn, account / PER_PAGE, account, &START.to_le_bytes())?;
    }
    bank.put(txn, COUNTER_PAGE, 0, &0i64.to_le_bytes())?;
    bank.commit(txn)?;
    drop(bank);
    say(&format!("{}: {ACCOUNTS} accounts of {START} on {}", protocol.name(), path.display()));
    for (kill, transfers) in [300u64, 701, 1500].into_iter().enumerate() {
        let mut child = child(&path, protocol).stdout(Stdio::piped()).spawn().map_err(io)?;
        let mut reported = 0i64;
        if let Some(out) = child.stdout.take() {
            for (count, line) in BufReader::new(out).lines().enumerate() {
                // The last line may have been cut by the kill.
                reported = line.map_err(io)?.parse().unwrap_or(reported);
                if count as u64 == transfers {
                    child.kill().map_err(io)?;
                }
            }
        }
        child.wait().map_err(io)?;
        let mut bank = Store::new(AnyStore::open(FileNand::open(&path)?, Config::new(protocol))?);
        let (sum, counter) = audit(&mut bank)?;
        say(&format!("  kill {}: {reported} transfers reported, {counter} on flash, {sum} in all accounts", kill + 1));
        if sum != i64::from(ACCOUNTS) * START || counter < reported {
            return Err(FlashError::Corrupt(format!("{}: money or transfers lost", protocol.name())));
        }
    }
    Ok(())
}

fn number(value: &[u8]) -> Result<i64> {
    let bytes = value.try_into().map_err(|_| FlashError::Corrupt(format!("a number of {} bytes", value.len())))?;
    Ok(i64::from_le_bytes(bytes))
}

fn audit(bank: &mut Bank) -> Result<(i64, i64)> {
    let mut sum = 0;
    for page in 0..COUNTER_PAGE {
        for (_, value) in bank.records(None, page)? {
            sum += number(&value)?;
        }
    }
    Ok((sum, balance(bank, None, COUNTER_PAGE, 0)?))
}

fn balance(bank: &mut Bank, txn: Option<u32>, page: u32, key: u32) -> Result<i64> {
    let missing = || FlashError::Corrupt(format!("account {key} is missing"));
    number(&bank.get(txn, page, key)?.ok_or_else(missing)?)
}

/// The child: transfers, one line each, until it is killed.
///
/// # Errors
/// Those of the store and of `out`.
pub fn work(path: &Path, protocol: Protocol, out: &mut dyn Write) -> Result<()> {
    let io = |source| FlashError::Io { context: "reporting a transfer".to_string(), source };
    let mut bank = Store::new(AnyStore::open(FileNand::open(path)?, Config::new(protocol))?);
    let mut rng = Rng::new(u64::from(std::process::id()));
    loop {
        let txn = bank.begin();
        let (from, to) = (rng.below(u64::from(ACCOUNTS)) as u32, rng.below(u64::from(ACCOUNTS)) as u32);
        let amount = rng.below(100) as i64;
        for (account, change) in [(from, -amount), (to, amount)] {
            let value = balance(&mut bank, Some(txn), account / PER_PAGE, account)? + change;
            bank.put(txn, account / PER_PAGE, account, &value.to_le_bytes())?;
        }
        if rng.chance(100) {
            bank.abort(txn)?;
            continue;
        }
        let counter = balance(&mut bank, Some(txn), COUNTER_PAGE, 0)? + 1;
        bank.put(txn, COUNTER_PAGE, 0, &counter.to_le_bytes())?;
        bank.commit(txn)?;
        writeln!(out, "{counter}").and_then(|()| out.flush()).map_err(io)?;
    }
}
