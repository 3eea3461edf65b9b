//! The tutorial's blocks are the program `src/bin/queue.rs`, and its console examples do what the page says.

use std::process::Command;

const PAGE: &str = include_str!("../../docs/tutorial.md");
const PROGRAM: &str = include_str!("../src/bin/queue.rs");

/// The blocks of the page in this language.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    let after = PAGE.split(&fence).skip(1);
    after.map(|text| text.split_once("```").expect("each block of the page ends").0).collect()
}

/// Every block stands in the program, in the order of the page, and together they are all of it but its head.
#[test]
fn every_block_is_a_part_of_the_program() {
    let blocks = blocks("rust");
    let mut rest = &PROGRAM[PROGRAM.find("use ").expect("the program uses something")..];
    for block in &blocks {
        let (skipped, after) = rest.split_once(block).unwrap_or_else(|| panic!("not in the program:\n{block}"));
        assert_eq!(skipped.trim(), "", "in the program, and not in docs/tutorial.md");
        rest = after;
    }
    assert_eq!(rest.trim(), "", "in the program, and not in docs/tutorial.md");
    assert!(blocks.len() >= 6, "{} blocks", blocks.len());
}

/// The examples in one directory, one after the other. A last line `...` stands for whatever follows.
#[test]
fn the_examples_do_what_the_page_says() {
    let dir = std::env::temp_dir().join(format!("ledgerstone-tutorial-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let mut count = 0;
    for example in blocks("console").iter().flat_map(|block| block.split("$ ").skip(1)) {
        let mut lines = example.lines();
        let command = lines.next().unwrap();
        let words = command.strip_prefix("cargo run --quiet -- ").unwrap_or_else(|| panic!("what is {command:?}?"));
        let ran = Command::new(env!("CARGO_BIN_EXE_queue")).args(words.split(' ')).current_dir(&dir).output().unwrap();
        let printed = String::from_utf8(ran.stdout).unwrap();
        let mut printed_lines = printed.lines();
        for line in lines {
            if line == "..." {
                printed_lines = "".lines();
                break;
            }
            assert_eq!(printed_lines.next(), Some(line), "{command}\n{printed}");
        }
        assert_eq!(printed_lines.next(), None, "{command}\n{printed}");
        let crashes = command.ends_with("work") && count < 2;
        assert_eq!(ran.status.success(), !crashes, "{command}: {}", String::from_utf8_lossy(&ran.stderr));
        count += 1;
    }
    assert!(count >= 4, "{count} examples");
    std::fs::remove_dir_all(&dir).unwrap();
}
