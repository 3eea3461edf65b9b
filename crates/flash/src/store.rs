//! A small transactional store for programs: pages of records under numbers, on any flash device, under any protocol of
//! [`Transactions`].
//!
//! ```text
//! offset  size  field
//!      0     2  magic 0x5352 ("RS")
//!      2     2  record_count
//!      4     4  zero
//!      8   8*n  entries, sorted by key: key u32, offset u16, length u16
//!      :        free space
//!      :        record bytes, growing down from the end of the page
//! ```
//! A page that was never written reads as 0xFF and holds no records. Numbers are little-endian.
//!
//! S1. Entries are sorted by key, without duplicates. The bytes of each entry lie between the entries and the end of
//!     the page.

use crate::error::{FlashError, Result};
use crate::transact::Transactions;
use crate::{Lba, Xid};

const MAGIC: u16 = 0x5352;
const HEADER_BYTES: usize = 8;
const ENTRY_BYTES: usize = 8;

/// Records in pages.
#[derive(Debug)]
pub struct Store<T> {
    pages: T,
}

impl<T: Transactions> Store<T> {
    /// A store on an opened device.
    pub fn new(pages: T) -> Self {
        Self { pages }
    }

    /// The transactions below.
    pub fn pages(&mut self) -> &mut T {
        &mut self.pages
    }

    /// Gives back what the store was made from.
    pub fn into_pages(self) -> T {
        self.pages
    }

    /// Starts a transaction.
    pub fn begin(&mut self) -> Xid {
        self.pages.begin()
    }

    /// Makes a transaction durable.
    ///
    /// # Errors
    /// Those of [`Transactions::commit`].
    pub fn commit(&mut self, txn: Xid) -> Result<()> {
        self.pages.commit(txn)
    }

    /// Takes a transaction back.
    ///
    /// # Errors
    /// Those of [`Transactions::abort`].
    pub fn abort(&mut self, txn: Xid) -> Result<()> {
        self.pages.abort(txn)
    }

    /// Reads a record. Returns `None` if there is none. Without a transaction: as last committed.
    ///
    /// # Errors
    /// [`FlashError::Corrupt`] if the page is not a page of records, and those of [`Transactions::read`].
    pub fn get(&mut self, txn: Option<Xid>, page: Lba, key: u32) -> Result<Option<Vec<u8>>> {
        let records = self.load(txn, page)?;
        Ok(records.into_iter().find(|(k, _)| *k == key).map(|(_, value)| value))
    }

    /// Writes a record, over an older one with the same key.
    ///
    /// # Errors
    /// [`FlashError::TooLong`] if the page has no room for it; as [`Store::get`], and those of [`Transactions::write`].
    pub fn put(&mut self, txn: Xid, page: Lba, key: u32, value: &[u8]) -> Result<()> {
        let mut records = self.load(Some(txn), page)?;
        match records.binary_search_by_key(&key, |(k, _)| *k) {
            Ok(at) => records[at].1 = value.to_vec(),
            Err(at) => records.insert(at, (key, value.to_vec())),
        }
        self.save(txn, page, &records)
    }

    /// Removes a record, and returns whether there was one.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn delete(&mut self, txn: Xid, page: Lba, key: u32) -> Result<bool> {
        let mut records = self.load(Some(txn), page)?;
        let Ok(at) = records.binary_search_by_key(&key, |(k, _)| *k) else { return Ok(false) };
        records.remove(at);
        self.save(txn, page, &records)?;
        Ok(true)
    }

    /// All records of a page, by key.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn records(&mut self, txn: Option<Xid>, page: Lba) -> Result<Vec<(u32, Vec<u8>)>> {
        self.load(txn, page)
    }

    fn load(&mut self, txn: Option<Xid>, page: Lba) -> Result<Vec<(u32, Vec<u8>)>> {
        let mut bytes = vec![0; self.pages.page_bytes()];
        self.pages.read(txn, page, &mut bytes)?;
        decode(&bytes).ok_or_else(|| FlashError::Corrupt(format!("logical page {page} is not a page of records")))
    }

    fn save(&mut self, txn: Xid, page: Lba, records: &[(u32, Vec<u8>)]) -> Result<()> {
        let bytes = encode(records, self.pages.page_bytes())?;
        self.pages.write(txn, page, &bytes)
    }
}

fn encode(records: &[(u32, Vec<u8>)], page_bytes: usize) -> Result<Vec<u8>> {
    let len = HEADER_BYTES + records.iter().map(|(_, value)| ENTRY_BYTES + value.len()).sum::<usize>();
    if len > page_bytes || page_bytes > usize::from(u16::MAX) {
        return Err(FlashError::TooLong { len, max: page_bytes.min(usize::from(u16::MAX)) });
    }
    let mut bytes = vec![0xff; page_bytes];
    bytes[..2].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[2..4].copy_from_slice(&(records.len() as u16).to_le_bytes());
    bytes[4..8].fill(0);
    let mut end = page_bytes;
    for (index, (key, value)) in records.iter().enumerate() {
        let start = end - value.len();
        bytes[start..end].copy_from_slice(value);
        let entry = &mut bytes[HEADER_BYTES + index * ENTRY_BYTES..][..ENTRY_BYTES];
        entry[..4].copy_from_slice(&key.to_le_bytes());
        entry[4..6].copy_from_slice(&(start as u16).to_le_bytes());
        entry[6..8].copy_from_slice(&(value.len() as u16).to_le_bytes());
        end = start;
    }
    Ok(bytes)
}

