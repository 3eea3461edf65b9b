//! Where in the source an instruction comes from.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

/// What has no source of ours.
const ELSEWHERE: &str = "the C library";

/// The code that instructions belong to, as `addr2line` tells it.
#[derive(Debug, Default)]
pub(super) struct Sources(HashMap<u64, String>);

impl Sources {
    /// Asks for these addresses in the program's file.
    pub fn of(program: &Path, addresses: impl Iterator<Item = u64>) -> anyhow::Result<Sources> {
        let mut command = Command::new("addr2line");
        command.args(["--addresses", "--functions", "--inlines", "--demangle", "--exe"]).arg(program);
        let output = command.args(addresses.map(|at| format!("{at:#x}"))).output();
        let output = output.context("cannot run addr2line (Debian package binutils)")?;
        ensure!(output.status.success(), "addr2line: {}", String::from_utf8_lossy(&output.stderr));
        Ok(Sources::parse(&String::from_utf8_lossy(&output.stdout)))
    }

    fn parse(text: &str) -> Sources {
        let mut sources = HashMap::new();
        let (mut address, mut frames, mut function) = (None, Vec::new(), None);
        for line in text.lines() {
            if let Some(at) = line.strip_prefix("0x").and_then(|at| u64::from_str_radix(at, 16).ok()) {
                sources.extend(address.replace(at).map(|at| (at, place(&std::mem::take(&mut frames)))));
                function = None;
            } else if let Some(function) = function.take() {
                frames.push((function, line));
            } else {
                function = Some(line);
            }
        }
        sources.extend(address.map(|at| (at, place(&frames))));
        Sources(sources)
    }

    /// The place of an instruction.
    pub fn at(&self, address: u64) -> &str {
        self.0.get(&address).map_or(ELSEWHERE, String::as_str)
    }
}

/// The innermost of our files that is not the one of words in shared memory, and its function.
fn place(frames: &[(&str, &str)]) -> String {
    let ours = |file: &str| Some(file.split_once("/crates/")?.1.split(':').next()?.replacen("/src/", "/", 1));
    let named = |(function, file): &(&str, &str)| Some((ours(file)?, short(function)));
    let all: Vec<(String, String)> = frames.iter().filter_map(named).collect();
    let found = all.iter().find(|(file, _)| !file.starts_with("region/")).or(all.first());
    match found {
        Some((file, function)) => format!("{file} {function}"),
        None => match frames.last() {
            Some((function, _)) if *function != "??" => short(function),
            _ => ELSEWHERE.to_owned(),
        },
    }
}

/// A function's name without path and types.
fn short(function: &str) -> String {
    let closure = function.split("::{closure").next().unwrap_or(function);
    let mut plain = String::new();
    let mut depth = 0_i32;
    for letter in closure.chars() {
        depth += i32::from(letter == '<');
        if depth == 0 {
            plain.push(letter);
        }
        depth -= i32::from(letter == '>');
    }
    let named = plain.rsplit("::").find(|part| !part.is_empty() && !part.starts_with('{'));
    named.unwrap_or(&plain).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_our_innermost_function() {
        let text = "\
0x0000000000000010
core::sync::atomic::AtomicU64::fetch_add
/rustc/1/library/core/src/sync/atomic.rs:10
add
/home/x/crates/region/src/words.rs:3
ledgerstone_lock::table::<impl ledgerstone_lock::Table<T>>::lock::{closure#0}
/home/x/crates/lock/src/table.rs:77 (discriminator 2)
main
/home/x/crates/cli/src/main.rs:1
0x0000000000000020
pthread_x
??:0
";
        let sources = Sources::parse(text);
        assert_eq!(sources.at(0x10), "lock/table.rs lock");
        assert_eq!(sources.at(0x20), "pthread_x");
        assert_eq!(sources.at(0x30), "the C library");
    }
}
