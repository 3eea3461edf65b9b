//! Tickets: what a commit returns, and how to learn when it is durable.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use ledgerstone_log::WakerNo;
use ledgerstone_page::Lsn;
use ledgerstone_region::Share;
use ledgerstone_txn::Engine;

use crate::Error;

/// A commit that has its place in the log.
#[derive(Debug, Clone)]
pub struct Committed {
    /// LSN of the commit record, or 0 for a transaction that changed nothing. Commits are ordered by it.
    pub lsn: Lsn,
    /// Resolves when everything the transaction wrote or read is durable.
    pub ticket: Ticket,
}

/// Tells when a commit is durable. A ticket can be waited for, polled, or awaited in any async runtime. Only
/// [`Ticket::wait`] blocks.
///
/// It comes with a commit: from [`Transaction::commit`](crate::Transaction::commit) and from
/// [`Environment::transact_ticket`](crate::Environment::transact_ticket).
pub struct Ticket {
    /// Whose log it waits for. `None` if there is nothing to wait for.
    engine: Option<Share<Engine>>,
    lsn: Lsn,
    /// Where its waker is, if it was polled: one, however often that was.
    place: Option<WakerNo>,
}

impl Clone for Ticket {
    fn clone(&self) -> Ticket {
        // The task that polls it has a waker of its own.
        Ticket { engine: self.engine.clone(), lsn: self.lsn, place: None }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.place.is_some()
            && let Some(engine) = &self.engine
        {
            engine.log.forget_waker(self.lsn, &mut self.place);
        }
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket").field("lsn", &self.lsn).field("is_durable", &self.is_durable()).finish()
    }
}

impl Ticket {
    /// `engine` is called if there is something to wait for.
    pub(crate) fn new(lsn: Lsn, engine: impl FnOnce() -> Share<Engine>) -> Ticket {
        Ticket { engine: (lsn != Lsn(0)).then(engine), lsn, place: None }
    }

    /// The engine to wait for, unless the commit is durable.
    fn awaited(&self) -> Option<&Share<Engine>> {
        self.engine.as_ref().filter(|engine| engine.log.durable_lsn() <= self.lsn)
    }

    /// The LSN that must be durable.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// True if no crash can take the commit any more. Never waits.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.awaited().is_none()
    }

    /// Waits until the commit is durable, flushing the log if need be. Blocks its thread ([what
    /// blocks](crate#what-blocks)): async code awaits the ticket instead.
    ///
    /// # Errors
    /// [`Error::Failed`] if the log could not be written: the commit may or may not be found after reopening.
    /// [`Error::TooManyThreads`]: nothing has changed, and another thread can wait.
    pub fn wait(&self) -> Result<(), Error> {
        let Some(engine) = self.awaited() else { return Ok(()) };
        engine.check_process()?;
        Ok(engine.in_a_call(|| engine.log.flush_to(self.lsn))?)
    }
}

impl Future for Ticket {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Ticket { engine, lsn, place } = &mut *self;
        let Some(engine) = engine else { return Poll::Ready(Ok(())) };
        let is_durable = || engine.log.durable_lsn() > *lsn;
        if is_durable() {
            return Poll::Ready(Ok(()));
        }
        if engine.is_inherited() {
            return Poll::Ready(Err(Error::Forked));
        }
        if engine.is_failed() {
            return Poll::Ready(Err(Error::Failed { why: engine.why_failed() }));
        }
        engine.log.on_durable(*lsn, place, cx.waker());
        // Both may have come between the look and the registration.
        if is_durable() {
            return Poll::Ready(Ok(()));
        }
        if engine.is_failed() {
            return Poll::Ready(Err(Error::Failed { why: engine.why_failed() }));
        }
        engine.in_a_call(|| engine.log.request_flush(*lsn));
        Poll::Pending
    }
}
