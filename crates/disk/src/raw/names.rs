//! Paths: `a/./b/` and `a/b` are one file, and the root is `""`.

/// The one spelling of a path.
pub(super) fn normal(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    parts.join("/")
}

/// The directory that a path is in.
pub(super) fn dir_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

/// A path and those above it, the highest first.
pub(super) fn with_those_above(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    ends.map(move |end| &path[..end]).filter(|part| !part.is_empty())
}
