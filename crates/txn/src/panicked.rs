//! A thread that panics in the engine's code, with something in its hands that others wait for.
//!
//! A panic of the user's code finds nothing held (U1 in `users_code.rs`): its step is undone, and all go on. One of the
//! engine's may leave words of the region half changed, and what this process knows of them in its own memory.
//!
//! P1. So the environment fails when a panic of the engine's code leaves a call, before anybody waits for the thread.
//!     Nothing is written that was half done, and a restart knows what was committed.
//! P2. Its slot counts as one of the dead. Another thread mends after it as after a process that died, so that nobody
//!     hangs. Whoever waited finds that the environment has failed.
//! P3. A step that is taken back after a panic may be of a user's structure, and then all go on. It is not taken back,
//!     and the environment fails, if the thread holds what no guard has given back as it unwound.

use std::cell::Cell;

use ledgerstone_region::SlotNo;

use crate::{Engine, Txn};

/// Why an environment has failed in which a thread has panicked.
pub const PANICKED: &str = "a thread panicked in the middle of a change: close the environment and open it again";

thread_local! {
    /// The panic that unwinds came out of the user's code.
    static IS_USERS: Cell<bool> = const { Cell::new(false) };
}

/// Notes that a panic leaves the user's code. Whoever it meets next in the engine holds nothing.
pub(crate) fn leaves_users_code() {
    let _ = IS_USERS.try_with(|is_users| is_users.set(true));
}

/// Dropped only by a panic: it is forgotten where nothing has gone wrong, and costs nothing there.
struct Unwinds<'e>(&'e Engine);

impl Drop for Unwinds<'_> {
    fn drop(&mut self) {
        self.0.after_panic(true);
    }
}

impl Txn {
    /// Runs `f`, which ends the transaction: a panic leaves it half ended.
    #[inline(always)]
    pub(crate) fn ending<T>(&mut self, f: impl FnOnce(&mut Txn) -> T) -> T {
        struct Ending<'t>(&'t mut Txn);
        impl Drop for Ending<'_> {
            fn drop(&mut self) {
                self.0.engine.after_panic(true);
            }
        }
        let ending = Ending(self);
        let done = f(ending.0);
        std::mem::forget(ending);
        done
    }
}

impl Engine {
    /// Runs `f`, which is a whole call of the engine's code: behind a panic of it nobody waits for this thread. To be
    /// called where what is dropped by the panic afterwards would wait.
    ///
    /// # Panics
    /// As `f`.
    #[inline(always)]
    pub fn in_a_call<T>(&self, f: impl FnOnce() -> T) -> T {
        let unwinds = Unwinds(self);
        let done = f();
        std::mem::forget(unwinds);
        done
    }

    /// After a panic that leaves a call, or (`leaves_call`: false) a step that is taken back (P3).
    ///
    /// For a guard that is dropped by the panic. [`Engine::in_a_call`] does it by itself.
    #[cold]
    #[inline(never)]
    pub fn after_panic(&self, leaves_call: bool) {
        // It has come to where it is caught, or to the next call, only when it leaves this one.
        let is_users = IS_USERS.try_with(|is_users| if leaves_call { is_users.replace(false) } else { is_users.get() });
        if is_users.unwrap_or(true) || self.is_inherited() {
            return;
        }
        let Ok(me) = self.slots.try_current() else { return };
        if !leaves_call && !self.is_held_up_by(me) {
            return;
        }
        self.fail(PANICKED); // P1
        self.slots.has_panicked(); // P2
    }

    fn is_held_up_by(&self, slot: SlotNo) -> bool {
        !self.slots.held(slot).is_empty()
            || self.log.is_held_up_by(slot)
            || self.locks.is_held_up_by(slot)
            || self.versions.is_held_up_by(slot)
            || self.cache.is_held_up_by(slot)
    }
}
