//! The user's code runs now: a closure or a callback that was handed in.
//!
//! Such code may do anything: call back into the transaction that calls it, wait for another thread that does, begin
//! transactions, take a checkpoint, panic. So that all of it is answered and nothing stays half done:
//!
//! U1. No latch is held while it runs, and no change is half made that would stay when it panics.
//! U2. A call does hold its transaction then, or the turn of a compaction. That is refused to the same thread at once.
//!     It is refused to other threads when one and the same closure has kept them waiting for [`PATIENCE_NS`].
//! U3. A lock that a transaction holds cannot come free while its own caller's thread waits for it in another
//!     transaction: that wait is refused at once, by name ([`TxnError::HeldByCaller`](crate::TxnError::HeldByCaller)).
//! U4. A thread that waits for such a transaction waits for what its caller's thread waits for. So the lock manager is
//!     told which transactions a wait holds up, and finds the deadlocks that go through them.
//! U5. A thread inside one transaction may wait for a call of another that a second thread is in. If that call waits
//!     for a lock that does not come free before the first transaction ends, it is refused ([`WaitForCall`]). Other
//!     such waits may stand in between: that of a thread inside the transaction that has the lock, for a call of yet
//!     another one.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::Relaxed;

use ledgerstone_lock::{LockName, Mode, OwnerNo};
use ledgerstone_page::Xid;
use ledgerstone_region::{Mutex, SlotNo, ThreadSlot, sync};

use crate::{Engine, Txn, TxnError};

/// How long others wait for a closure to return before they are told that it is busy, in nanoseconds.
pub const PATIENCE_NS: u64 = 1_000_000_000;

thread_local! {
    /// The transactions that this thread is inside of: those whose closures it runs.
    static INSIDE: RefCell<Vec<Inside>> = const { RefCell::new(Vec::new()) };
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Inside {
    /// The address of the engine, which lives at least as long.
    engine: usize,
    owner: OwnerNo,
    /// The owner may stand for another transaction by now: one that a conflict has ended goes back to its closure.
    xid: Xid,
}

impl Inside {
    fn runs(&self, engine: &Engine) -> bool {
        engine.table.slot(self.owner.0).xid.load(Relaxed) == self.xid.0
    }
}

/// The waits of threads inside of transactions for calls of others to return. Locked only where a call has been waited
/// for.
#[derive(Default)]
pub(crate) struct CallWaits(Mutex<Vec<CallWait>>);

struct CallWait {
    thread: SlotNo,
    /// What keeps its thread from ending.
    inside: Vec<Inside>,
    /// Whose call it waits for.
    of: OwnerNo,
}

impl CallWait {
    /// A transaction that its thread is inside of and that has to end before the lock that `waiter` waits for comes
    /// free.
    fn awaited_by(&self, engine: &Engine, waiter: OwnerNo) -> Option<Xid> {
        let is_awaited = |inside: &&Inside| {
            inside.owner != waiter
                && inside.runs(engine)
                && engine.locks.awaits_end(waiter, inside.owner)
                && inside.runs(engine)
        };
        self.inside.iter().find(is_awaited).map(|inside| inside.xid)
    }
}

/// A thread's wait for a call that another thread has under way in a transaction, until this is dropped (U5).
pub struct WaitForCall<'e> {
    engine: &'e Engine,
    thread: SlotNo,
}

impl std::fmt::Debug for WaitForCall<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WaitForCall").field("thread", &self.thread).finish_non_exhaustive()
    }
}

