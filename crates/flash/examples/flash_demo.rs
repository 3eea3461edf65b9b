//! `make flash-demo`: see [`ledgerstone_flash::demo`]. It runs itself again as the process that is killed.

use std::path::PathBuf;
use std::process::Command;

use clap::Parser;
use ledgerstone_flash::demo;
use ledgerstone_flash::protocol::{self, Protocol};

/// A bank on a flash image, killed at random moments and audited, under each protocol.
#[derive(Parser)]
struct Args {
    /// The image of the bank that is to be worked on; without it, everything is started from here.
    #[arg(requires = "protocol", hide = true)]
    image: Option<PathBuf>,
    /// The bank's protocol.
    #[arg(value_parser = protocol::parse, hide = true)]
    protocol: Option<Protocol>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Args { image: Some(image), protocol: Some(protocol) } = Args::parse() {
        return Ok(demo::work(&image, protocol, &mut std::io::stdout())?);
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
