//! What `make install` puts where, with the program as the tests have built it.
#![allow(missing_docs)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Whether an ELF file has a table of symbols.
fn has_symbols(path: &Path) -> bool {
    const SYMBOLS: u32 = 2;
    let bytes = std::fs::read(path).unwrap();
    assert!(bytes.starts_with(b"\x7fELF\x02\x01"), "an ELF file of 64 bits, little-endian");
    let number =
        |at: usize, len: usize| bytes[at..at + len].iter().rev().fold(0, |n, byte| n << 8 | usize::from(*byte));
    let (sections_at, section_bytes, count) = (number(0x28, 8), number(0x3a, 2), number(0x3c, 2));
    (0..count).any(|no| number(sections_at + no * section_bytes + 4, 4) as u32 == SYMBOLS)
}

#[test]
fn install_puts_the_command_without_its_symbols_its_pages_and_its_completions() {
    let dir = tempfile::tempdir().unwrap();
    let built = &PathBuf::from(assert_cmd::cargo::cargo_bin!("ledgerstone"));
    std::fs::create_dir_all(dir.path().join("target/release")).unwrap();
    std::os::unix::fs::symlink(built, dir.path().join("target/release/ledgerstone")).unwrap();
    let prefix = dir.path().join("usr");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/install.sh");
    let mut install = Command::new("bash");
    install.arg(script).arg(&prefix).env("CARGO_TARGET_DIR", dir.path().join("target"));
    let output = install.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let installed = prefix.join("bin/ledgerstone");
    assert!(has_symbols(built) && !has_symbols(&installed));
    assert!(Command::new(&installed).arg("--version").output().unwrap().status.success());
    for file in [
        "man/man1/ledgerstone.1",
        "man/man1/ledgerstone-put.1",
        "bash-completion/completions/ledgerstone",
        "zsh/site-functions/_ledgerstone",
        "fish/vendor_completions.d/ledgerstone.fish",
    ] {
        assert!(prefix.join("share").join(file).metadata().unwrap().len() > 0, "{file}");
    }
}