impl<'e> WaitForCall<'e> {
    /// `thread`, which calls this, waits for a call of `of` to return.
    #[must_use]
    pub fn begin(engine: &'e Engine, thread: SlotNo, of: OwnerNo) -> WaitForCall<'e> {
        let address = std::ptr::from_ref(engine).addr();
        // A thread whose locals are gone already is inside of nothing.
        let inside =
            INSIDE.try_with(|all| all.borrow().iter().filter(|inside| inside.engine == address).copied().collect());
        let inside: Vec<Inside> = inside.unwrap_or_default();
        if !inside.is_empty() {
            engine.call_waits.0.lock().push(CallWait { thread, inside, of });
        }
        WaitForCall { engine, thread }
    }

    /// A transaction that this thread is inside of and that has to end before the call can return: the thread waits for
    /// itself. Its wait counts no more then, so that of several threads in one circle only one is told.
    #[must_use]
    pub fn awaited_caller(&self) -> Option<Xid> {
        let engine = self.engine;
        let mut waits = engine.call_waits.0.lock();
        let own_at = waits.iter().position(|wait| wait.thread == self.thread)?;
        // Calls that do not return before the one that this thread waits for.
        let mut awaited = vec![waits[own_at].of];
        let mut at = 0;
        while let Some(&waiter) = awaited.get(at) {
            if let Some(caller) = waits[own_at].awaited_by(engine, waiter) {
                waits.swap_remove(own_at);
                return Some(caller);
            }
            for wait in waits.iter() {
                if !awaited.contains(&wait.of) && wait.awaited_by(engine, waiter).is_some() {
                    awaited.push(wait.of);
                }
            }
            at += 1;
        }
        None
    }
}

impl Drop for WaitForCall<'_> {
    fn drop(&mut self) {
        self.engine.call_waits.0.lock().retain(|wait| wait.thread != self.thread);
    }
}

/// While it lives, this thread is inside a transaction: it may run closures of the user's that the transaction calls.
pub struct UsersCode<'e> {
    /// This thread's.
    slot: Option<&'e ThreadSlot>,
    /// Of this thread.
    _here: PhantomData<*const ()>,
}

impl std::fmt::Debug for UsersCode<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UsersCode").finish_non_exhaustive()
    }
}

impl<'e> UsersCode<'e> {
    /// This thread is inside the transaction `xid`, which is or was `owner`, from now on.
    #[inline]
    pub fn of(engine: &'e Engine, owner: OwnerNo, xid: Xid) -> UsersCode<'e> {
        let inside = Inside { engine: std::ptr::from_ref(engine).addr(), owner, xid };
        // A thread whose locals are gone already calls no closures that take locks.
        let _ = INSIDE.try_with(|all| all.borrow_mut().push(inside));
        let slot = engine.slots.at_hand().or_else(|| engine.thread().ok());
        UsersCode { slot: slot.map(|slot| engine.slots.slot(slot)), _here: PhantomData }
    }

    /// Runs a closure of the user's while the call holds something that others may want (U2).
    #[inline]
    pub fn run<T>(&self, f: impl FnOnce() -> T) -> T {
        Within::enter(self.slot).run(f)
    }

    /// Runs `f`, which calls closures of the user's one after the other, each by [`Runs::run`]. Nothing waits in
    /// between.
    #[inline]
    pub fn run_each<T>(&self, f: impl FnOnce(&Runs<'e>) -> T) -> T {
        let within = Within::enter(self.slot);
        f(&Runs { slot: within.slot })
    }
}

/// Runs closures of the user's in a row ([`UsersCode::run_each`]).
pub struct Runs<'e> {
    slot: Option<&'e ThreadSlot>,
}

impl std::fmt::Debug for Runs<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runs").finish_non_exhaustive()
    }
}

impl Runs<'_> {
    /// Runs the next one.
    #[inline]
    pub fn run<T>(&self, f: impl FnOnce() -> T) -> T {
        if let Some(slot) = self.slot {
            slot.next_users_code();
        }
        let panics = UsersPanic;
        let done = f();
        std::mem::forget(panics);
        done
    }
}

impl Drop for UsersCode<'_> {
    #[inline]
    fn drop(&mut self) {
        let _ = INSIDE.try_with(|all| all.borrow_mut().pop());
    }
}

/// Runs a callback of the user's that no transaction's caller has handed in, as [`UsersCode::run`] does.
#[inline]
pub fn run_users_code<T>(engine: &Engine, f: impl FnOnce() -> T) -> T {
    Within::enter(engine.thread().ok().map(|slot| engine.slots.slot(slot))).run(f)
}

/// The thread's slot says that the user's code runs, until this is dropped.
struct Within<'e> {
    slot: Option<&'e ThreadSlot>,
    was_there: bool,
}

