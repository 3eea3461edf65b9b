//! Comments end at column 120, and their sentences and those of the pages after 30 words, in every crate.

mod common;

use std::path::Path;

const COLUMNS_MAX: usize = 120;
const WORDS_MAX: usize = 30;

/// `rustfmt` leaves comments as they are. Tables, and drawings between lines of three backquotes, may be wider.
#[test]
fn comments_end_at_column_120() {
    let (mut wide, mut count) = (Vec::new(), 0);
    for path in common::files(".rs") {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut is_drawing = false;
        for (no, line) in text.lines().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix("//") else {
                is_drawing = false;
                continue;
            };
            count += 1;
            let comment = comment.trim_start_matches(['/', '!']).trim_start();
            is_drawing ^= comment.starts_with("```");
            if line.chars().count() > COLUMNS_MAX && !is_drawing && !comment.starts_with('|') {
                wide.push(format!("{}:{}", path.display(), no + 1));
            }
        }
    }
    assert!(count > 10_000, "{count} lines of comments");
    assert!(wide.is_empty(), "above {COLUMNS_MAX} columns: {wide:#?}");
}

/// Comments on lines of their own, rustdoc among them. Not comments behind code, and not texts in quotes.
#[test]
fn sentences_of_comments_have_30_words_at_most() {
    let (mut long, mut count) = (Vec::new(), 0);
    for path in common::files(".rs") {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut comments = Sentences::of(&path);
        for (no, line) in text.lines().enumerate() {
            let line = line.trim_start();
            let comment = line.strip_prefix("//").map(|_| line.split_at(line.find(|c| c != '/').unwrap_or(line.len())));
            match comment {
                // A `//!` is not a part of the `//` before it.
                Some((mark, words)) => {
                    let words = words.strip_prefix('!').unwrap_or(words);
                    comments.line(no + 1, mark.len() + usize::from(line.starts_with("//!")), words);
                }
                None => comments.end(),
            }
        }
        comments.end();
        count += comments.count;
        long.append(&mut comments.long);
    }
    assert!(count > 10_000, "{count} sentences");
    assert!(long.is_empty(), "more than {WORDS_MAX} words: {long:#?}");
}

/// All pages but the changelog. Not tables, headings and code, and not what CONTRIBUTING.md shows as wrong.
#[test]
fn sentences_of_pages_have_30_words_at_most() {
    let (mut long, mut count) = (Vec::new(), 0);
    for path in common::files(".md").into_iter().filter(|path| !path.ends_with("CHANGELOG.md")) {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut page = Sentences::of(&path);
        for (no, line) in text.lines().enumerate() {
            page.line(no + 1, 0, line);
        }
        page.end();
        count += page.count;
        long.append(&mut page.long);
    }
    assert!(count > 2_000, "{count} sentences");
    assert!(long.is_empty(), "more than {WORDS_MAX} words: {long:#?}");
}

/// Takes a text apart, line by line. A sentence ends with its paragraph or item, with `.`, `?` or `!` before a space,
/// and with `:` before a capital. What stands in backquotes is one word, and the address of a link is none.
struct Sentences<'a> {
    path: &'a Path,
    /// Lines of this kind make one paragraph.
    kind: usize,
    paragraph: Vec<(usize, String)>,
    is_code: bool,
    count: usize,
    long: Vec<String>,
}

