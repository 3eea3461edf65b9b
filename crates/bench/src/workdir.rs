//! The directory of an experiment: the caller's own, which stays, or a temporary one, which does not.

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::Place;
use crate::made::{self, Note};

/// A directory; removed on drop if it was made for the experiment.
#[derive(Debug)]
pub struct Workdir {
    path: PathBuf,
    made: Option<(tempfile::TempDir, Note)>,
}

impl Workdir {
    /// The directory that `place` asks for.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(place: &Place) -> anyhow::Result<Workdir> {
        if let Some(path) = &place.keep {
            return Ok(Workdir { path: path.clone(), made: None });
        }
        let made = tempfile::Builder::new()
            .prefix("ledgerstone-bench-")
            .tempdir_in(&place.tmp)
            .with_context(|| format!("cannot make a directory in {} (see --tmp)", place.tmp.display()))?;
        let note = made::directory(made.path());
        Ok(Workdir { path: made.path().to_owned(), made: Some((made, note)) })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if it goes when this value goes.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        self.made.is_some()
    }
}
