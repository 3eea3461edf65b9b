//! Words of a command line, and bytes as words.
//!
//! ```text
//! bare        any letters but blanks, not beginning with a quote: text
//! 'text'      the text between the quotes as it is
//! "text"      the same, with \n \t \r \0 \\ \" and \xNN for a byte
//! x'00ff'     bytes in hexadecimal digits
//! u32:7  u64:7  i64:-7    a number as bytes whose order is the numbers' order, as typed tables store keys
//! # to the end of the line is a comment, where a word could begin
//! ;           ends a command, before a blank or the end of the line
//! ```
//! Q1. What [`quote`] writes, [`split`] reads back as one word with the same bytes.
//! Q2. A keyword is a bare word: a table named `from` is written `'from'` where a keyword could stand.
//! Q3. A quote that is open at the end of a line goes on in the next one, wherever lines come from.
//! Q4. In `field:1:;` the `;` is what separates the fields of a value, and ends nothing.
//!
//! This file knows bytes and no commands.

use ledgerstone::{Quoted, is_obeyed, quoted};
use thiserror::Error;

use crate::text::from_hex;

/// A word of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// What it means.
    pub bytes: Vec<u8>,
    /// Written without quotes or type, so that it can be a keyword.
    pub is_bare: bool,
    /// Bare or in single quotes: text, which is a number where the table's type says so. Other words are their bytes.
    pub is_text: bool,
}

/// Why a line cannot be taken apart.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum WordError {
    /// The line ends inside quotes.
    #[error("the quote opened at letter {0} is never closed")]
    Open(usize),
    /// Something other than a blank follows a closing quote.
    #[error("put a blank after the quote that closes at letter {0}")]
    NoBlank(usize),
    /// A backslash in double quotes followed by something that has no meaning there.
    #[error("\\{0} means nothing in double quotes; write \\\\ for a backslash")]
    Escape(String),
    /// The text of a hexadecimal or typed word.
    #[error("{0}")]
    Typed(String),
}

/// The commands of a line, which end with `;` (Q4). What is wrong in one leaves the others as they are.
#[must_use]
pub fn commands(line: &str) -> Vec<&str> {
    let (mut commands, mut start, mut word, mut at) = (Vec::new(), 0, 0, At::Between);
    for (no, letter) in line.char_indices() {
        let is_last = || line[no + letter.len_utf8()..].chars().next().is_none_or(char::is_whitespace);
        if letter == ';' && at.is_outside() && is_last() && !is_separated_by(&line[word..no]) {
            commands.push(&line[start..no]);
            (start, at) = (no + 1, At::Between);
            continue;
        }
        if at == At::Between {
            word = no;
        }
        at = at.behind(letter);
    }
    commands.push(&line[start..]);
    commands
}

/// Whether the next letter is what separates fields (Q4).
fn is_separated_by(word: &str) -> bool {
    let number = word.strip_prefix("field:").and_then(|rest| rest.strip_suffix(':'));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
}

/// Takes a command apart.
///
/// # Errors
/// See [`WordError`].
pub fn split(line: &str) -> Result<Vec<Word>, WordError> {
    let letters: Vec<char> = line.chars().collect();
    let (mut words, mut at) = (Vec::new(), 0);
    loop {
        while letters.get(at).is_some_and(|c| c.is_whitespace()) {
            at += 1;
        }
        let (quote_at, is_hex) = match letters.get(at..) {
            None | Some([] | ['#', ..]) => return Ok(words),
            Some(['x' | 'X', '\'', ..]) => (at + 1, true),
            _ => (at, false),
        };
        match letters[quote_at] {
            quote @ ('\'' | '"') => {
                let (bytes, end) = read_quoted(&letters, quote_at, quote)?;
                if letters.get(end).is_some_and(|c| !c.is_whitespace()) {
                    return Err(WordError::NoBlank(end));
                }
                let bytes =
                    if is_hex { from_hex(&String::from_utf8_lossy(&bytes)).map_err(WordError::Typed)? } else { bytes };
                words.push(Word { bytes, is_bare: false, is_text: quote == '\'' && !is_hex });
                at = end;
            }
            _ => {
                let end = letters[at..].iter().position(|c| c.is_whitespace()).map_or(letters.len(), |n| at + n);
                words.push(bare(letters[at..end].iter().collect())?);
                at = end;
            }
        }
    }
}

/// Whether a quote is open at the end of a line, so that the next line belongs to the same command.
///
/// Takes the lines of a command one after the other, and looks at nothing but quotes. So a command that [`split`]
/// refuses ends where its quotes do, too, and no line of a quoted text is taken for a command (Q3).
#[derive(Debug, Default)]
pub struct Quotes {
    at: At,
}

/// Where in a line.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Where a word could begin.
    #[default]
    Between,
    /// Behind an x where a word could begin.
    X,
    Bare,
    Comment,
    Quoted(char),
    /// Behind a backslash in double quotes.
    Escape,
}

impl At {
    fn is_outside(self) -> bool {
        matches!(self, At::Between | At::X | At::Bare)
    }

