//! The rooms of this crate and of the core are those that ARCHITECTURE.md lists, and each uses only those that it lists
//! below.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of a source file without comments and without its unit tests.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).fold(String::new(), |all, line| all + line + "\n")
}

fn ident(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// The first names of the parts of `{a::b, C, d::{E, F}}`, whose beginning was taken off.
fn first_names(group: &str) -> Vec<&str> {
    let (mut depth, mut names, mut begin) = (0, Vec::new(), 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                names.push(ident(group[begin..at].trim_start()));
                begin = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names
}

/// What a text names of its own crate, by the first name of each path.
fn used(code: &str) -> Vec<&str> {
    let names = |part| match str::strip_prefix(part, '{') {
        Some(group) => first_names(group),
        None => vec![ident(part)],
    };
    code.split("crate::").skip(1).flat_map(names).filter(|name| !name.is_empty()).collect()
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
    found
}

#[test]
fn rooms_are_those_of_the_page_and_know_only_those_below() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    check(own, "## The rooms of the library\n");
    check(&own.join("../core"), "## The rooms of the core\n");
}

/// Each type of value would have the tree compiled anew, which was a quarter of the build: `ordered.rs` of `region` has
/// it once.
#[test]
fn ordered_maps_are_those_of_region() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut wrong = Vec::new();
    for name in [
        "disk",
        "region",
        "page",
        "log",
        "lock",
        "op",
        "txn",
        "buffer",
        "space",
        "sort",
        "structures",
        "recovery",
        "core",
        "feed",
        "media",
        "ledgerstone",
    ] {
        for path in sources(&crates.join(name).join("src")) {
            let file = path.strip_prefix(&crates).unwrap().display().to_string();
            let is_of_tests = ["test", "/sim/", "lock/src/check.rs"].iter().any(|part| file.contains(part));
            let text = code(&path);
            let text = ["tests", "conformance"]
                .iter()
                .fold(text.as_str(), |text, tests| text.split(&format!("\nmod {tests} {{")).next().unwrap_or_default());
            // The one is what they are made of, and the other names those that programs store.
            let is_apart = ["region/src/ordered.rs", "core/src/typed/by_serde.rs"].contains(&&*file);
            if !is_of_tests && !is_apart && text.contains("BTree") {
                wrong.push(file);
            }
        }
    }
    assert!(wrong.is_empty(), "BTreeMap or BTreeSet: {wrong:#?}");
}

fn check(root: &Path, heading: &str) {
    let page = fs::read_to_string(root.join("../../ARCHITECTURE.md")).unwrap();
    let (_, section) = page.split_once(heading).expect("the page has a section on the rooms of each");
    let section = section.split("\n## ").next().unwrap_or_default();
    // From the top to the bottom.
    let rooms: Vec<&str> =
        section.lines().filter_map(|line| line.strip_prefix("- `")?.split(['`', '/', '.']).next()).collect();
    let place = |room: &str| rooms.iter().position(|&there| there == room);

    let src = root.join("src");
    let mut there: Vec<String> = fs::read_dir(&src).unwrap().map(|entry| name(&entry.unwrap().path())).collect();
    there.retain(|room| room != "lib");
    let mut listed: Vec<String> = rooms.iter().map(ToString::to_string).collect();
    there.sort();
    listed.sort();
    assert_eq!(there, listed, "folders in src, and rooms in ARCHITECTURE.md");

    // What lib.rs shows to users belongs to the room that it takes it from.
    let lib = code(&src.join("lib.rs"));
    let mut room_of: BTreeMap<&str, &str> = rooms.iter().map(|&room| (room, room)).collect();
    for shown in lib.split("\npub use ").skip(1) {
        let (room, rest) = shown.split_once("::").unwrap_or((shown, ""));
        if place(room).is_some() {
            let group = rest.strip_prefix('{').map_or_else(|| vec![ident(rest)], first_names);
            room_of.extend(group.into_iter().map(|name| (name, room)));
        }
    }

    let mut wrong = Vec::new();
    for path in sources(&src) {
        let file = path.strip_prefix(&src).unwrap();
        let own = name(Path::new(file.iter().next().unwrap()));
        for name in used(&code(&path)) {
            if let Some(&used) = room_of.get(name)
                && used != own
                && own != "lib"
                && place(used) <= place(&own)
            {
                wrong.push(format!("{} uses {name} of {used}/, which is not below {own}/", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The name of a folder, or of a file without its ending.
fn name(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}
