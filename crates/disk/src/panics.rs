//! A disk of a program's own that panics.
//!
//! Its callers hold latches, lead flushes and wait for each other. A panic that went through them would leave others
//! waiting for ever. So it ends here, as an error of the call, and what follows is what follows any failure of a disk.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use ledgerstone_region::sync;

use crate::error::{DiskError, DiskErrorKind};

/// Makes `call`. A panic inside is an error, but for the one by which a simulation ends its threads.
pub(crate) fn caught<T>(
    path: &str,
    operation: &'static str,
    call: impl FnOnce() -> Result<T, DiskError>,
) -> Result<T, DiskError> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(done) => done,
        Err(payload) if sync::ends_a_run(&*payload) => resume_unwind(payload),
        Err(payload) => {
            std::mem::forget(payload); // Its destructor might panic once more.
            Err(DiskError::new(path, operation, DiskErrorKind::Panicked))
        }
    }
}
