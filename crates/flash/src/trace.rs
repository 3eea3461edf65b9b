//! Traces of page accesses: recorded by [`crate::tpcc`], read from text that other systems can write, replayed by
//! [`crate::replay`].
//!
//! The text, one operation a line, fields separated by blanks, transactions interleaved as they ran:
//!
//! ```text
//! # anything after a hash is a remark
//! B 17             transaction 17 begins; may be left out: its first operation begins it
//! R 17 4711 3      it reads record 3 of logical page 4711
//! W 17 4711 3      it changes it
//! C 17             it commits
//! A 17             or aborts
//! ```
//! Transaction numbers are any 64-bit numbers, and may be used again after a transaction's end. Pages have 32 bits,
//! records 16.

use std::collections::HashMap;
use std::io::{BufRead, Write};

use crate::Lba;
use crate::error::{FlashError, Result};
use crate::rng::Rng;

/// One access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The page.
    pub lba: Lba,
    /// The record in it.
    pub record: u16,
    /// Whether it is changed.
    pub is_write: bool,
}

/// Transactions in the order in which they began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    accesses: Vec<Access>,
    /// By transaction: where its accesses end, and whether it commits.
    ends: Vec<(u32, bool)>,
}

/// What reading a trace has found beside its transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Lines with an operation.
    pub operations: u64,
    /// Transactions without an end. They count as aborted.
    pub unended: u64,
    /// Highest page named.
    pub highest_page: Lba,
}

impl Trace {
    /// Transactions.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Adds a transaction.
    pub fn push(&mut self, accesses: &[Access], commits: bool) {
        self.accesses.extend_from_slice(accesses);
        self.ends.push((self.accesses.len() as u32, commits));
    }

    /// The accesses of a transaction, and whether it commits. Wraps around at the end of the trace.
    ///
    /// # Panics
    /// If the trace is empty.
    pub fn get(&self, index: usize) -> (&[Access], bool) {
        let index = index % self.ends.len();
        let start = if index == 0 { 0 } else { self.ends[index - 1].0 };
        let (end, commits) = self.ends[index];
        (&self.accesses[start as usize..end as usize], commits)
    }

    /// One more than the highest page.
    pub fn page_count(&self) -> u32 {
        self.accesses.iter().map(|a| a.lba + 1).max().unwrap_or(0)
    }

    /// The transactions that `keep` wants, which gets the number of pages that each changes.
    pub fn filter_by_size(&self, keep: impl Fn(usize) -> bool) -> Self {
        let mut out = Self::default();
        for index in 0..self.len() {
            let (accesses, commits) = self.get(index);
            let mut pages: Vec<Lba> = accesses.iter().filter(|a| a.is_write).map(|a| a.lba).collect();
            pages.sort_unstable();
            pages.dedup();
            if keep(pages.len()) {
                out.push(accesses, commits);
            }
        }
        out
    }

    /// The same with other page numbers: those that are ever changed come first, in the order of their old numbers. On
    /// a device that is filled in the order of numbers they then share blocks with each other only.
    pub fn changed_together(&self) -> Self {
        let mut is_changed = vec![false; self.page_count() as usize];
        for access in self.accesses.iter().filter(|access| access.is_write) {
            is_changed[access.lba as usize] = true;
        }
        let mut next = [0, is_changed.iter().filter(|changed| **changed).count() as Lba];
        let mut number = Vec::with_capacity(is_changed.len());
        for changed in is_changed {
            let own = &mut next[usize::from(!changed)];
            number.push(*own);
            *own += 1;
        }
        let mut out = self.clone();
        for access in &mut out.accesses {
            access.lba = number[access.lba as usize];
        }
        out
    }

    /// The same with each page drawn anew, evenly from those that are ever changed.
    pub fn drawn_evenly(&self, seed: u64) -> Self {
        let mut changed: Vec<Lba> =
            self.accesses.iter().filter(|access| access.is_write).map(|access| access.lba).collect();
        changed.sort_unstable();
        changed.dedup();
        let mut rng = Rng::new(seed);
        let mut out = self.clone();
        if !changed.is_empty() {
            for access in &mut out.accesses {
                access.lba = changed[rng.below(changed.len() as u64) as usize];
            }
        }
        out
    }

    /// Writes the text.
    ///
    /// # Errors
    /// [`FlashError::Io`].
    pub fn save(&self, out: &mut dyn Write) -> Result<()> {
        let io = |source| FlashError::Io { context: "writing a trace".to_string(), source };
        writeln!(out, "# ledgerstone flash trace: transaction, page, record").map_err(io)?;
        for index in 0..self.len() {
            let (accesses, commits) = self.get(index);
            writeln!(out, "B {index}").map_err(io)?;
            for access in accesses {
                let kind = if access.is_write { 'W' } else { 'R' };
                writeln!(out, "{kind} {index} {} {}", access.lba, access.record).map_err(io)?;
            }
            writeln!(out, "{} {index}", if commits { 'C' } else { 'A' }).map_err(io)?;
        }
        Ok(())
    }

