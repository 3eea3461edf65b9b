//! What the callbacks of long calls answer.

use std::ops::ControlFlow;

use crate::Error;

/// What the progress callback of a long call returns. With `()` the call goes on. With [`ControlFlow::Break`] it ends
/// soon, with [`Error::Cancelled`].
///
/// Each long call has a short form without a callback, such as `backup` or
/// `verify`. The form whose name ends in `_with` takes the callback as its last argument.
///
/// ```
/// # fn main() -> Result<(), ledgerstone::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
/// use ledgerstone::Error;
/// use std::ops::ControlFlow;
///
/// env.verify()?;
/// env.verify_with(|at| println!("{}", at.what))?;
/// let stopped = env.verify_with(|_| ControlFlow::Break(()));
/// assert!(matches!(stopped, Err(Error::Cancelled)));
/// # env.close()
/// # }
/// ```
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

/// How far a restore, a repair, a search for damaged pages, or the verification of a backup or an archive is.
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
pub type Tell<'t> = &'t mut dyn FnMut(&'static str, u64, u64) -> Result<(), Error>;

/// A callback of users as one that is told.
pub fn telling<F: Flow>(
    mut progress: impl FnMut(MediaProgress) -> F,
) -> impl FnMut(&'static str, u64, u64) -> Result<(), Error> {
    move |what, done_bytes, total_bytes| go_on(progress(MediaProgress { what, done_bytes, total_bytes }).flow())
}

/// `Break` as the error.
pub fn go_on(answer: ControlFlow<()>) -> Result<(), Error> {
    if answer.is_break() { Err(Error::Cancelled) } else { Ok(()) }
}
