//! MTD calls written down as text, and played back: what a real driver answered becomes a test that runs everywhere.
//!
//! One call a line, its answer after an arrow; bytes are hexadecimal, and a byte that comes four times or more is
//! `(ff*64)`:
//!
//! ```text
//! info -> slc 2097152 131072 2048 64
//! bad 131072 -> good
//! read 0 2048 -> (ff*2048)
//! spare 0 64 -> ffd1(00*8)...
//! write 0 (61*2048) ffd1...
//! write-spare 0 ffff00(ff*61)
//! erase 0 131072
//! mark 0
//! read 0 2048 -> error 5
//! ```

use std::fmt::Write;
use std::io;

use super::{Calls, Info};

/// Makes the calls of another and writes them down.
#[derive(Debug)]
pub struct Recorder<C> {
    calls: C,
    text: String,
}

impl<C> Recorder<C> {
    /// In front of `calls`.
    pub fn new(calls: C) -> Self {
        Self { calls, text: String::new() }
    }

    /// What was written down.
    pub fn into_text(self) -> String {
        self.text
    }

    fn note<T>(&mut self, call: String, answer: io::Result<T>, show: impl Fn(&T) -> String) -> io::Result<T> {
        self.text.push_str(&call);
        match &answer {
            Ok(value) => self.text.push_str(&show(value)),
            Err(error) => {
                let _ = write!(self.text, " -> error {}", error.raw_os_error().unwrap_or(0));
            }
        }
        self.text.push('\n');
        answer
    }
}

fn nothing<T>(_: &T) -> String {
    String::new()
}

impl<C: Calls> Calls for Recorder<C> {
    fn info(&mut self) -> io::Result<Info> {
        let answer = self.calls.info();
        self.note("info".to_string(), answer, |info| {
            let Info { is_slc, size, erase_bytes, page_bytes, spare_bytes } = info;
            let kind = if *is_slc { "slc" } else { "other" };
            format!(" -> {kind} {size} {erase_bytes} {page_bytes} {spare_bytes}")
        })
    }

    fn read(&mut self, at: u64, data: &mut [u8]) -> io::Result<()> {
        let answer = self.calls.read(at, data);
        let call = format!("read {at} {}", data.len());
        self.note(call, answer, |()| format!(" -> {}", to_text(data)))
    }

    fn read_spare(&mut self, at: u64, spare: &mut [u8]) -> io::Result<()> {
        let answer = self.calls.read_spare(at, spare);
        let call = format!("spare {at} {}", spare.len());
        self.note(call, answer, |()| format!(" -> {}", to_text(spare)))
    }

    fn write(&mut self, at: u64, data: &[u8], spare: &[u8]) -> io::Result<()> {
        let answer = self.calls.write(at, data, spare);
        self.note(format!("write {at} {} {}", to_text(data), to_text(spare)), answer, nothing)
    }

    fn write_spare(&mut self, at: u64, spare: &[u8]) -> io::Result<()> {
        let answer = self.calls.write_spare(at, spare);
        self.note(format!("write-spare {at} {}", to_text(spare)), answer, nothing)
    }

    fn erase(&mut self, at: u64, len: u64) -> io::Result<()> {
        let answer = self.calls.erase(at, len);
        self.note(format!("erase {at} {len}"), answer, nothing)
    }

    fn is_bad(&mut self, at: u64) -> io::Result<bool> {
        let answer = self.calls.is_bad(at);
        self.note(format!("bad {at}"), answer, |bad| format!(" -> {}", if *bad { "bad" } else { "good" }))
    }

    fn mark_bad(&mut self, at: u64) -> io::Result<()> {
        let answer = self.calls.mark_bad(at);
        self.note(format!("mark {at}"), answer, nothing)
    }
}

/// Answers as was written down, and fails if it is asked for anything else.
#[derive(Debug)]
pub struct Playback {
    lines: std::vec::IntoIter<String>,
    /// Counted from 1.
    line: usize,
}