    fn behind(self, letter: char) -> At {
        match (self, letter) {
            (At::Comment, _) => At::Comment,
            (At::Escape, _) => At::Quoted('"'),
            (At::Quoted('"'), '\\') => At::Escape,
            (At::Quoted(quote), letter) if letter == quote => At::Bare,
            (At::Quoted(quote), _) => At::Quoted(quote),
            (At::Between | At::X, '\'') | (At::Between, '"') => At::Quoted(letter),
            (At::Between, '#') => At::Comment,
            (At::Between, 'x' | 'X') => At::X,
            (At::Between | At::X | At::Bare, letter) if letter.is_whitespace() => At::Between,
            (At::Between | At::X | At::Bare, _) => At::Bare,
        }
    }
}

impl Quotes {
    /// Takes the next line; whether a quote is open behind it.
    pub fn is_open_after(&mut self, line: &str) -> bool {
        self.at = line.chars().fold(self.at, At::behind);
        let is_open = matches!(self.at, At::Quoted(_) | At::Escape);
        if !is_open {
            self.at = At::Between;
        }
        is_open
    }
}

/// That [`Quotes`] and [`split`] say the same of the last command of a line, and nothing is open in the others.
pub(super) fn assert_quotes_agree(line: &str) {
    let mut commands = commands(line);
    let last = commands.pop().unwrap_or_default();
    let is_open = Quotes::default().is_open_after(line);
    match split(last) {
        Ok(_) => assert!(!is_open, "{line:?}"),
        Err(WordError::Open(_)) => assert!(is_open, "{line:?}"),
        Err(_) => {} // It may be open behind what is wrong.
    }
    for before in commands {
        assert!(!matches!(split(before), Err(WordError::Open(_))), "{before:?} in {line:?}");
    }
}

