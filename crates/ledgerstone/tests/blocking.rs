//! Each public call that can fail and may block says so in its documentation. Calls that wait for nothing are listed
//! here.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders whose public methods are a program's calls, from here.
const ROOMS: [&str; 7] = [
    "src/environment",
    "src/extend",
    "src/table",
    "src/transaction",
    "../core/src/keeper",
    "../feed/src",
    "../media/src",
];

/// They wait neither for locks nor for the disk, except `savepoint` and `release`, which wait for another thread's call
/// of the same transaction only, as all its calls do.
const WAIT_FOR_NOTHING: [&str; 10] = [
    "src/environment/transact.rs begin",
    "src/environment/transact.rs begin_with",
    "src/environment/transact.rs snapshot",
    "src/table/entry.rs key",
    "src/table/index/read.rs index",
    "src/table/index/typed.rs index",
    "src/transaction/savepoint.rs release",
    "src/transaction/savepoint.rs savepoint",
    // Of a type that programs do not see.
    "../feed/src/deliver.rs new",
    "../feed/src/deliver.rs part",
];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else {
            found.push(path);
        }
    }
}

#[test]
fn each_call_that_may_block_says_so() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for room in ROOMS {
        sources(&root.join(room), &mut files);
    }
    let (mut silent, mut said) = (Vec::new(), 0);
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        let (mut doc, mut lines) = (String::new(), text.lines());
        while let Some(line) = lines.next() {
            let line = line.trim();
            if let Some(words) = line.strip_prefix("///") {
                doc.push_str(words);
                continue;
            }
            if line.starts_with("#[") {
                continue;
            }
            if let Some(rest) = line.strip_prefix("pub fn ") {
                let name = rest.split(['(', '<']).next().unwrap();
                let mut head = line.to_owned();
                while !head.contains('{') {
                    head += lines.next().expect("a body");
                }
                let file = path.strip_prefix(root).unwrap().display();
                let call = format!("{file} {name}");
                let says = doc.contains("(crate#what-blocks)") || doc.contains("# Blocking");
                said += u32::from(says);
                let may_fail = head.rsplit_once("->").is_some_and(|(_, back)| back.trim_start().starts_with("Result<"));
                if may_fail && says == WAIT_FOR_NOTHING.contains(&call.as_str()) {
                    silent.push(call);
                }
            }
            doc.clear();
        }
    }
    assert!(said > 100, "{said} calls say so");
    assert!(silent.is_empty(), "say what they wait for, or list them, but not both: {silent:#?}");
}