impl Playback {
    /// Of a [`Recorder`]'s text. Empty lines and those that begin with a hash are left out.
    pub fn new(text: &str) -> Self {
        let lines: Vec<String> =
            text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_string).collect();
        Self { lines: lines.into_iter(), line: 0 }
    }

    /// Calls that were recorded and not made.
    pub fn left(&self) -> usize {
        self.lines.len()
    }

    /// The recorded answer to a call. Empty if there is none.
    fn answer(&mut self, call: &str) -> io::Result<String> {
        self.line += 1;
        let other = |found: &str| {
            let found: String = found.chars().take(200).collect();
            io::Error::other(format!("call {}: {call:.200} was made, {found} was recorded", self.line))
        };
        let line = self.lines.next().ok_or_else(|| other("no more"))?;
        let (own, answer) = line.split_once(" -> ").unwrap_or((&line, ""));
        if own != call {
            return Err(other(own));
        }
        match answer.strip_prefix("error ").map(str::parse) {
            Some(Ok(code)) => Err(io::Error::from_raw_os_error(code)),
            Some(Err(_)) => Err(other(answer)),
            None => Ok(answer.to_string()),
        }
    }

    fn bytes(&mut self, call: &str, out: &mut [u8]) -> io::Result<()> {
        let answer = self.answer(call)?;
        match from_text(&answer) {
            Some(bytes) if bytes.len() == out.len() => out.copy_from_slice(&bytes),
            _ => return Err(io::Error::other(format!("call {}: {} bytes were asked for", self.line, out.len()))),
        }
        Ok(())
    }
}

impl Calls for Playback {
    fn info(&mut self) -> io::Result<Info> {
        let answer = self.answer("info")?;
        let bad = || io::Error::other(format!("no device is described by {answer}"));
        let (kind, numbers) = answer.split_once(' ').ok_or_else(bad)?;
        let numbers: Vec<u64> = numbers.split(' ').filter_map(|n| n.parse().ok()).collect();
        let &[size, erase_bytes, page_bytes, spare_bytes] = numbers.as_slice() else { return Err(bad()) };
        let short = |n: u64| u32::try_from(n).map_err(|_| bad());
        let (erase_bytes, page_bytes, spare_bytes) = (short(erase_bytes)?, short(page_bytes)?, short(spare_bytes)?);
        Ok(Info { is_slc: kind == "slc", size, erase_bytes, page_bytes, spare_bytes })
    }

    fn read(&mut self, at: u64, data: &mut [u8]) -> io::Result<()> {
        self.bytes(&format!("read {at} {}", data.len()), data)
    }

    fn read_spare(&mut self, at: u64, spare: &mut [u8]) -> io::Result<()> {
        self.bytes(&format!("spare {at} {}", spare.len()), spare)
    }

    fn write(&mut self, at: u64, data: &[u8], spare: &[u8]) -> io::Result<()> {
        self.answer(&format!("write {at} {} {}", to_text(data), to_text(spare))).map(drop)
    }

    fn write_spare(&mut self, at: u64, spare: &[u8]) -> io::Result<()> {
        self.answer(&format!("write-spare {at} {}", to_text(spare))).map(drop)
    }

    fn erase(&mut self, at: u64, len: u64) -> io::Result<()> {
        self.answer(&format!("erase {at} {len}")).map(drop)
    }

    fn is_bad(&mut self, at: u64) -> io::Result<bool> {
        Ok(self.answer(&format!("bad {at}"))? == "bad")
    }

    fn mark_bad(&mut self, at: u64) -> io::Result<()> {
        self.answer(&format!("mark {at}")).map(drop)
    }
}

fn to_text(bytes: &[u8]) -> String {
    let mut text = String::new();
    for run in bytes.chunk_by(|a, b| a == b) {
        if run.len() < 4 {
            for byte in run {
                let _ = write!(text, "{byte:02x}");
            }
        } else {
            let _ = write!(text, "({:02x}*{})", run[0], run.len());
        }
    }
    text
}