/// S1 is checked: the bytes may be anything.
fn decode(bytes: &[u8]) -> Option<Vec<(u32, Vec<u8>)>> {
    if bytes.iter().all(|&b| b == 0xff) {
        return Some(Vec::new());
    }
    let short = |at: usize| Some(u16::from_le_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    if short(0)? != MAGIC {
        return None;
    }
    let count = usize::from(short(2)?);
    let entries_end = HEADER_BYTES + count * ENTRY_BYTES;
    let mut records: Vec<(u32, Vec<u8>)> = Vec::new();
    for entry in bytes.get(HEADER_BYTES..entries_end)?.chunks_exact(ENTRY_BYTES) {
        let key = u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
        let start = usize::from(u16::from_le_bytes([entry[4], entry[5]]));
        let len = usize::from(u16::from_le_bytes([entry[6], entry[7]]));
        if start < entries_end || records.last().is_some_and(|(last, _)| *last >= key) {
            return None;
        }
        records.push((key, bytes.get(start..start + len)?.to_vec()));
    }
    Some(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nand::memory::{Content, CutShape, MemoryNand};
    use crate::nand::{Geometry, Timing};
    use crate::protocol::{AnyStore, Config, Protocol};
    use crate::rng::Rng;

    #[test]
    fn any_bytes_are_records_or_refused() {
        let mut rng = Rng::new(5);
        for _ in 0..20_000 {
            let mut bytes: Vec<u8> = (0..64).map(|_| rng.next_u64() as u8).collect();
            bytes[..2].copy_from_slice(&MAGIC.to_le_bytes());
            bytes[2..4].copy_from_slice(&(rng.below(6) as u16).to_le_bytes());
            if let Some(records) = decode(&bytes) {
                assert!(records.windows(2).all(|pair| pair[0].0 < pair[1].0));
            }
        }
    }

    #[test]
    fn committed_records_survive_a_power_cut_and_others_do_not() {
        for protocol in Protocol::ALL {
            let geometry = Geometry { pages_per_block: 8, page_bytes: 1024, spare_bytes: 64, ..Geometry::small(32) };
            let geometry = Config::new(protocol).suitable(geometry);
            let mut nand = MemoryNand::new(geometry, Timing::paper(), Content::Full).unwrap();
            let mut store = Store::new(AnyStore::open(&mut nand, Config::new(protocol)).unwrap());
            let txn = store.begin();
            store.put(txn, 3, 7, b"seven").unwrap();
            store.put(txn, 4, 1, b"one").unwrap();
            store.put(txn, 3, 5, b"five").unwrap();
            store.commit(txn).unwrap();
            let txn = store.begin();
            assert!(store.delete(txn, 3, 7).unwrap());
            store.put(txn, 4, 1, b"uno").unwrap();
            store.pages().core_mut().nand.cut_power_after(0, CutShape::Garbage);
            assert!(matches!(store.commit(txn), Err(FlashError::PowerCut)));
            drop(store);
            nand.restore_power();
            let mut store = Store::new(AnyStore::open(&mut nand, Config::new(protocol)).unwrap());
            assert_eq!(store.records(None, 3).unwrap(), [(5, b"five".to_vec()), (7, b"seven".to_vec())]);
            assert_eq!(store.get(None, 4, 1).unwrap().unwrap(), b"one");
            assert_eq!(store.get(None, 9, 1).unwrap(), None);
        }
    }

    #[test]
    fn a_record_that_does_not_fit_is_refused_and_nothing_changes() {
        let geometry = Geometry { page_bytes: 1024, pages_per_block: 8, ..Geometry::small(32) };
        let nand = MemoryNand::new(geometry, Timing::paper(), Content::Full).unwrap();
        let mut store = Store::new(AnyStore::open(nand, Config::new(Protocol::Cfc)).unwrap());
        let txn = store.begin();
        assert!(matches!(store.put(txn, 0, 1, &[0; 1024]), Err(FlashError::TooLong { .. })));
        store.put(txn, 0, 1, &[1; 1000]).unwrap();
        assert!(matches!(store.put(txn, u32::MAX - 1, 1, b""), Err(FlashError::UnknownPage { .. })));
        store.commit(txn).unwrap();
        assert_eq!(store.get(None, 0, 1).unwrap().unwrap(), [1; 1000]);
    }
}
