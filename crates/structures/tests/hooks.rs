//! Hooks of a transaction that panic while another panic unwinds.

mod stack;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use ledgerstone_txn::run_users_code;
use stack::Stack;

/// Whose the one panic was is not forgotten over the other.
#[test]
fn a_hook_that_panics_while_a_panic_of_the_users_unwinds_fails_nothing() {
    let stack = Stack::new();
    let done = catch_unwind(AssertUnwindSafe(|| {
        stack.engine.in_a_call(|| {
            let mut txn = stack.begin();
            txn.on_end(|_| resume_unwind(Box::new("a hook panics")));
            run_users_code(&stack.engine, || resume_unwind(Box::new("the user's code panics")));
        });
    }));
    assert!(done.is_err() && !stack.engine.is_failed());
    // The next one is not taken for it.
    let done = catch_unwind(AssertUnwindSafe(|| {
        stack.engine.in_a_call(|| resume_unwind(Box::new("the engine panics")));
    }));
    assert!(done.is_err() && stack.engine.is_failed());
}
