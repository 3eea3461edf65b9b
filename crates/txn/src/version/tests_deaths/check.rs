//! What must be when all is over.

use ledgerstone_page::Lsn;
use ledgerstone_region::Dead;

use super::Own;

impl Own {
    /// Everything is given back, and every snapshot has seen what was committed below it.
    pub(super) fn check(&self) {
        assert!(Dead::of(&self.slots).is_none(), "their slots are free");
        self.check_values();
        self.store.assert_nothing_left();
    }

    fn check_values(&self) {
        self.model(|model| {
            assert!(model.unended.is_empty(), "transactions of the dead");
            for (lsn, key, value) in &model.seen {
                assert_eq!(*value, model.at(*lsn, *key), "key {key} at {lsn:?}");
            }
            for (key, (_, value)) in &model.page {
                assert_eq!(*value, model.at(Lsn(u64::MAX), *key), "the page of key {key}");
            }
            assert!(model.seen.len() > 50, "{}: too few to prove anything", model.seen.len());
        });
    }
}
