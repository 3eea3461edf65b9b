//! Disk that experiments may use, counted: a file takes its bytes before it is made and gives them back when it is
//! gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::ProbeError;

/// What is left. Shared by the files of a run.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    left: Arc<AtomicU64>,
}

/// Bytes taken; they go back when this is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    budget: Budget,
    bytes: u64,
}

impl Budget {
    pub(crate) fn new(bytes: u64) -> Budget {
        Budget { left: Arc::new(AtomicU64::new(bytes)) }
    }

    pub(crate) fn left_bytes(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    pub(crate) fn take(&self, bytes: u64) -> Result<Taken, ProbeError> {
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes))
            .map_err(|left_bytes| ProbeError::Budget { need_bytes: bytes, left_bytes })?;
        Ok(Taken { budget: self.clone(), bytes })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.budget.left.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_no_more_are_given_than_there_are() {
        let budget = Budget::new(100);
        let first = budget.take(60).expect("room");
        assert!(matches!(budget.take(60), Err(ProbeError::Budget { need_bytes: 60, left_bytes: 40 })));
        drop(first);
        assert_eq!(budget.take(100).expect("room again").bytes, 100);
        assert_eq!(budget.left_bytes(), 100);
    }
}
