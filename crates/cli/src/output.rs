//! Data on standard output, in one piece of buffer; notes for people on standard error.

use std::cell::RefCell;
use std::io::{BufWriter, StdoutLock, Write};

/// Where a command writes, and how it was told to.
pub(crate) struct Output {
    pub(crate) is_json: bool,
    pub(crate) is_quiet: bool,
    out: RefCell<BufWriter<StdoutLock<'static>>>,
}

impl Output {
    pub(crate) fn new(is_json: bool, is_quiet: bool) -> Output {
        Output { is_json, is_quiet, out: RefCell::new(BufWriter::with_capacity(1 << 16, std::io::stdout().lock())) }
    }

    /// A line of data.
    pub(crate) fn line(&self, line: impl std::fmt::Display) -> std::io::Result<()> {
        writeln!(self.out.borrow_mut(), "{line}")
    }

    /// Data as it is.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> std::io::Result<()> {
        self.out.borrow_mut().write_all(bytes)
    }

    /// An object as one line of JSON.
    pub(crate) fn json(&self, value: &impl serde::Serialize) -> std::io::Result<()> {
        let mut out = self.out.borrow_mut();
        serde_json::to_writer(&mut *out, value)?;
        out.write_all(b"\n")
    }

    /// Says something that is no data.
    pub(crate) fn note(&self, note: impl std::fmt::Display) {
        if !self.is_quiet {
            eprintln!("{note}");
        }
    }

    /// Hands on what is gathered, so that it comes before what follows on standard error or from others.
    pub(crate) fn flush(&self) -> std::io::Result<()> {
        self.out.borrow_mut().flush()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        let _ = self.flush(); // Commands flush themselves where the result matters.
    }
}

/// Bytes for people: `1.5 MiB`.
pub(crate) fn bytes_readable(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} bytes") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::bytes_readable;

    #[test]
    fn sizes_are_shown_in_the_largest_unit_below_them() {
        assert_eq!(bytes_readable(1023), "1023 bytes");
        assert_eq!(bytes_readable(1536), "1.5 KiB");
        assert_eq!(bytes_readable(64 << 20), "64.0 MiB");
        assert_eq!(bytes_readable(u64::MAX), "16777216.0 TiB");
    }
}
