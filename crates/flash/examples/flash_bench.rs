//! `make flash-bench`: CFC and AFC on the simulated device, over the share of aborted transactions; a table in Markdown.
//!
//! `cargo run --release -p ledgerstone-flash --example flash_bench -- [PART]` takes one PART-th of the paper's 32 GB (32).

use ledgerstone_flash::experiment::{Setup, paper_device, run};
use ledgerstone_flash::flag::{FlagConfig, Mode};

fn main() -> Result<(), ledgerstone_flash::FlashError> {
    let part: u32 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(32);
    let geometry = paper_device(part);
    let pages = geometry.pages();
    println!(
        "device: {} blocks of {} pages of {} bytes",
        geometry.blocks, geometry.pages_per_block, geometry.page_bytes
    );
    println!(
        "| aborted % | protocol | committed/s | copied a block | late | flags a commit | restart ms | chip op/s |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for abort_per_mille in [10, 50, 100, 150, 200, 500] {
        for mode in [Mode::Cfc, Mode::Afc] {
            let setup = Setup {
                config: FlagConfig::new(mode),
                geometry,
                clients: 50,
                working_set: pages / 16,
                pages_per_txn: 10,
                abort_per_mille,
                warm_up: pages / 10,
                measured: pages / 10,
                seed: 1,
            };
            let o = run(&setup)?;
            println!(
                "| {:.0} | {} | {:.1} | {:.2} | {:.2} | {:.3} | {:.1} | {:.2} M |",
                f64::from(abort_per_mille) / 10.0,
                mode.name(),
                o.throughput,
                o.copied_per_block,
                o.copied_per_block_late,
                o.flags_per_commit,
                o.recovery_ms,
                o.chip_operations_per_second / 1e6,
            );
        }
    }
    Ok(())
}
