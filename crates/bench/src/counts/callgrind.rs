//! Runs a program under callgrind, and reads what that has counted in each part of the run.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

/// Bytes of a line of the instruction cache.
const LINE_BYTES: u64 = 64;
/// Where a program gets memory, whatever it is called above.
const ALLOCATORS: [&str; 6] = ["malloc", "calloc", "realloc", "memalign", "posix_memalign", "aligned_alloc"];

/// A run whose parts have been counted: each call of a function `counted_work` is one, and nothing else is counted.
pub(super) struct Run {
    out: PathBuf,
    /// What the program said on its standard output.
    pub said: String,
}

impl Run {
    /// Runs the program; callgrind's files begin with `out`.
    pub fn of(program: &Path, args: &[&OsStr], out: PathBuf) -> anyhow::Result<Run> {
        let mut valgrind = Command::new("valgrind");
        valgrind
            .args(["--tool=callgrind", "--dump-instr=yes", "--dump-line=no"])
            .args(["--compress-strings=no", "--compress-pos=no"])
            .args(["--toggle-collect=*counted_work", "--dump-after=*counted_work", "--quiet"])
            .arg(format!("--callgrind-out-file={}", out.display()))
            .arg(program)
            .args(args);
        let output = valgrind.output().context("cannot run valgrind (Debian package valgrind)")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "under valgrind the operations failed: {}", errors.trim());
        Ok(Run { out, said: String::from_utf8(output.stdout).context("the program said what is no text")? })
    }

    /// The part that is counted of the row with this number, from 0 on. Each row has run twice, and so there are two
    /// parts; the first is thrown away.
    pub fn row(&self, no: usize) -> anyhow::Result<Part> {
        let mut name = self.out.as_os_str().to_owned();
        name.push(format!(".{}", no * 2 + 2));
        let part = Part::read(Path::new(&name))?;
        ensure!(part.instructions > 0, "callgrind has counted nothing of row {no}");
        Ok(part)
    }
}

/// What one part of a run has executed.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    pub instructions: u64,
    pub allocations: u64,
    /// How often each instruction was executed, by the file that it comes from and its address there.
    executed: HashMap<String, HashMap<u64, u64>>,
}

impl Part {
    /// Reads a part, written with `--dump-instr=yes --dump-line=no --compress-strings=no --compress-pos=no`.
    pub fn read(path: &Path) -> anyhow::Result<Part> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Part::parse(&text).with_context(|| format!("in {}", path.display()))
    }

    fn parse(text: &str) -> anyhow::Result<Part> {
        let mut part = Part::default();
        let (mut object, mut callee) = (String::new(), String::new());
        let mut is_of_call = false;
        for line in text.lines() {
            if let Some(positions) = line.strip_prefix("positions: ") {
                ensure!(positions == "instr", "positions are {positions}, and only instr is understood");
            } else if let Some(name) = line.strip_prefix("ob=") {
                name.clone_into(&mut object);
            } else if let Some(name) = line.strip_prefix("cfn=") {
                name.clone_into(&mut callee);
            } else if let Some(call) = line.strip_prefix("calls=") {
                let count = call.split(' ').next().and_then(|count| count.parse::<u64>().ok());
                let count = count.with_context(|| format!("{line:?} has no number"))?;
                if ALLOCATORS.contains(&callee.split('\'').next().unwrap_or_default()) {
                    part.allocations += count;
                }
                is_of_call = true;
            } else if let Some(position) = line.strip_prefix("0x") {
                let numbers = position.split_once(' ');
                let parsed = numbers
                    .and_then(|(at, count)| Some((u64::from_str_radix(at, 16).ok()?, count.parse::<u64>().ok()?)));
                let Some((at, count)) = parsed else { bail!("{line:?} is no address with a number") };
                // Behind a call comes what it took inside, which is counted there.
                if !std::mem::take(&mut is_of_call) {
                    part.instructions += count;
                    *part.executed.entry(object.clone()).or_default().entry(at).or_default() += count;
                }
            }
        }
        Ok(part)
    }

    /// Read-modify-writes that other processors see as one step.
    pub fn atomics(&self, files: &mut Files) -> anyhow::Result<u64> {
        let mut sum = 0;
        for (file, executed) in &self.executed {
            let atomics = files.atomics(file)?;
            sum += executed.iter().filter(|(at, _)| atomics.contains(at)).map(|(_, count)| count).sum::<u64>();
        }
        Ok(sum)
    }

    /// How often each instruction was executed, of one file and of the others.
    pub fn executed(&self, file: &str) -> (Option<&HashMap<u64, u64>>, impl Iterator<Item = (&str, u64)>) {
        let others = self.executed.iter().filter(move |(name, _)| name.as_str() != file);
        (self.executed.get(file), others.map(|(name, executed)| (name.as_str(), executed.values().sum())))
    }

    /// Bytes of the lines of code that were executed at least once.
    pub fn code_bytes(&self) -> u64 {
        let lines = |executed: &HashMap<u64, u64>| {
            executed.keys().map(|at| at / LINE_BYTES).collect::<BTreeSet<_>>().len() as u64
        };
        self.executed.values().map(lines).sum::<u64>() * LINE_BYTES
    }
}

