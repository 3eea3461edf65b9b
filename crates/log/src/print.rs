//! Records as lines of text, for people and for diffs. One line a record, a line more for each part of a group.

use std::fmt;

use ledgerstone_page::{Hex, Lsn, OpId, PageId, Xid};

use crate::record::{Record, RecordKind, RecordView};

/// Says what an operation's arguments mean: the registry's `print`, if the operation is known.
pub type PrintArgs<'a> = &'a dyn Fn(OpId, &[u8]) -> Option<String>;

/// The lines of a record. Without a printer, or for operations that it does not know, arguments are shown as hex.
pub fn print(record: RecordView<'_>, args: PrintArgs<'_>) -> String {
    let mut line = format!("{:>12} {:<12}", record.lsn().0, format!("{:?}", record.kind()));
    if record.xid() != Xid(0) {
        line += &format!(" xid={}", record.xid().0);
    }
    if record.prev_lsn() != Lsn(0) {
        line += &format!(" prev={}", record.prev_lsn().0);
    }
    if record.page() != PageId::NONE {
        line += &format!(" page={} page_prev={}", record.page().0, record.prev_page_lsn().0);
    }
    if record.flags() != 0 {
        line += &format!(" flags={:#x}", record.flags());
    }
    match record.kind() {
        RecordKind::Compensation | RecordKind::NtaEnd => line += &format!(" undo_next={}", record.undo_next().0),
        RecordKind::Commit => {
            line += &format!(" durable={}", record.durable_lsn().0);
            if let Some(ns) = record.commit_time_ns() {
                line += &format!(" time={}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
            }
        }
        RecordKind::Truncate => line += &format!(" first_page={}", record.truncated_from().map_or(0, |page| page.0)),
        RecordKind::Incarnation => line += &format!(" incarnation={}", record.incarnation().unwrap_or(0)),
        _ => {}
    }
    match record.kind() {
        RecordKind::Update | RecordKind::Compensation => line += &print_args(record.op(), record.args(), args),
        RecordKind::Group => {
            for part in record.parts() {
                match part {
                    Ok(part) => {
                        line += &format!("\n{:>12} page={} page_prev={}", "+", part.page.0, part.prev_page_lsn.0);
                        line += &print_args(part.op, part.args, args);
                    }
                    Err(error) => line += &format!("\n{:>12} {error}", "+"),
                }
            }
        }
        RecordKind::Checkpoint | RecordKind::Prepare | RecordKind::User => line += &format!(" {}", hex(record.body())),
        _ => {}
    }
    line
}

fn print_args(op: OpId, bytes: &[u8], args: PrintArgs<'_>) -> String {
    match args(op, bytes) {
        Some(text) => format!(" op={} {text}", op.0),
        None => format!(" op={} {}", op.0, hex(bytes)),
    }
}

fn hex(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 64;
    let mut text = Hex(&bytes[..bytes.len().min(SHOWN_MAX)]).to_string();
    if bytes.len() > SHOWN_MAX {
        text += &format!("... ({} bytes)", bytes.len());
    }
    text
}

impl fmt::Display for RecordView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print(*self, &|_, _| None))
    }
}

impl fmt::Debug for RecordView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.view(), f)
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.view(), f)
    }
}
