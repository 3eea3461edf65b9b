//! An error as small as a pointer, inside the library.
//!
//! [`Error`] has room for names and lists. A result that could be one is copied from call to call with all that room,
//! also when there is no error. Where that takes a good part of a call, the error is boxed where it arises.

use ledgerstone_structures::TreeError;

use crate::Error;

pub(crate) struct Rare(Box<Error>);

impl From<Error> for Rare {
    #[cold]
    #[inline(never)]
    fn from(error: Error) -> Rare {
        Rare(Box::new(error))
    }
}

impl From<TreeError> for Rare {
    #[cold]
    #[inline(never)]
    fn from(error: TreeError) -> Rare {
        Rare::from(Error::from(error))
    }
}

impl From<Rare> for Error {
    #[cold]
    #[inline(never)]
    fn from(rare: Rare) -> Error {
        *rare.0
    }
}
