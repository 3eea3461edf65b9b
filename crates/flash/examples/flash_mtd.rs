//! Exercises a Linux MTD character device, and records the calls. **Everything on the device is erased.**
//!
//! `cargo run --release -p ledgerstone-flash --example flash_mtd -- /dev/mtd0 [FILE]`: `make flash-nandsim` runs it in an emulated
//! machine. FILE gets the calls of the first protocol, in the format of `nand::mtd::record`.

use std::path::Path;

use ledgerstone_flash::nand::exercise;
use ledgerstone_flash::nand::mtd::device::Device;
use ledgerstone_flash::nand::mtd::{MtdNand, record::Recorder};
use ledgerstone_flash::protocol::Protocol;

/// What data sheets of small SLC chips allow.
const PROGRAMS_MAX: u8 = 4;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [device, record @ ..] = &arguments[..] else { return Err("which device, for example /dev/mtd0?".into()) };
    for protocol in [Protocol::Cfc, Protocol::Afc, Protocol::Scc, Protocol::Bpcc, Protocol::Wal] {
        let mut nand = MtdNand::new(Recorder::new(Device::open(Path::new(device))?), PROGRAMS_MAX)?;
        exercise::pages(&mut nand)?;
        exercise::store(&mut nand, protocol)?;
        println!(
            "{}: pages, flags, commits, an abort and two mounts on {device} are as they should be",
            protocol.name()
        );
        if let ([path], Protocol::Cfc) = (record, protocol) {
            std::fs::write(path, nand.into_calls().into_text())?;
        }
    }
    Ok(())
}
