//! `make flash-demo`: see [`ledgerstone_flash::demo`]. It runs itself again as the process that is killed.

use std::path::Path;
use std::process::Command;

use ledgerstone_flash::{demo, protocol};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [path, protocol] = &arguments[..] {
        return Ok(demo::work(Path::new(path), protocol::parse(protocol)?, &mut std::io::stdout())?);
    }
    let executable = std::env::current_exe()?;
    demo::watch(
        &mut |path, protocol| {
            let mut child = Command::new(&executable);
            child.arg(path).arg(protocol.name());
            child
        },
        &mut |line| println!("{line}"),
    )?;
    Ok(())
}
