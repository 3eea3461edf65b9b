//! What so many transactions write to the device in all, their checkpoint and the close included.

use super::Bench;
use super::bank::Bank;
use crate::measure::{self, Figure, Moment};
use crate::peer::{Durability, Settings};

const BANK: Bank = Bank { account_count: 1_000_000, branch_count: 10 };

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<()> {
    let count = bench.choose(50_000_u64, 500_000);
    let dir = bench.fresh("written")?;
    let peer = bench.entry.open(Settings::roomy(&dir))?;
    BANK.load(&*peer)?;
    peer.checkpoint()?;

    let (before, since) = (Moment::now(&[]), peer.written()?);
    let mut worker = peer.worker(Durability::None)?;
    let mut transfer = BANK.transfers(1, 0);
    (0..count).try_for_each(|_| transfer(&mut *worker).map(drop))?;
    drop(worker);
    peer.checkpoint()?;
    let parts = peer.written()?;
    peer.close()?;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let what = |what: &str| format!("{count} transfers, {what}");
    bench.add(Figure::plain(what("written"), mib(before.written(&[])), "MiB", false));
    bench.add_parts(&what("written"), &parts, &since, "MiB", f64::from(1 << 20));
    bench.add(Figure::plain(what("files"), mib(measure::disk_bytes(&dir)), "MiB", false));

    let peer = bench.entry.open(Settings::roomy(&dir))?;
    let row_count = BANK.check(&*peer)?;
    anyhow::ensure!(row_count == count, "{row_count} transfers are there of {count}");
    bench.proved(format!("after the close, {row_count} transfers agree with every balance"));
    peer.close()?;
    std::fs::remove_dir_all(dir)?;
    Ok(())
}
