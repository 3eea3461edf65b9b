//! Where in the source instructions come from, by the program's debug information.

use std::collections::{BTreeSet, HashMap};
use std::io::{Seek, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

/// Where one instruction comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    /// The crate of this repository whose function it is, or was before it was put into another one.
    pub room: String,
    /// The file in that crate.
    pub file: String,
    /// The function, without what it is in.
    pub function: String,
}

/// The sources of a program's instructions, by their addresses: the functions of ours around each, from the inside out.
/// Those that come from no crate of ours are missing.
pub(super) struct Sources(HashMap<u64, Vec<Source>>);

impl Sources {
    /// Looks all of them up.
    pub fn of(program: &Path, addresses: &BTreeSet<u64>) -> anyhow::Result<Sources> {
        // A file, since a pipe that both sides write to could fill.
        let mut asked = tempfile::tempfile().context("cannot make a temporary file")?;
        let text: String = addresses.iter().map(|address| format!("{address:#x}\n")).collect();
        asked.write_all(text.as_bytes()).and_then(|()| asked.rewind()).context("cannot write a temporary file")?;
        let output = Command::new("addr2line")
            .args(["--addresses", "--functions", "--inlines", "--demangle", "--exe"])
            .arg(program)
            .stdin(Stdio::from(asked))
            .output()
            .context("cannot run addr2line (Debian package binutils)")?;
        ensure!(output.status.success(), "addr2line: {}", String::from_utf8_lossy(&output.stderr));
        Ok(Sources::parse(&String::from_utf8_lossy(&output.stdout)))
    }

    /// An address in a line of its own, and then two lines for each function around it, from the inside out: its name,
    /// and where in the source it is.
    fn parse(text: &str) -> Sources {
        let mut sources: HashMap<u64, Vec<Source>> = HashMap::new();
        let (mut address, mut function) = (None, None);
        for line in text.lines() {
            if let Some(found) = line.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
                (address, function) = (Some(found), None);
            } else if let Some(name) = function.take() {
                if let (Some(address), Some(source)) = (address, source(name, line)) {
                    sources.entry(address).or_default().push(source);
                }
            } else {
                function = Some(line);
            }
        }
        Sources(sources)
    }

    /// The functions around an instruction.
    pub fn get(&self, address: u64) -> &[Source] {
        self.0.get(&address).map_or(&[], Vec::as_slice)
    }
}

fn source(name: &str, place: &str) -> Option<Source> {
    // The standard library has a directory of crates, too.
    let (_, inside) = place.rsplit_once("crates/").filter(|(before, _)| !before.contains("library/"))?;
    let (room, rest) = inside.split_once("/src/")?;
    let (file, _) = rest.split_once(':')?;
    let function = name.rsplit("::").find(|part| !part.starts_with('{')).unwrap_or(name);
    Some(Source { room: room.to_owned(), file: file.to_owned(), function: function.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUND: &str = "\
0x0000000000001f20
core::sync::atomic::atomic_add
/rustc/59807616/library/core/src/sync/atomic.rs:3925
ledgerstone_log::append::<impl ledgerstone_log::log::Log>::append::{{closure}}
/home/somebody/crates/log/src/append.rs:161 (discriminator 2)
ledgerstone_txn::chain::Chain::append
crates/txn/src/chain.rs:123
0x0000000000001f28
alloc::sync::Arc<T>::drop
/rustc/59807616/library/alloc/src/sync.rs:10
_mm_prefetch
/rustc/59807616/library/stdarch/crates/core_arch/src/x86/sse.rs:1520
0x0000000000001f30
??
??:0
";

    #[test]
    fn an_instruction_has_the_functions_of_ours_around_it() {
        let sources = Sources::parse(FOUND);
        let source =
            |room: &str, file: &str| Source { room: room.into(), file: file.into(), function: "append".into() };
        assert_eq!(sources.get(0x1f20), [source("log", "append.rs"), source("txn", "chain.rs")]);
        assert!(sources.get(0x1f28).is_empty() && sources.get(0x1f30).is_empty());
    }

    #[test]
    fn this_program_is_found_in_itself() {
        let program = std::env::current_exe().unwrap();
        let nobody = Sources::of(&program, &BTreeSet::from([1])).unwrap();
        assert!(nobody.get(1).is_empty());
    }
}
