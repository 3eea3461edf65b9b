//! The prepared transactions of an environment that are not decided (D1 to D3 in `transaction/prepared.rs`).

use ledgerstone_disk::{is_obeyed, quoted};
use ledgerstone_lock::Mode;
use ledgerstone_page::{Hex, Lsn, TableId, Xid};
use ledgerstone_recovery::InDoubt as Found;
use ledgerstone_region::{ByName, Mutex};
use ledgerstone_txn::{Txn, key_hash};

use crate::Error;

/// A transaction in doubt, for the program that decides.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InDoubt {
    /// The name under which it was prepared.
    pub global_id: Vec<u8>,
    /// Its id in this environment.
    pub xid: Xid,
    /// Its Prepare record.
    pub prepared_lsn: Lsn,
    /// Its first record. The log from here on is kept until it is decided.
    pub first_lsn: Lsn,
    /// Locks that it holds.
    pub lock_count: u64,
}

/// The prepared transactions of an environment (D1). None: being prepared or decided just now.
#[derive(Default)]
pub(crate) struct Undecided {
    by_id: Mutex<ByName<[u8], Option<Box<Waiting>>>>,
}

pub(crate) struct Waiting {
    pub txn: Txn,
    pub lsn: Lsn,
    pub first: Lsn,
    pub lock_count: u64,
}

impl Undecided {
    /// What a restart has found.
    pub(crate) fn after_restart(found: Vec<(Found, Txn)>) -> Result<Undecided, Error> {
        let mut by_id = ByName::<[u8], _>::new();
        for (found, txn) in found {
            let lock_count = found.record.locks.len() as u64;
            let waiting = Waiting { txn, lsn: found.last, first: found.first, lock_count };
            let id = found.record.global_id;
            // For those who share the environment. Whoever else has it is refused below.
            let _ = waiting.txn.engine().table.claim_global_id(waiting.txn.owner().0, number_of(&id));
            if by_id.insert(&id, Some(Box::new(waiting))).is_some() {
                let what = format!("the log has two prepared transactions named {}", printable(&id));
                return Err(Error::Corrupt { what });
            }
        }
        Ok(Undecided { by_id: Mutex::new(by_id) })
    }

    /// Forgets them all, when the environment closes: the log remembers. (Their hooks may hold the environment.)
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *self.by_id.lock());
        drop(all);
    }

    pub(crate) fn reserve(&self, global_id: &[u8]) -> Result<(), Error> {
        let mut by_id = self.by_id.lock();
        if by_id.contains(global_id) {
            return Err(Error::AlreadyPrepared { id: printable(global_id) });
        }
        by_id.insert(global_id, None);
        Ok(())
    }

    pub(crate) fn give_up(&self, global_id: &[u8]) {
        self.by_id.lock().remove(global_id);
    }

    pub(crate) fn put(&self, global_id: &[u8], waiting: Box<Waiting>) {
        self.by_id.lock().insert(global_id, Some(waiting));
    }

    /// Takes a transaction out of its place, to decide it (D2).
    pub(crate) fn take(&self, global_id: &[u8], xid: Option<Xid>) -> Result<Box<Waiting>, Error> {
        let mut by_id = self.by_id.lock();
        let place = by_id.get_mut(global_id);
        let is_meant = |waiting: &Waiting| xid.is_none_or(|xid| xid == waiting.txn.xid()); // D3
        match place {
            Some(place) if place.as_deref().is_some_and(is_meant) => {
                place.take().ok_or_else(|| Error::NotPrepared { id: printable(global_id) })
            }
            _ => Err(Error::NotPrepared { id: printable(global_id) }),
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.by_id.lock().len() as u64
    }

    /// One of the transactions that keep others from locking the whole table for reading.
    pub(crate) fn holder_of(&self, table: TableId) -> Option<String> {
        let by_id = self.by_id.lock();
        let holds = |waiting: &Waiting| {
            let mut holds = false;
            waiting.txn.engine().locks.for_each_held(waiting.txn.owner(), &mut |name, mode| {
                holds |= name.is_table() && name.table_id() == table && !matches!(mode, Mode::IS | Mode::S);
            });
            holds
        };
        let mut all = by_id.iter();
        all.find(|(_, place)| place.as_deref().is_some_and(holds)).map(|(id, _)| printable(id))
    }

    pub(crate) fn list(&self) -> Vec<InDoubt> {
        let by_id = self.by_id.lock();
        let tell = |(global_id, place): (&[u8], &Option<Box<Waiting>>)| {
            place.as_ref().map(|waiting| InDoubt {
                global_id: global_id.to_vec(),
                xid: waiting.txn.xid(),
                prepared_lsn: waiting.lsn,
                first_lsn: waiting.first,
                lock_count: waiting.lock_count,
            })
        };
        by_id.iter().filter_map(tell).collect()
    }
}

/// A number that stands for a global id, for those who cannot keep ids.
pub(crate) fn number_of(global_id: &[u8]) -> u64 {
    key_hash(global_id) | 1 << 63 // Never 0.
}

/// Bytes for a message: as text if they are some, else hexadecimal.
pub(crate) fn printable(id: &[u8]) -> String {
    match std::str::from_utf8(id) {
        Ok(text) if !text.chars().any(is_obeyed) => quoted(text).to_string(),
        _ => format!("0x{}", Hex(id)),
    }
}
