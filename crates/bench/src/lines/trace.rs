//! Reads a trace of memory accesses, and finds which lines of memory processors take from each other.
//!
//! It is the protocol of all caches that keep themselves the same. A line that is written is in one cache only. A line
//! that is read may be in many. A cache has room for everything here, so a line moves for one reason: another processor
//! has written it, or wants to.
//!
//! T1. A processor that never had a line does not take it from another: it would come from memory.
//! T2. A load and a store of one instruction are one access, which wants the line for itself.

use std::collections::HashMap;
use std::io::BufRead;

use anyhow::{Context, bail};

use super::work::Mark;

/// Lines are of 64 bytes.
const LINE_SHIFT: u32 = 6;

/// Who has a line, and who has ever had it; a bit for each processor.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    holders: u128,
    seen_by: u128,
}

/// What happened to one line in the turns of an operation that count.
#[derive(Clone, Debug, Default)]
pub(super) struct Moves {
    /// Processors that wrote it, a bit for each.
    pub writers: u128,
    /// By the address of the instruction: how often it wrote the line, and how often it made the line move.
    pub by_code: HashMap<u64, (u64, u64)>,
}

impl Moves {
    /// Whether several processors write it, or one takes it from another.
    pub fn is_shared(&self) -> bool {
        self.writers.count_ones() > 1 || self.transfers() > 0
    }

    pub fn transfers(&self) -> u64 {
        self.by_code.values().map(|(_, transfers)| transfers).sum()
    }
}

/// What an operation did.
#[derive(Clone, Debug, Default)]
pub(super) struct Traced {
    /// How often it was run.
    pub count: u64,
    /// Lines that it wrote or took from another processor.
    pub lines: HashMap<u64, Moves>,
}

/// The state of all caches, while a trace is read.
#[derive(Debug)]
pub(super) struct Caches {
    marks: u64,
    /// Where the program's file begins in memory.
    base: u64,
    lines: HashMap<u64, Line>,
    turn: Option<u8>,
    operation: Option<(usize, bool)>,
    code: u64,
    /// A load that the next access may be a part of (T2).
    load: Option<(u64, u64)>,
    traced: Vec<Traced>,
}

impl Caches {
    pub fn new(marks: u64, base: u64, operation_count: usize) -> Caches {
        Caches {
            marks,
            base,
            lines: HashMap::new(),
            turn: None,
            operation: None,
            code: 0,
            load: None,
            traced: vec![Traced::default(); operation_count],
        }
    }

    /// Takes a whole trace of valgrind's `lackey`.
    pub fn read(&mut self, mut trace: impl BufRead) -> anyhow::Result<()> {
        let mut line = Vec::new();
        while trace.read_until(b'\n', &mut line).context("cannot read the trace")? > 0 {
            self.take(line.trim_ascii_end())?;
            line.clear();
        }
        self.finish_load();
        Ok(())
    }

    /// `I  0023c790,2`, ` L 1ffeffe7e0,8`, ` S ..` and ` M ..`; other lines are valgrind's own.
    fn take(&mut self, line: &[u8]) -> anyhow::Result<()> {
        let [first, second, b' ', rest @ ..] = line else { return Ok(()) };
        let kind = match (first, second) {
            (b'I', b' ') => b'I',
            (b' ', kind @ (b'L' | b'S' | b'M')) => *kind,
            _ => return Ok(()),
        };
        if kind == b'I' {
            self.finish_load();
            if self.turn.is_some() {
                self.code = address(rest)?.0.wrapping_sub(self.base);
            }
            return Ok(());
        }
        let (at, size) = address(rest)?;
        if kind != b'L'
            && let Some(mark) = Mark::at(at, self.marks)
        {
            self.load = None;
            self.heed(mark);
            return Ok(());
        }
        if self.turn.is_none() {
            return Ok(());
        }
        if kind == b'L' {
            self.finish_load();
            self.load = Some((at, size));
        } else {
            if let Some((at, size)) = self.load.take().filter(|load| *load != (at, size)) {
                self.access(at, size, false);
            }
            self.access(at, size, true);
        }
        Ok(())
    }

    fn heed(&mut self, mark: Mark) {
        match mark {
            Mark::Turn(thread_no) => {
                self.turn = Some(thread_no);
                if let Some(traced) = self.counted() {
                    traced.count += 1;
                }
            }
            Mark::Nobody => self.turn = None,
            Mark::Work(no, counts) => self.operation = Some((no, counts)),
        }
    }

