//! Every relative link in the Markdown files leads to a file that exists, and every anchor to a heading of it.

mod common;

use std::collections::HashMap;
use std::path::Path;

use common::{files, root};

/// The lines outside of code, with what is between backquotes left out if `text_only`.
fn lines(text: &str, text_only: bool) -> Vec<(usize, String)> {
    let mut is_code = false;
    let mut found = Vec::new();
    for (no, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            let spoken = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
            found.push((no + 1, if text_only { spoken } else { line.to_owned() }));
        }
    }
    found
}

/// The anchors of a page, as GitHub and mdBook make them of its headings.
fn anchors(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (_, line) in lines(text, false) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let anchor = title.trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-");
        let count = seen.entry(anchor.clone()).or_default();
        found.push(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
        *count += 1;
    }
    found
}

/// Where the links of a page lead, with the numbers of their lines.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (no, line) in lines(text, true) {
        for rest in line.split("](").skip(1) {
            found.push((no, rest.split([')', ' ']).next().unwrap().to_owned()));
        }
        if let Some((_, to)) = line.strip_prefix('[').and_then(|line| line.split_once("]: ")) {
            found.push((no, to.trim().to_owned()));
        }
    }
    found
}

/// What is wrong with the links of the page `text`, which lies at `path`.
fn broken(path: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (no, link) in links(text) {
        if link.contains("://") || link.starts_with("mailto:") {
            continue;
        }
        let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
        let to = if file.is_empty() { path.to_owned() } else { path.parent().unwrap().join(file) };
        let is_there = to == path || to.exists();
        let has_anchor = || {
            let text = if to == path { text.to_owned() } else { std::fs::read_to_string(&to).unwrap_or_default() };
            anchors(&text).iter().any(|known| known == anchor)
        };
        if !is_there || !anchor.is_empty() && !has_anchor() {
            found.push(format!("{}:{no}: {link}", path.display()));
        }
    }
    found
}

#[test]
fn every_link_leads_somewhere() {
    let pages = files(".md");
    let found: Vec<_> = pages.iter().flat_map(|path| broken(path, &std::fs::read_to_string(path).unwrap())).collect();
    assert!(found.is_empty(), "links to nothing:\n{}", found.join("\n"));
    assert!(pages.len() > 30, "{} pages", pages.len());
}

#[test]
fn a_link_to_nothing_is_found() {
    let path = root().join("docs/some.md");
    let text = "# A `b` c, d\n[1](#a-b-c-d) [2](#a-b-c) [3](guide.md#shell) [4](guide.md#no) [5](no.md) `[6](no.md)`\n\
                ```\n[7](no.md)\n# Not a heading\n```\n[8](#not-a-heading) ![9](../README.md) [10](https://example.org/no)\n[11]: no.md\n";
    let found: Vec<_> =
        broken(&path, text).iter().map(|line| line.rsplit_once("some.md:").unwrap().1.to_owned()).collect();
    assert_eq!(found, ["2: #a-b-c", "2: guide.md#no", "2: no.md", "7: #not-a-heading", "8: no.md"]);
}

/// `docs/SUMMARY.md` is the table of contents of the book.
#[test]
fn the_summary_names_every_page_once() {
    let docs = root().join("docs");
    let summary = docs.join("SUMMARY.md");
    let text = std::fs::read_to_string(&summary).unwrap();
    let mut named: Vec<_> = links(&text).into_iter().map(|(_, link)| docs.join(link).canonicalize().unwrap()).collect();
    named.retain(|path| path.starts_with(&docs));
    named.sort();
    let expected: Vec<_> =
        files(".md").into_iter().filter(|path| path.starts_with(&docs) && *path != summary).collect();
    assert_eq!(named, expected);
}
