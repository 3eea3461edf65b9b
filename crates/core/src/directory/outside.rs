//! What is to outlive an environment lies outside of its directory: backups and archives of its log.

use std::path::{Component, Path, PathBuf};

use crate::Error;

/// Refuses a place in the environment's directory `dir`: whatever takes the one takes the other.
pub fn check_is_outside(place: &Path, dir: &Path) -> Result<(), Error> {
    let absolute = std::path::absolute(place).map_err(|error| Error::of_io("find", place, &error))?;
    // Part by part, since the last ones need not be there yet.
    let mut there = PathBuf::new();
    for part in absolute.components() {
        match part {
            Component::ParentDir => drop(there.pop()),
            part => there.push(part),
        }
        there = there.canonicalize().unwrap_or(there);
    }
    if dir.canonicalize().is_ok_and(|dir| there.starts_with(dir)) {
        let (path, environment) = (place.display().to_string(), dir.display().to_string());
        return Err(Error::InsideEnvironment { path, environment });
    }
    Ok(())
}
