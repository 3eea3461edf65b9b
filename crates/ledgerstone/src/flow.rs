//! What the callbacks of long calls answer.

use std::ops::ControlFlow;

use crate::Error;

/// What a callback of a long call returns. With `()` the call goes on. With [`ControlFlow::Break`] it ends soon, with
/// [`Error::Cancelled`].
pub trait Flow {
    /// The answer.
    fn flow(self) -> ControlFlow<()>;
}

impl Flow for () {
    fn flow(self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl Flow for ControlFlow<()> {
    fn flow(self) -> ControlFlow<()> {
        self
    }
}

/// How far a restore, a repair or a search for damaged pages is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MediaProgress {
    /// What the call is doing, for people: `copy pages`.
    pub what: &'static str,
    /// Bytes done of it.
    pub done_bytes: u64,
    /// Bytes to do of that in all. 0 if the number is not known.
    pub total_bytes: u64,
}

/// Who is told of the progress, and answers whether to go on: what is done, bytes done, bytes in all.
pub(crate) type Tell<'t> = &'t mut dyn FnMut(&'static str, u64, u64) -> Result<(), Error>;

/// `Break` as the error.
pub(crate) fn go_on(answer: ControlFlow<()>) -> Result<(), Error> {
    if answer.is_break() { Err(Error::Cancelled) } else { Ok(()) }
}
