//! Exercises a Linux MTD character device, and records the calls. **Everything on the device is erased.**
//!
//! `cargo run --release -p ledgerstone-flash --example flash_mtd -- /dev/mtd0 [FILE]`: `make flash-nandsim` runs it in
//! an emulated machine. FILE gets the calls of the first protocol, in the format of `nand::mtd::record`.

use std::path::PathBuf;

use clap::Parser;
use ledgerstone_flash::nand::exercise;
use ledgerstone_flash::nand::mtd::device::Device;
use ledgerstone_flash::nand::mtd::{MtdNand, record::Recorder};
use ledgerstone_flash::protocol::Protocol;

/// What data sheets of small SLC chips allow.
const PROGRAMS_MAX: u8 = 4;

/// Exercises a Linux MTD character device. Everything on it is erased.
#[derive(Parser)]
struct Args {
    /// The device, for example /dev/mtd0.
    device: PathBuf,
    /// Gets the calls of the first protocol.
    record: Option<PathBuf>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Args { device, record } = Args::parse();
    for protocol in [Protocol::Cfc, Protocol::Afc, Protocol::Scc, Protocol::Bpcc, Protocol::Wal] {
        let mut nand = MtdNand::new(Recorder::new(Device::open(&device)?), PROGRAMS_MAX)?;
        exercise::pages(&mut nand)?;
        exercise::store(&mut nand, protocol)?;
        println!(
            "{}: pages, flags, commits, an abort and two mounts on {} are as they should be",
            protocol.name(),
            device.display()
        );
        if let (Some(path), Protocol::Cfc) = (&record, protocol) {
            std::fs::write(path, nand.into_calls().into_text())?;
        }
    }
    Ok(())
}