    fn counted(&mut self) -> Option<&mut Traced> {
        let (no, _) = self.operation.filter(|(_, counts)| *counts)?;
        self.traced.get_mut(no)
    }

    fn finish_load(&mut self) {
        if let Some((at, size)) = self.load.take() {
            self.access(at, size, false);
        }
    }

    fn access(&mut self, at: u64, size: u64, writes: bool) {
        let Some(turn) = self.turn else { return };
        let (me, code) = (1_u128 << turn, self.code);
        for no in at >> LINE_SHIFT..=(at + size.max(1) - 1) >> LINE_SHIFT {
            let line = self.lines.entry(no).or_default();
            let has_it = if writes { line.holders == me } else { line.holders & me != 0 };
            let moves = !has_it && line.holders & !me != 0 && line.seen_by & me != 0;
            line.holders = if writes { me } else { line.holders | me };
            line.seen_by |= me;
            if !(writes || moves) {
                continue;
            }
            if let Some(traced) = self.counted() {
                let line = traced.lines.entry(no).or_default();
                let by = line.by_code.entry(code).or_default();
                if writes {
                    line.writers |= me;
                    by.0 += 1;
                }
                by.1 += u64::from(moves);
            }
        }
    }

    pub fn into_traced(self) -> Vec<Traced> {
        self.traced
    }
}

/// `1ffeffe7e0,8`.
fn address(text: &[u8]) -> anyhow::Result<(u64, u64)> {
    let text = str::from_utf8(text).ok().map(str::trim);
    let numbers = text.and_then(|text| text.split_once(','));
    let parsed = numbers.and_then(|(at, size)| Some((u64::from_str_radix(at, 16).ok()?, size.parse().ok()?)));
    let Some(parsed) = parsed else { bail!("{text:?} in the trace is no address with a size") };
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKS: u64 = 0x10_0000;

    /// Turns of threads, each with lines of a trace.
    fn traced(turns: &[(u64, &str)]) -> Traced {
        let mut trace = format!(" S {:x},1\n", MARKS + 2048 + 1);
        for (thread, accesses) in turns {
            trace += &format!(" S {:x},1\n{accesses} S {:x},1\n", MARKS + thread, MARKS + 1024);
        }
        let mut caches = Caches::new(MARKS, 0, 1);
        caches.read(trace.as_bytes()).unwrap();
        caches.into_traced().remove(0)
    }

    fn transfers(turns: &[(u64, &str)]) -> u64 {
        traced(turns).lines.values().map(Moves::transfers).sum()
    }

    #[test]
    fn a_line_moves_when_another_has_written_it() {
        let (read, write) = ("I  10,2\n L 2000,8\n", "I  20,2\n S 2008,8\n");
        assert_eq!(transfers(&[(0, write), (1, write)]), 0, "1 never had it (T1)");
        assert_eq!(transfers(&[(0, write), (1, write), (0, write), (0, write), (0, read)]), 1);
        assert_eq!(transfers(&[(0, read), (1, read), (0, read), (1, read)]), 0, "only read");
        assert_eq!(transfers(&[(0, read), (1, read), (0, write), (1, read), (0, read)]), 2, "taken, and fetched again");
    }

    #[test]
    fn one_instruction_that_loads_and_stores_moves_a_line_once() {
        let add = "I  10,4\n L 2000,8\n S 2000,8\n";
        assert_eq!(transfers(&[(0, add), (1, add), (0, add)]), 1);
        let apart = "I  10,4\n L 2000,8\nI  14,4\n S 2000,8\n";
        assert_eq!(transfers(&[(0, apart), (1, apart), (0, apart)]), 2);
        assert_eq!(transfers(&[(0, "I  10,4\n M 2000,8\n"), (1, add), (0, add)]), 1);
    }

    #[test]
    fn writes_are_counted_by_instruction_and_lines_that_an_access_crosses_are_two() {
        let traced = traced(&[(0, "I  10,4\n S 203c,8\n"), (1, "I  10,4\n S 2040,8\nI  20,4\n S 2040,8\n")]);
        assert_eq!(traced.count, 2);
        let line = |no: u64| &traced.lines[&no];
        assert_eq!((line(0x80).writers, line(0x81).writers), (1, 3));
        assert_eq!(line(0x81).by_code, HashMap::from([(0x10, (2, 0)), (0x20, (1, 0))]));
    }

    #[test]
    fn what_is_no_trace_is_refused() {
        let mut caches = Caches::new(MARKS, 0, 1);
        caches.take(b"==12== a word of valgrind").unwrap();
        assert!(caches.take(b" S nonsense").is_err());
    }
}
