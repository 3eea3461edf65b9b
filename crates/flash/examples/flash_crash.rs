//! `make flash-crash ROUNDS=...`: random power cuts over all protocols, against a model.
//!
//! `cargo run --release -p ledgerstone-flash --example flash_crash -- CUTS [SEED]`

use std::time::Instant;

use ledgerstone_flash::campaign::{Report, round};
use ledgerstone_flash::flag::Mode;
use ledgerstone_flash::transact::Rules;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let cuts: u64 = arguments.next().and_then(|a| a.parse().ok()).unwrap_or(5000);
    let mut seed: u64 = arguments.next().and_then(|a| a.parse().ok()).unwrap_or(1);
    let began = Instant::now();
    let mut report = Report::default();
    println!("power cuts: {cuts}, first seed {seed}");
    let mut next_line = cuts / 10;
    while report.cuts < cuts {
        for mode in [Mode::Cfc, Mode::Afc] {
            if let Err(broken) = round(mode, Rules::corrected(), seed, &mut report) {
                println!("BROKEN {broken}");
                std::process::exit(1);
            }
        }
        seed += 1;
        if report.cuts >= next_line {
            println!("  {} cuts, {:.0} s", report.cuts, began.elapsed().as_secs_f64());
            next_line += cuts / 10;
        }
    }
    println!(
        "ran: {} power cuts ({} during recovery), {} commits, {} pages compared, {:.1} s; nothing lost, nothing invented",
        report.cuts,
        report.cuts_in_recovery,
        report.commits,
        report.pages_checked,
        began.elapsed().as_secs_f64()
    );
}