impl<'e> Within<'e> {
    #[inline]
    fn enter(slot: Option<&'e ThreadSlot>) -> Within<'e> {
        Within { slot, was_there: slot.is_some_and(ThreadSlot::enter_users_code) }
    }

    #[inline]
    fn run<T>(self, f: impl FnOnce() -> T) -> T {
        let panic = UsersPanic;
        let done = f();
        std::mem::forget(panic);
        done
    }
}

impl Drop for Within<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            slot.leave_users_code(self.was_there);
        }
    }
}

/// Is dropped only by a panic of the user's code: the thread may be unwinding from an earlier one, and the user's
/// destructor be what calls.
struct UsersPanic;

impl Drop for UsersPanic {
    #[cold]
    fn drop(&mut self) {
        crate::panicked::leaves_users_code();
    }
}

/// One thread's waiting for what a call of another thread holds (U2).
#[derive(Debug, Default)]
pub struct Patience {
    /// The closure that runs there, and since when it was seen.
    seen: Option<(u64, u64)>,
}

impl Patience {
    /// To be asked now and then while waiting for the thread of slot `holder`: true once one and the same closure of
    /// the user's has been running there for [`PATIENCE_NS`].
    pub fn is_over(&mut self, engine: &Engine, holder: SlotNo) -> bool {
        let Some(now_runs) = engine.slots.slot(holder).users_code() else {
            self.seen = None;
            return false;
        };
        let now_ns = sync::now_ns();
        match self.seen {
            Some((runs, since_ns)) if runs == now_runs => now_ns.saturating_sub(since_ns) >= PATIENCE_NS,
            _ => {
                self.seen = Some((now_runs, now_ns));
                false
            }
        }
    }
}

/// The transactions that this thread is inside of and that a wait of another one's holds up; until this is dropped.
pub(crate) struct HoldsUp<'e> {
    engine: &'e Engine,
    outer: Vec<OwnerNo>,
    by: OwnerNo,
}

impl Drop for HoldsUp<'_> {
    fn drop(&mut self) {
        self.outer.iter().for_each(|&outer| self.engine.locks.let_go(outer, self.by));
    }
}

impl Txn {
    /// Says that this transaction is about to wait for a lock, until what is returned goes (U4).
    ///
    /// # Errors
    /// A transaction that this thread is inside of holds the lock (U3).
    pub(crate) fn hold_up_callers(&self, name: LockName, mode: Mode) -> Result<HoldsUp<'_>, TxnError> {
        let (engine, by) = (&*self.engine, self.owner());
        let address = std::ptr::from_ref(engine).addr();
        let runs = |inside: &Inside| inside.runs(engine);
        // What it would hold then, with what it holds already.
        let mode = engine.locks.held(by, name).map_or(mode, |held| held.supremum(mode));
        let mut holds_up = HoldsUp { engine, outer: Vec::new(), by };
        // A thread whose locals are gone already is inside of nothing.
        let holder = INSIDE.try_with(|all| {
            let all = all.borrow();
            let others = || all.iter().filter(|inside| inside.engine == address && inside.owner != by && runs(inside));
            for inside in others() {
                let is_in_the_way = |held: Mode| !mode.is_compatible_with(held);
                // Asked once more afterwards: it may have ended in between, and the lock be another's.
                if engine.locks.held(inside.owner, name).is_some_and(is_in_the_way) && runs(inside) {
                    return Some(inside.xid);
                }
            }
            // From inside out: only so many count.
            for inside in others().rev() {
                if !holds_up.outer.contains(&inside.owner) {
                    engine.locks.hold_up(inside.owner, by);
                    // Or it may have ended in between, and somebody else be meant.
                    if runs(inside) {
                        holds_up.outer.push(inside.owner);
                    } else {
                        engine.locks.let_go(inside.owner, by);
                    }
                }
            }
            None
        });
        match holder {
            Ok(Some(xid)) => Err(TxnError::HeldByCaller { name, mode, xid }),
            Ok(None) | Err(_) => Ok(holds_up),
        }
    }
}
