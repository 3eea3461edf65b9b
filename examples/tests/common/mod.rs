//! The files of the repository, for the tests that read them.

use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// Its files whose names end so, in order; none of what is built or hidden.
pub fn files(ending: &str) -> Vec<PathBuf> {
    let (mut found, mut dirs) = (Vec::new(), vec![root()]);
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy();
            if path.is_dir() && !path.is_symlink() && !name.starts_with('.') && name != "target" {
                dirs.push(path);
            } else if name.ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
