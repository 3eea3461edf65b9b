//! Modules that know each other in a circle are those that ARCHITECTURE.md names, under "Circles between files".

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// What the sources at `path`, a file or a folder, name of their own crate: the first names behind `crate::`.
fn used(path: &Path, names: &mut BTreeSet<String>) {
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| used(&entry.unwrap().path(), names));
        return;
    }
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
        assert!(!line.contains("crate::{"), "{}: one line for each module: {line}", path.display());
        names.extend(line.split("crate::").skip(1).map(|rest| {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            rest[..end].to_owned()
        }));
    }
}

/// What can be reached from a module by what it uses.
fn reached<'u>(uses: &'u BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<&'u str> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(name) = next.pop() {
        for used in uses.get(name).into_iter().flatten() {
            if seen.insert(used.as_str()) {
                next.push(used);
            }
        }
    }
    seen
}

#[test]
fn only_what_prints_the_list_of_commands_knows_it() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut uses = BTreeMap::new();
    for entry in fs::read_dir(src).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let mut names = BTreeSet::new();
        used(&path, &mut names);
        uses.insert(name, names);
    }
    assert!(uses["args"].contains("commands") && uses["shell"].contains("args"), "{uses:#?}");
    uses.remove("lib"); // It puts them together.
    let in_circles: Vec<&str> = uses
        .keys()
        .map(String::as_str)
        .filter(|name| reached(&uses, name).iter().any(|other| other != name && reached(&uses, other).contains(name)))
        .collect();
    assert_eq!(in_circles, ["args", "complete", "help", "man"]);
}
