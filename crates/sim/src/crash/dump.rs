//! A dump taken beside the clients, read as anybody would who has only the description of the format
//! (docs/format/dump.md).

use ledgerstone::{Environment, Error};
use ledgerstone_dump::{Dump, DumpFormat, DumpOptions};

use super::model::{Bytes, Deed, Seen};

/// What the dump says, as deeds of a transaction that reads everything, and the LSN of its snapshot.
///
/// # Errors
/// Those of the engine, and a text that is not a dump.
pub fn dump(env: &Environment, prints: bool) -> Result<(u64, Vec<(Deed, Seen)>), Error> {
    let mut text = Vec::new();
    let format = if prints { DumpFormat::Print } else { DumpFormat::ByteValue };
    let options = DumpOptions::default().format(format);
    let done = env.dump(&mut text, &options)?;
    let what = || Error::Corrupt { what: format!("a dump: {}", String::from_utf8_lossy(&text)) };
    let deeds = read(&text, prints).ok_or_else(what)?;
    Ok((done.snapshot_lsn.ok_or_else(what)?, deeds))
}

fn read(text: &[u8], prints: bool) -> Option<Vec<(Deed, Seen)>> {
    let mut lines = text.strip_suffix(b"\n").unwrap_or_default().split(|byte| *byte == b'\n');
    let (mut names, mut scans) = (Vec::new(), Vec::new());
    while lines.next().is_some_and(|line| line == b"VERSION=3") {
        let mut name = None;
        for line in lines.by_ref().take_while(|line| *line != b"HEADER=END") {
            name = line.strip_prefix(b"database=").or(name);
        }
        let table = String::from_utf8(name?.to_vec()).ok()?;
        let mut rows = Vec::new();
        while let Some(key) = lines.next()?.strip_prefix(b" ") {
            rows.push((bytes(key, prints)?, bytes(lines.next()?.strip_prefix(b" ")?, prints)?));
        }
        if table == "ledgerstone.indexes" || table == "ledgerstone.types" {
            continue; // What the catalog says: no table's records.
        }
        names.push(table.clone());
        let (from, to) = (Bytes::from(&b""[..]), Bytes::from(&[0xff; 300][..]));
        scans.push((Deed::Scan { table, from, to, backward: false, limit: usize::MAX }, Seen::Rows(rows)));
    }
    let mut deeds = vec![(Deed::List, Seen::Names(names))];
    deeds.append(&mut scans);
    Some(deeds)
}

fn bytes(line: &[u8], prints: bool) -> Option<Bytes> {
    let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    if !prints {
        return line.chunks(2).map(digits).collect();
    }
    let (mut out, mut rest) = (Vec::new(), line);
    while let Some((first, behind)) = rest.split_first() {
        let (byte, len) = match (first, behind.first()) {
            (b'\\', Some(b'\\')) => (b'\\', 1),
            (b'\\', _) => (digits(behind.get(..2)?)?, 2),
            _ => (*first, 0),
        };
        out.push(byte);
        rest = &behind[len..];
    }
    Some(Bytes::from(out))
}
