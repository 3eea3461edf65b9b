//! The names of a simulated disk: as they are seen, as they are durable, and the changes between the two.
//!
//! A change belongs to the directory it happens in (a rename to the one it leads to) and is durable when that directory
//! has been synced. At a crash each of the others survives or is lost by itself. Changes name the file, not only the
//! path, so that a surviving change means the same whatever became of those before it. Suppose that a file was created
//! and then renamed, and the creation was lost. The rename still puts the file under its new name.
//!
//! A directory that is lost takes the names below it with it.

use std::collections::{BTreeMap, BTreeSet};

use super::survival::{Draw, Fate};

#[derive(Debug, Clone)]
pub(super) enum Change {
    Create { path: String, inode: usize },
    Remove { path: String, inode: usize },
    Rename { from: String, to: String, inode: usize },
    CreateDir { path: String },
    RemoveDir { path: String },
}

#[derive(Debug, Clone, Default)]
struct Tree {
    files: BTreeMap<String, usize>,
    dirs: BTreeSet<String>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    live: Tree,
    durable: Tree,
    pending: Vec<Change>,
}

/// The directory of a path; the root is `""`.
pub(super) fn dir_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

impl Change {
    fn dir(&self) -> &str {
        match self {
            Change::Create { path, .. }
            | Change::Remove { path, .. }
            | Change::CreateDir { path }
            | Change::RemoveDir { path } => dir_of(path),
            Change::Rename { to, .. } => dir_of(to),
        }
    }
}

impl Tree {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Create { path, inode } => {
                self.files.insert(path.clone(), *inode);
            }
            Change::Remove { path, inode } => {
                if self.files.get(path) == Some(inode) {
                    self.files.remove(path);
                }
            }
            Change::Rename { from, to, inode } => {
                if self.files.get(from) == Some(inode) {
                    self.files.remove(from);
                }
                self.files.insert(to.clone(), *inode);
            }
            Change::CreateDir { path } => {
                self.dirs.insert(path.clone());
            }
            // What it held is gone before it is: a file system that keeps this keeps the removals in it, too.
            Change::RemoveDir { path } => {
                self.dirs.remove(path);
            }
        }
    }

    fn is_dir(&self, path: &str) -> bool {
        path.is_empty() || self.dirs.contains(path)
    }

    /// Drops what lies in directories that are not there.
    fn drop_orphans(&mut self) {
        let dirs = std::mem::take(&mut self.dirs);
        // Sorted: a directory comes after the one above it.
        for dir in dirs {
            if self.is_dir(dir_of(&dir)) {
                self.dirs.insert(dir);
            }
        }
        let files = std::mem::take(&mut self.files);
        self.files = files.into_iter().filter(|(path, _)| self.is_dir(dir_of(path))).collect();
    }
}

impl Names {
    pub(super) fn file(&self, path: &str) -> Option<usize> {
        self.live.files.get(path).copied()
    }

    pub(super) fn is_dir(&self, path: &str) -> bool {
        self.live.is_dir(path)
    }

    pub(super) fn files(&self) -> impl Iterator<Item = (&str, usize)> {
        self.live.files.iter().map(|(path, inode)| (path.as_str(), *inode))
    }

    /// All files that a durable or present name leads to. After a crash the two are the same.
    pub(super) fn inodes(&self) -> impl Iterator<Item = usize> {
        self.live.files.values().chain(self.durable.files.values()).copied()
    }

    pub(super) fn list(&self, dir: &str) -> Vec<String> {
        let files = self.live.files.keys();
        let names = files.chain(&self.live.dirs).filter(|path| dir_of(path) == dir && !path.is_empty());
        let mut names: Vec<String> =
            names.map(|path| path.rsplit_once('/').map_or(path.as_str(), |(_, name)| name).to_owned()).collect();
        names.sort_unstable();
        names
    }

    pub(super) fn change(&mut self, change: Change) {
        self.live.apply(&change);
        self.pending.push(change);
    }

    pub(super) fn sync(&mut self, dir: &str) {
        let (settled, pending) = std::mem::take(&mut self.pending).into_iter().partition(|change| change.dir() == dir);
        self.pending = pending;
        let settled: Vec<Change> = settled;
        for change in &settled {
            self.durable.apply(change);
        }
    }

    pub(super) fn after_crash(&self, fate: Fate, draw: &mut Draw) -> Names {
        let mut kept = self.durable.clone();
        for change in &self.pending {
            if fate.keeps(draw) {
                kept.apply(change);
            }
        }
        kept.drop_orphans();
        Names { live: kept.clone(), durable: kept, pending: Vec::new() }
    }
}
