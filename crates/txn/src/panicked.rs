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
//! P4. A panic of the user's code after which the thread holds something came out of the engine, which that code had
//!     called, as a structure does. It fails the environment, too.
//! P5. What the user gets from a call, and does not get after all, is dropped as the user's code: its destructor may
//!     panic. So is what a call has decoded for the user.
//! P6. Code of the engine that runs in no call, such as the destructor of a snapshot, is guarded by the thread's slot
//!     (`SlotTable::guarded`).

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

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

/// A panic that has left a step, which is taken back before it goes on. So that a panic of what takes it back is not
/// believed to be the user's.
#[must_use = "the panic goes on"]
pub struct KeptPanic {
    panic: Box<dyn Any + Send>,
    is_users: bool,
}

impl std::fmt::Debug for KeptPanic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeptPanic").field("is_users", &self.is_users).finish_non_exhaustive()
    }
}

impl KeptPanic {
    /// Goes on with it.
    ///
    /// # Panics
    /// It does.
    pub fn go_on(self) -> ! {
        let _ = IS_USERS.try_with(|is_users| is_users.set(self.is_users));
        resume_unwind(self.panic)
    }
}

/// Dropped only by a panic: it is forgotten where nothing has gone wrong, and costs nothing there.
struct Unwinds<'e> {
    engine: &'e Engine,
    /// See [`Engine::after_panic`].
    leaves_call: bool,
}

impl Unwinds<'_> {
    #[inline(always)]
    fn unless_done<T>(self, f: impl FnOnce() -> T) -> T {
        let done = f();
        std::mem::forget(self);
        done
    }
}

impl Drop for Unwinds<'_> {
    fn drop(&mut self) {
        self.engine.after_panic(self.leaves_call);
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
        Unwinds { engine: self, leaves_call: true }.unless_done(f)
    }

    /// Keeps a panic while the step that it has left is taken back (P3).
    #[cold]
    #[inline(never)]
    pub fn keep_panic(&self, panic: Box<dyn Any + Send>) -> KeptPanic {
        self.after_panic(false);
        KeptPanic { panic, is_users: IS_USERS.try_with(Cell::take).unwrap_or_default() }
    }

    /// Runs `f`, a call of the engine's code that calls the user's as well, such as a file that a backup goes into.
    /// After a panic the environment fails if the thread holds something (P4), and goes on otherwise.
    ///
    /// # Panics
    /// As `f`.
    pub fn in_a_call_with_users<T>(&self, f: impl FnOnce() -> T) -> T {
        Unwinds { engine: self, leaves_call: false }.unless_done(f)
    }

    /// Runs `f`, the user's code, in whose place others go on if it panics: `None` then. The environment fails if the
    /// thread still holds something (P4).
    pub fn unless_it_panics<T>(&self, f: impl FnOnce() -> T) -> Option<T> {
        // A destructor may run it, while a panic unwinds that goes on afterwards.
        let is_users_before = IS_USERS.try_with(Cell::take).unwrap_or_default();
        let done = catch_unwind(AssertUnwindSafe(f)).map_err(|panic| self.keep_panic(panic));
        let _ = IS_USERS.try_with(|is_users| is_users.set(is_users_before));
        done.map_err(std::mem::forget).ok() // To drop it may panic again.
    }

    /// After a panic that leaves a call, or (`leaves_call`: false) a step that is taken back (P3).
    ///
    /// For a guard that is dropped by the panic. [`Engine::in_a_call`] does it by itself.
    #[cold]
    #[inline(never)]
    pub fn after_panic(&self, leaves_call: bool) {
        // It has come to where it is caught, or to the next call, only when it leaves this one.
        let is_users = IS_USERS.try_with(|is_users| if leaves_call { is_users.replace(false) } else { is_users.get() });
        if self.is_inherited() {
            return;
        }
        let Ok(me) = self.slots.try_current() else { return };
        let is_whole = is_users.unwrap_or(true) || !leaves_call;
        // The user's code may have called the engine, as a structure does: whatever is held then was of that call (P4).
        if is_whole && !self.is_held_up_by(me) {
            return;
        }
        self.fail(PANICKED); // P1
        self.slots.has_panicked(); // P2
    }

    fn is_held_up_by(&self, slot: SlotNo) -> bool {
        // A structure's latch may be held over a step, and its guard is about to give it back.
        let long_count = usize::from(self.slots.slot(slot).long_latch().is_some());
        self.slots.held(slot).name_count() > long_count
            || self.log.is_held_up_by(slot)
            || self.locks.is_held_up_by(slot)
            || self.versions.is_held_up_by(slot)
            || self.cache.is_held_up_by(slot)
    }
}