/// What stands between quotes, and where the line goes on.
fn read_quoted(letters: &[char], open: usize, quote: char) -> Result<(Vec<u8>, usize), WordError> {
    let (mut bytes, mut at) = (Vec::new(), open + 1);
    let next = |at: &mut usize| {
        *at += 1;
        letters.get(*at - 1).copied().ok_or(WordError::Open(open + 1))
    };
    loop {
        let letter = next(&mut at)?;
        if letter == quote {
            return Ok((bytes, at));
        }
        if letter != '\\' || quote == '\'' {
            bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        match next(&mut at)? {
            'n' => bytes.push(b'\n'),
            't' => bytes.push(b'\t'),
            'r' => bytes.push(b'\r'),
            '0' => bytes.push(0),
            '\\' => bytes.push(b'\\'),
            '"' => bytes.push(b'"'),
            'x' => {
                let first = next(&mut at)?;
                if first == quote {
                    return Err(WordError::Escape(format!("x{first}"))); // It is closed here.
                }
                let digits = [first, next(&mut at)?];
                match digits.map(|digit| digit.to_digit(16)) {
                    [Some(high), Some(low)] => bytes.push((high << 4 | low) as u8),
                    _ => return Err(WordError::Escape(format!("x{}{}", digits[0], digits[1]))),
                }
            }
            other => return Err(WordError::Escape(other.to_string())),
        }
    }
}

fn bare(text: String) -> Result<Word, WordError> {
    let typed = |what: &str, range: &str| {
        WordError::Typed(format!(
            "{} is not a number of type {what} ({range}); quote it to mean the text",
            quoted(&text)
        ))
    };
    let bytes = match text.split_once(':') {
        Some(("u32", number)) => {
            number.parse::<u32>().map_err(|_| typed("u32", "0 to 4294967295"))?.to_be_bytes().to_vec()
        }
        Some(("u64", number)) => {
            number.parse::<u64>().map_err(|_| typed("u64", "0 to 18446744073709551615"))?.to_be_bytes().to_vec()
        }
        Some(("i64", number)) => {
            let number: i64 =
                number.parse().map_err(|_| typed("i64", "-9223372036854775808 to 9223372036854775807"))?;
            (number ^ i64::MIN).to_be_bytes().to_vec()
        }
        _ => return Ok(Word { bytes: text.into_bytes(), is_bare: true, is_text: true }),
    };
    Ok(Word { bytes, is_bare: false, is_text: false })
}

/// Bytes as a word: bare where that is possible, otherwise in double quotes (Q1).
#[must_use]
pub fn quote(bytes: &[u8]) -> String {
    if let Ok(text) = str::from_utf8(bytes)
        && is_bare(text)
    {
        return text.to_owned();
    }
    Quoted(bytes).to_string()
}

/// Whether a text can stand without quotes, also beside an equals sign.
fn is_bare(text: &str) -> bool {
    let is_plain = |c: char| !c.is_whitespace() && !is_obeyed(c) && !matches!(c, '\'' | '"' | '\\' | '=');
    let is_typed = ["u32:", "u64:", "i64:"].iter().any(|prefix| text.starts_with(prefix));
    let has_end = text.strip_suffix(';').is_some_and(|rest| !is_separated_by(rest));
    !text.is_empty() && text.chars().all(is_plain) && !text.starts_with('#') && !is_typed && !has_end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, words: &[&[u8]]) {
        let split = split(line).unwrap();
        assert_eq!(split.iter().map(|word| word.bytes.as_slice()).collect::<Vec<_>>(), words, "{line}");
    }

    #[test]
    fn words_are_bare_quoted_hexadecimal_or_typed() {
        check("put t  key\tvalue ", &[b"put", b"t", b"key", b"value"]);
        check(r#"'a b' "say \"no\"\n" "\x00\xff" don't"#, &[b"a b", b"say \"no\"\n", b"\x00\xff", b"don't"]);
        check("x'00ff' X'' u32:258 u64:1", &[b"\x00\xff", b"", &[0, 0, 1, 2], &[0, 0, 0, 0, 0, 0, 0, 1]]);
        check("i64:-1 i64:0", &[&[0x7f, 255, 255, 255, 255, 255, 255, 255], &[0x80, 0, 0, 0, 0, 0, 0, 0]]);
        check("get t a#b # a comment", &[b"get", b"t", b"a#b"]);
        check("# only a comment", &[]);
        check("'#' ''", &[b"#", b""]);
    }

    #[test]
    fn a_line_may_have_several_commands() {
        let check = |line: &str, wanted: &[&str]| assert_eq!(commands(line), wanted, "{line}");
        check("begin; put t a 1 ; commit", &["begin", " put t a 1 ", " commit"]);
        check("put 'a b';", &["put 'a b'", ""]);
        check(r#"put x'00' "a; b"; get t ';'"#, &[r#"put x'00' "a; b""#, " get t ';'"]);
        check("put t a;b c;\tget t a;b", &["put t a;b c", "\tget t a;b"]);
        check("get t a # b; c", &["get t a # b; c"]);
        check(
            "index t i field:1:; unique; index t j field:2:;",
            &["index t i field:1:; unique", " index t j field:2:;"],
        );
        check(
            "index t i field:1:;; index t j field:2; index t k field::; x",
            &["index t i field:1:;", " index t j field:2", " index t k field::", " x"],
        );
        check("put t 'a';b 'c; d\ne';\u{a0}", &["put t 'a';b 'c; d\ne'", "\u{a0}"]);
        check("", &[""]);
    }

    #[test]
    fn what_is_no_word_is_named() {
        let check = |line: &str, said: &str| {
            let error = split(line).unwrap_err().to_string();
            assert!(error.contains(said), "{line}: {error}");
        };
        check("a 'open", "opened at letter 3 is never closed");
        check("\"open\\", "never closed");
        check("'a'b", "put a blank after");
        check("'a';b", "put a blank after");
        check(r#""\q""#, r"\q means nothing");
        check(r#""\xg0""#, r"\xg0 means nothing");
        check(r#""\x""#, r#"\x" means nothing"#);
        check("x'0'", "even number");
        check("u32:-1", "is not a number of type u32");
        check("i64:", "is not a number of type i64");
    }

    #[test]
    fn a_quote_is_open_exactly_where_a_line_ends_inside_of_it() {
        let check = |lines: &[&str], open: &[bool]| {
            let mut quotes = Quotes::default();
            let seen: Vec<bool> = lines.iter().map(|line| quotes.is_open_after(line)).collect();
            assert_eq!(seen, open, "{lines:?}");
        };
        check(&["put t k 'a\n", "drop t\n", "b'\n", "get t k"], &[true, true, false, false]);
        check(&["put t k \"a \\\" b\n", "\\\\\" # it's\n", "# it's\n", "don't\n"], &[true, false, false, false]);
        check(&["put t x'00\n", "ff' X'\n", "'", "x\"'\n"], &[true, true, false, false]);
        // What cannot be taken apart ends where its quotes do.
        check(&["put t k \"\\q\n", "drop t\n", "\"\n"], &[true, true, false]);
        check(&["put t 'it's 'mine\n", "'"], &[true, false]);
        check(&["put t u32:x 'a\n", "'"], &[true, false]);
        // It agrees with what takes the line apart.
        let pieces = ["'", "\"", "\\", "x", " ", "\n", "#", ";", "n", "\u{a0}", "a", "x'00"];
        for no in 0..20_000_usize {
            let digits = (0..8).map(|at| pieces[no.wrapping_mul(2_654_435_761) / 12_usize.pow(at) % 12]);
            let line: String = digits.collect();
            assert_quotes_agree(&line);
        }
    }

    #[test]
    fn what_is_quoted_reads_back_as_one_word() {
        let samples: [&[u8]; 15] = [
            b"a;",
            b"field:1:;",
            b"field:1;",
            b"",
            b"plain",
            b"two words",
            b"#",
            b"u32:7",
            b"x'00'",
            b"a=b",
            b"\\",
            b"\"",
            b"\x00\xff",
            "Ä\u{a0}\u{2028}".as_bytes(),
            b"'",
        ];
        for sample in samples {
            let line = quote(sample);
            assert_eq!(commands(&line), [&line]);
            check(&line, &[sample]);
        }
    }
}
