//! `make flash-crash ROUNDS=...`: random power cuts over all protocols, against a model.
//!
//! `cargo run --release -p ledgerstone-flash --example flash_crash -- CUTS [SEED]`

use std::time::Instant;

use ledgerstone_flash::campaign;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let cuts: u64 = arguments.next().and_then(|a| a.parse().ok()).unwrap_or(5000);
    let seed: u64 = arguments.next().and_then(|a| a.parse().ok()).unwrap_or(1);
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