    /// Reads the text.
    ///
    /// # Errors
    /// [`FlashError::Trace`] with the line and what is wrong with it; [`FlashError::Io`].
    pub fn load(input: &mut dyn BufRead) -> Result<(Self, Imported)> {
        let mut found = Imported::default();
        let mut done: Vec<(Vec<Access>, bool)> = Vec::new();
        let mut running: HashMap<u64, usize> = HashMap::new();
        let mut text = String::new();
        let mut line = 0;
        loop {
            text.clear();
            let io = |source| FlashError::Io { context: "reading a trace".to_string(), source };
            if input.read_line(&mut text).map_err(io)? == 0 {
                break;
            }
            line += 1;
            let Some(operation) = parse_line(&text).map_err(|reason| FlashError::Trace { line, reason })? else {
                continue;
            };
            found.operations += 1;
            let (txn, what) = operation;
            let at = *running.entry(txn).or_insert_with(|| {
                done.push((Vec::new(), false));
                done.len() - 1
            });
            match what {
                What::Begin if !done[at].0.is_empty() => {
                    let reason = format!("transaction {txn} begins again before its end");
                    return Err(FlashError::Trace { line, reason });
                }
                What::Begin => {}
                What::Access(access) => {
                    found.highest_page = found.highest_page.max(access.lba);
                    done[at].0.push(access);
                }
                What::End(commits) => {
                    done[at].1 = commits;
                    running.remove(&txn);
                }
            }
        }
        found.unended = running.len() as u64;
        let mut trace = Self::default();
        for (accesses, commits) in done {
            trace.push(&accesses, commits);
        }
        Ok((trace, found))
    }
}

enum What {
    Begin,
    Access(Access),
    End(bool),
}

fn parse_line(text: &str) -> Result<Option<(u64, What)>, String> {
    let text = text.split('#').next().unwrap_or_default();
    let fields: Vec<&str> = text.split_whitespace().collect();
    let Some(&kind) = fields.first() else { return Ok(None) };
    let number = |at: usize, what: &str, max: u64| -> Result<u64, String> {
        let field = fields.get(at).ok_or_else(|| format!("{kind} needs a {what}"))?;
        let value: u64 = field.parse().map_err(|_| format!("{field:?} is not a number ({what})"))?;
        if value > max { Err(format!("{what} {value} is above {max}")) } else { Ok(value) }
    };
    let txn = number(1, "transaction", u64::MAX)?;
    let (what, count) = match kind {
        "B" => (What::Begin, 2),
        "C" => (What::End(true), 2),
        "A" => (What::End(false), 2),
        "R" | "W" => {
            let lba = number(2, "page", u64::from(u32::MAX - 1))? as Lba;
            let record = number(3, "record", u64::from(u16::MAX))? as u16;
            (What::Access(Access { lba, record, is_write: kind == "W" }), 4)
        }
        _ => return Err(format!("{kind:?} is none of B, R, W, C, A")),
    };
    if fields.len() > count {
        return Err(format!("{:?} after the end of the operation", fields[count]));
    }
    Ok(Some((txn, what)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_pages_come_first_and_keep_their_order() {
        let access = |lba, is_write| Access { lba, record: 0, is_write };
        let mut trace = Trace::default();
        trace.push(&[access(0, false), access(3, true), access(1, true), access(3, false)], true);
        let mut expected = Trace::default();
        expected.push(&[access(2, false), access(1, true), access(0, true), access(1, false)], true);
        assert_eq!(trace.changed_together(), expected);
    }

    #[test]
    fn pages_drawn_evenly_are_those_that_are_changed() {
        let mut trace = Trace::default();
        let accesses: Vec<Access> =
            (0..900).map(|lba| Access { lba: lba % 9, record: 0, is_write: lba % 3 == 0 }).collect();
        trace.push(&accesses, true);
        let drawn = trace.drawn_evenly(1);
        let count = |lba| drawn.get(0).0.iter().filter(|access| access.lba == lba).count();
        assert_eq!(drawn.len(), 1);
        assert!([0, 3, 6].iter().all(|&lba| count(lba) > 200) && count(0) + count(3) + count(6) == 900);
    }

    #[test]
    fn what_was_saved_is_loaded() {
        let mut trace = Trace::default();
        trace
            .push(&[Access { lba: 7, record: 1, is_write: true }, Access { lba: 9, record: 0, is_write: false }], true);
        trace.push(&[], false);
        let mut text = Vec::new();
        trace.save(&mut text).unwrap();
        let (loaded, found) = Trace::load(&mut &text[..]).unwrap();
        assert_eq!((loaded, found), (trace, Imported { operations: 6, unended: 0, highest_page: 9 }));
    }

    #[test]
    fn interleaved_and_unended_transactions_are_told_apart() {
        let (trace, found) = Trace::load(&mut &b"R 5 1 1\nW 6 2 2 # remark\n\nC 6\nW 5 3 3\nR 6 4 4\n"[..]).unwrap();
        assert_eq!((trace.len(), found.unended, trace.page_count()), (3, 2, 5));
        assert_eq!((trace.get(0).0.len(), trace.get(0).1, trace.get(1).1), (2, false, true));
        assert_eq!(trace.filter_by_size(|pages| pages > 0).len(), 2);
    }

    #[test]
    fn a_bad_line_is_refused_with_its_number() {
        for (text, reason) in [
            ("B 1\nX 1", "none of"),
            ("B 1\nR 1 x 2", "not a number (page)"),
            ("B 1\nR 1 2", "needs a record"),
            ("B 1\nR 1 4294967295 2", "above"),
            ("B 1\nC 1 2", "after the end"),
            ("R 1 1 1\nB 1", "begins again"),
        ] {
            let error = Trace::load(&mut text.as_bytes()).unwrap_err();
            assert!(matches!(&error, FlashError::Trace { line: 2, reason: r } if r.contains(reason)), "{error}");
        }
    }
}