fn from_text(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(run) = rest.strip_prefix('(') {
            let (run, after) = run.split_once(')')?;
            let (byte, count) = run.split_once('*')?;
            let count: usize = count.parse().ok().filter(|count| *count <= 1 << 20)?;
            bytes.resize(bytes.len() + count, u8::from_str_radix(byte, 16).ok()?);
            rest = after;
        } else {
            bytes.push(u8::from_str_radix(rest.get(..2)?, 16).ok()?);
            rest = &rest[2..];
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::FlashError;
    use crate::nand::Nand;
    use crate::nand::mtd::MtdNand;

    #[test]
    fn bytes_go_to_text_and_back() {
        for bytes in [vec![], vec![1, 2, 2, 2, 3], vec![0xff; 2048], vec![0, 0, 0, 0, 7]] {
            assert_eq!(from_text(&to_text(&bytes)), Some(bytes));
        }
        for bad in ["1", "(ff*", "(ff4)", "(xx*4)", "zz", "(ff*99999999)"] {
            assert_eq!(from_text(bad), None, "{bad}");
        }
    }

    /// What Linux 6.1 answered on its NAND simulator; `scripts/flash-nandsim.sh crates/flash/tests/nandsim.calls`
    /// records it again.
    #[test]
    fn a_store_makes_the_calls_that_worked_on_the_kernels_simulator() {
        use crate::nand::exercise;
        use crate::protocol::Protocol;
        let recorded = include_str!("../../../tests/nandsim.calls");
        let mut nand = MtdNand::new(Playback::new(recorded), 4).unwrap();
        exercise::pages(&mut nand).unwrap();
        exercise::store(&mut nand, Protocol::Cfc).unwrap();
        assert_eq!(nand.into_calls().left(), 0);
    }

    const INFO: &str = "info -> slc 2097152 131072 2048 64\n";

    #[test]
    fn what_a_chip_refuses_has_a_name() {
        let text = format!(
            "{INFO}write 2048 (61*2048) (ff*64) -> error 5\nerase 131072 131072 -> error 5\nbad 131072 -> bad\nmark 0\nread 0 8 -> error 110\n"
        );
        let mut nand = MtdNand::new(Playback::new(&text), 4).unwrap();
        assert!(matches!(nand.program(1, &[0x61; 2048], &[0xff; 64]), Err(FlashError::ProgramFailed(1))));
        assert!(matches!(nand.erase(1), Err(FlashError::EraseFailed(1))));
        assert!(nand.is_bad(1).unwrap());
        nand.mark_bad(0).unwrap();
        let error = nand.read(0, &mut [0; 8], &mut []).unwrap_err();
        assert!(error.to_string().starts_with("reading an MTD page"), "{error}");
        assert!(matches!(nand.erase(16), Err(FlashError::OutOfRange { .. })));
        assert_eq!(nand.into_calls().left(), 0);
    }

    #[test]
    fn programs_are_counted_and_unknown_pages_have_one_left() {
        let flag = "write-spare 0 ffff00(ff*61)\n";
        let text = format!("{INFO}{flag}erase 0 131072\nwrite 0 (61*2048) (ff*64)\n{flag}{flag}{flag}");
        let mut nand = MtdNand::new(Playback::new(&text), 4).unwrap();
        nand.program_spare(0, 2, &[0]).unwrap();
        let is_limit = |answer| matches!(answer, Err(FlashError::ProgramLimit { pba: 0, limit: 4 }));
        assert!(is_limit(nand.program_spare(0, 2, &[0])));
        nand.erase(0).unwrap();
        // The maker's byte is never programmed.
        nand.program(0, &[0x61; 2048], &[0; 1]).unwrap();
        assert!(matches!(nand.program(0, &[0x61; 2048], &[]), Err(FlashError::ProgramLimit { pba: 0, limit: 1 })));
        for _ in 0..3 {
            nand.program_spare(0, 2, &[0]).unwrap();
        }
        assert!(is_limit(nand.program_spare(0, 2, &[0])));
    }

    #[test]
    fn devices_of_no_use_are_refused() {
        for (info, programs) in [
            ("slc 100 131072 2048 64", 4),
            ("slc 2097152 131072 2048 16", 4),
            ("other 2097152 131072 2048 64", 2),
            ("slc", 1),
        ] {
            let answer = MtdNand::new(Playback::new(&format!("info -> {info}")), programs);
            assert!(matches!(answer, Err(FlashError::Geometry(_) | FlashError::Io { .. })), "{info}: {answer:?}");
        }
        assert!(MtdNand::new(Playback::new("info -> other 2097152 131072 2048 64"), 1).is_ok());
    }
}
