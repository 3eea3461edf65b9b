//! `make flash-crash ROUNDS=...`: random power cuts over all protocols, against a model.
//!
//! `cargo run --release -p ledgerstone-flash --example flash_crash -- CUTS [SEED]`

use std::time::Instant;

use clap::Parser;
use ledgerstone_flash::campaign;

/// Cuts the power at random moments, and compares what is left with a model.
#[derive(Parser)]
struct Args {
    /// Power cuts, over all protocols.
    #[arg(default_value_t = 5000)]
    cuts: u64,
    /// The first seed.
    #[arg(default_value_t = 1)]
    seed: u64,
}

fn main() {
    let Args { cuts, seed } = Args::parse();
    let began = Instant::now();
    println!("power cuts: {cuts}, first seed {seed}");
    let mut next_line = cuts / 10;
    let answer = campaign::run(cuts, seed, &mut |done| {
        if done >= next_line {
            println!("  {done} cuts, {:.0} s", began.elapsed().as_secs_f64());
            next_line += cuts / 10;
        }
    });
    match answer {
        Ok(report) => println!("ran: {report}, {:.1} s; nothing lost, nothing invented", began.elapsed().as_secs_f64()),
        Err(broken) => {
            println!("BROKEN {broken}");
            std::process::exit(1);
        }
    }
}