/// The addresses of atomic instructions in programs and libraries, as objdump finds them.
#[derive(Default)]
pub(super) struct Files(HashMap<String, HashSet<u64>>);

impl Files {
    pub fn atomics(&mut self, file: &str) -> anyhow::Result<&HashSet<u64>> {
        if !self.0.contains_key(file) {
            let found = if Path::new(file).is_file() { disassembled(file)? } else { HashSet::new() };
            self.0.insert(file.to_owned(), found);
        }
        Ok(&self.0[file])
    }
}

fn disassembled(file: &str) -> anyhow::Result<HashSet<u64>> {
    let output = Command::new("objdump").args(["--disassemble", "--no-show-raw-insn", file]).output();
    let output = output.context("cannot run objdump (Debian package binutils)")?;
    ensure!(output.status.success(), "objdump {file}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(atomic_at).collect())
}

/// The address of a disassembled instruction, if it is an atomic read-modify-write.
fn atomic_at(line: &str) -> Option<u64> {
    let (at, instruction) = line.split_once(':')?;
    let instruction = instruction.trim_start();
    let is_exchange = instruction.starts_with("xchg") && instruction.contains('('); // With memory it locks by itself.
    let is_atomic = instruction.starts_with("lock ") || is_exchange;
    is_atomic.then(|| u64::from_str_radix(at.trim(), 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: &str = "\
version: 1
positions: instr
events: Ir

ob=/bin/program
fl=(1)
fn=outer
0x1000 7
0x1004 7
cob=/lib/libc.so
cfn=malloc
calls=3 0x20
0x1008 900
0x1008 7
fn=outer'2
0x1040 2

ob=/lib/libc.so
fn=malloc
0x20 30

totals: 53
";

    #[test]
    fn a_part_is_its_instructions_and_what_a_call_took_inside_is_counted_there() {
        let part = Part::parse(PART).unwrap();
        assert_eq!((part.instructions, part.allocations), (53, 3));
        assert_eq!(part.code_bytes(), 3 * 64);
        assert_eq!(part.executed["/bin/program"][&0x1008], 7);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        assert!(Part::parse("positions: line").is_err());
        assert!(Part::parse("positions: instr\n0x12").is_err());
        assert!(Part::parse("calls=x 0x20").is_err());
    }

    #[test]
    fn atomics_are_those_with_a_lock_and_exchanges_with_memory() {
        assert_eq!(atomic_at("   1f20:\tlock xadd %rax,0x8(%rdi)"), Some(0x1f20));
        assert_eq!(atomic_at("   1f28:\txchg   %al,(%rdx)"), Some(0x1f28));
        for other in ["   1f2c:\txchg   %ax,%ax", "   1f30:\tmov    (%rdi),%rax", "0000000000001f20 <lock>:"] {
            assert_eq!(atomic_at(other), None, "{other}");
        }
    }
}