impl Sentences<'_> {
    fn of(path: &Path) -> Sentences<'_> {
        Sentences { path, kind: 0, paragraph: Vec::new(), is_code: false, count: 0, long: Vec::new() }
    }

    fn line(&mut self, no: usize, kind: usize, line: &str) {
        let line = line.trim();
        if kind != self.kind {
            self.end();
        }
        self.kind = kind;
        let is_fence = line.starts_with("```");
        if is_fence || self.is_code || line.is_empty() || line.starts_with(['|', '#']) || line.starts_with("<!--") {
            let is_code = self.is_code ^ is_fence;
            self.end();
            self.is_code = is_code;
            return;
        }
        let words = without_mark(line);
        if words != line {
            self.end();
        }
        self.paragraph.push((no, words.to_owned()));
    }

    /// The paragraph ends here, and code does.
    fn end(&mut self) {
        self.is_code = false;
        let paragraph = std::mem::take(&mut self.paragraph);
        if paragraph.first().is_some_and(|(_, line)| line.starts_with("Before:")) {
            return;
        }
        // A span or an address can go on in the next line, so they are taken out of the whole.
        let all: Vec<&str> = paragraph.iter().map(|(_, line)| line.as_str()).collect();
        let plain = without_code(&all.join(" "));
        let words: Vec<&str> = plain.split_whitespace().collect();
        let mut sentence = Vec::new();
        for (at, word) in words.iter().enumerate() {
            if word.contains(char::is_alphanumeric) {
                sentence.push(*word);
            }
            if at + 1 == words.len() || ends_sentence(word, words[at + 1]) {
                self.count += usize::from(!sentence.is_empty());
                if sentence.len() > WORDS_MAX {
                    let (path, no) = (self.path.display(), paragraph[0].0);
                    self.long.push(format!("{path}:{no}: {} words: {}", sentence.len(), sentence.join(" ")));
                }
                sentence.clear();
            }
        }
    }
}

/// The text of `- text`, `1. text`, or a rule such as `S1. text`. Other lines as they are.
fn without_mark(line: &str) -> &str {
    let Some((mark, words)) = line.split_once(' ') else { return line };
    let number = mark.strip_suffix('.').map(|mark| mark.trim_start_matches(|c: char| c.is_ascii_uppercase()));
    let is_mark = mark == "-" || number.is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()));
    if is_mark { words } else { line }
}

fn ends_sentence(word: &str, next: &str) -> bool {
    let word = word.trim_end_matches([')', ']', '"', '*', '_']);
    match word.chars().last() {
        Some('.') => !["e.g.", "i.e.", "cf."].contains(&word.trim_start_matches('(')),
        Some('?' | '!') => true,
        Some(':') => next.trim_start_matches(['[', '(', '"', '*', '_']).starts_with(char::is_uppercase),
        _ => false,
    }
}

/// A capital letter for each span of code, and no addresses.
fn without_code(text: &str) -> String {
    let (mut plain, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(['`', ']']) {
        let (before, here) = rest.split_at(at);
        plain.push_str(before);
        let (mark, close) = if here.starts_with('`') { ("X", '`') } else { ("]", ')') };
        plain.push_str(mark);
        let has_more = mark == "X" || here[1..].starts_with('(');
        let end = here[1..].find(close).filter(|_| has_more).map_or(1, |end| end + 2);
        rest = &here[end..];
    }
    plain + rest
}

#[test]
fn sentences_are_found_and_counted() {
    let check = |text: &str, count: usize, long: usize| {
        let mut page = Sentences::of(Path::new("page"));
        for (no, line) in text.lines().enumerate() {
            page.line(no + 1, 0, line);
        }
        page.end();
        assert_eq!((page.count, page.long.len()), (count, long), "{text}");
    };
    check("One. Two words (see\n[`a b`](http://x.y z)). 3 is a number: It ends. So: this goes on, e.g. here.", 5, 0);
    check("- one\n- two\n\n1. three\nS1. four\n# A heading\n| a cell |\n```\ncode. more\n```\nfive", 5, 0);
    check(&"word ".repeat(30), 1, 0);
    check(&"word ".repeat(31), 1, 1);
    check(&format!("{}\n{}", "word ".repeat(16), "word; ".repeat(15)), 1, 1);
    check(&format!("- Before: {}", "word ".repeat(31)), 0, 0);
    check(&format!("{}`{}`", "word ".repeat(29), "code ".repeat(9)), 1, 0);
}
