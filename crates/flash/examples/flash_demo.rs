//! `make flash-demo`: a store on a NAND device in a file. A child process moves money between accounts, one transaction
//! each, and is killed in the middle; the parent mounts the device, and checks that no money was lost or made and that
//! every transfer whose commit was reported is there.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use ledgerstone_flash::flag::{FlagConfig, FlagStore, Mode};
use ledgerstone_flash::nand::Geometry;
use ledgerstone_flash::nand::file::FileNand;
use ledgerstone_flash::rng::Rng;
use ledgerstone_flash::store::Store;

const ACCOUNTS: u32 = 200;
const PER_PAGE: u32 = 20;
const START: i64 = 1000;
const COUNTER_PAGE: u32 = ACCOUNTS / PER_PAGE;

type Bank = Store<FlagStore<FileNand>>;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    match &arguments[1..] {
        [path, mode] => work(Path::new(path), if mode == "AFC" { Mode::Afc } else { Mode::Cfc }),
        _ => watch(),
    }
}

/// The parent.
fn watch() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("flash-demo-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let outcome = [Mode::Cfc, Mode::Afc].into_iter().try_for_each(|mode| watch_mode(&dir, mode));
    std::fs::remove_dir_all(&dir)?;
    outcome
}

fn watch_mode(dir: &Path, mode: Mode) -> Result<(), Box<dyn Error>> {
    let path = dir.join(mode.name());
    let mut bank = Store::new(FlagStore::open(FileNand::create(&path, Geometry::small(64))?, FlagConfig::new(mode))?);
    let txn = bank.begin();
    for account in 0..ACCOUNTS {
        bank.put(txn, account / PER_PAGE, account, &START.to_le_bytes())?;
    }
    bank.put(txn, COUNTER_PAGE, 0, &0i64.to_le_bytes())?;
    bank.commit(txn)?;
    drop(bank);
    println!("{}: {ACCOUNTS} accounts of {START} on {}", mode.name(), path.display());
    for (kill, transfers) in [300u64, 701, 1500].into_iter().enumerate() {
        let mut child =
            Command::new(std::env::current_exe()?).arg(&path).arg(mode.name()).stdout(Stdio::piped()).spawn()?;
        let mut reported = 0i64;
        if let Some(out) = child.stdout.take() {
            for (count, line) in BufReader::new(out).lines().enumerate() {
                reported = line?.parse()?;
                if count as u64 == transfers {
                    child.kill()?;
                }
            }
        }
        child.wait()?;
        let mut bank = Store::new(FlagStore::open(FileNand::open(&path)?, FlagConfig::new(mode))?);
        let (sum, counter) = audit(&mut bank)?;
        println!("  kill {}: {reported} transfers reported, {counter} on flash, {sum} in all accounts", kill + 1);
        if sum != i64::from(ACCOUNTS) * START || counter < reported {
            return Err(format!("{}: money or transfers lost", mode.name()).into());
        }
    }
    Ok(())
}

fn audit(bank: &mut Bank) -> Result<(i64, i64), Box<dyn Error>> {
    let mut sum = 0;
    for page in 0..COUNTER_PAGE {
        for (_, value) in bank.records(None, page)? {
            sum += i64::from_le_bytes(value[..].try_into()?);
        }
    }
    Ok((sum, balance(bank, None, COUNTER_PAGE, 0)?))
}

fn balance(bank: &mut Bank, txn: Option<u32>, page: u32, key: u32) -> Result<i64, Box<dyn Error>> {
    let value = bank.get(txn, page, key)?.ok_or("an account is missing")?;
    Ok(i64::from_le_bytes(value[..].try_into()?))
}

/// The child: transfers until it is killed.
fn work(path: &Path, mode: Mode) -> Result<(), Box<dyn Error>> {
    let mut bank = Store::new(FlagStore::open(FileNand::open(path)?, FlagConfig::new(mode))?);
    let mut rng = Rng::new(u64::from(std::process::id()));
    let mut out = std::io::stdout();
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
        writeln!(out, "{counter}")?;
    }
}
