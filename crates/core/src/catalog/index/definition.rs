//! What an index is: a name, where its keys come from, and whether a key may be there twice.
//!
//! The text of [`IndexKeys`] is what the command line takes and what the catalog holds (`docs/format/index.md`).

use std::fmt;
use std::str::FromStr;

use ledgerstone_disk::quoted;

use crate::Error;

/// An index to create. See `Transaction::create_index`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexDef {
    pub(crate) name: String,
    pub(crate) keys: IndexKeys,
    pub(crate) is_unique: bool,
}

impl IndexDef {
    /// An index of this name, in which several records may have the same index key.
    #[must_use]
    pub fn new(name: impl Into<String>, keys: IndexKeys) -> IndexDef {
        IndexDef { name: name.into(), keys, is_unique: false }
    }

    /// The same, refusing a record whose index key another record has ([`Error::IndexKeyExists`]).
    #[must_use]
    pub fn unique(self) -> IndexDef {
        IndexDef { is_unique: true, ..self }
    }

    /// Its name, which no other index of the table has.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its keys come from.
    #[must_use]
    pub fn keys(&self) -> &IndexKeys {
        &self.keys
    }

    /// True if each index key belongs to one record only.
    #[must_use]
    pub fn is_unique(&self) -> bool {
        self.is_unique
    }
}

/// Where the keys of an index come from. All kinds except an extractor work in every process and on the command line,
/// because they need no code of the program.
///
/// A record in which nothing is found has no entry in the index. As text, the kinds are written `value`, `bytes:4..12`
/// and `bytes:4..`, `field:2` (tabs) and `field:2:;`, `json:city` and `json:/address/city`, `extractor:NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexKeys {
    /// The whole value.
    Value,
    /// Bytes of the value from an offset on, to another, exclusive, or to the end. Of a shorter value, those that are
    /// there.
    Bytes {
        /// The first.
        from: u32,
        /// The one behind the last.
        to: Option<u32>,
    },
    /// A field of a value whose fields are separated by a byte, as lines of TSV are.
    Field {
        /// Which one, from 1.
        number: u32,
        /// The byte between two.
        separator: u8,
    },
    /// A member of a value that is a JSON object, as `import` stores rows. If it begins with `/`, it is a JSON pointer.
    /// Strings, numbers and truth values are indexed, in this order, and each kind in its own order
    /// (`JsonKey`). Of an array, each element is indexed. The index key of a string is its text. It needs the
    /// feature `json`.
    Json(String),
    /// What the function returns that is registered with `Options::index_extractor`
    /// under this name.
    Extractor(String),
}

/// The separator of fields unless another one is named.
const TAB: u8 = b'\t';

/// What computing the keys of an index needs, beside the values.
#[doc(hidden)] // For the library, which keeps the indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeysNeed<'k> {
    /// Nothing.
    Nothing,
    /// The feature `json`.
    Json,
    /// The function that is registered under this name.
    Function(&'k str),
}

impl IndexKeys {
    /// What computing the keys needs.
    #[doc(hidden)] // For the library, which keeps the indexes.
    #[must_use]
    pub fn needs(&self) -> KeysNeed<'_> {
        match self {
            IndexKeys::Value | IndexKeys::Bytes { .. } | IndexKeys::Field { .. } => KeysNeed::Nothing,
            IndexKeys::Json(_) => KeysNeed::Json,
            IndexKeys::Extractor(name) => KeysNeed::Function(name),
        }
    }

    /// Calls `emit` with each index key of a record; for a registered function, and JSON without the feature, nothing.
    #[doc(hidden)] // For the library, which keeps the indexes.
    pub fn built_in(&self, value: &[u8], emit: &mut dyn FnMut(&[u8])) {
        match self {
            IndexKeys::Value => emit(value),
            IndexKeys::Bytes { from, to } => {
                let to = to.map_or(value.len(), |to| value.len().min(to as usize));
                match value.get(*from as usize..to) {
                    Some(bytes) if !bytes.is_empty() => emit(bytes),
                    _ => {}
                }
            }
            IndexKeys::Field { number, separator } => {
                let at = (*number as usize).saturating_sub(1);
                value.split(|byte| byte == separator).nth(at).into_iter().for_each(emit);
            }
            #[cfg(feature = "json")]
            IndexKeys::Json(member) => super::json::keys_of(value, member, emit),
            #[cfg(not(feature = "json"))]
            IndexKeys::Json(_) => {}
            IndexKeys::Extractor(_) => {}
        }
    }
}

impl fmt::Display for IndexKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IndexKeys::Value => f.write_str("value"),
            IndexKeys::Bytes { from, to: None } => write!(f, "bytes:{from}.."),
            IndexKeys::Bytes { from, to: Some(to) } => write!(f, "bytes:{from}..{to}"),
            IndexKeys::Field { number, separator: TAB } => write!(f, "field:{number}"),
            IndexKeys::Field { number, separator } if separator.is_ascii_graphic() => {
                write!(f, "field:{number}:{}", char::from(*separator))
            }
            IndexKeys::Field { number, separator } => write!(f, "field:{number}:0x{separator:02x}"),
            IndexKeys::Json(member) => write!(f, "json:{member}"),
            IndexKeys::Extractor(name) => write!(f, "extractor:{name}"),
        }
    }
}

impl FromStr for IndexKeys {
    type Err = Error;

    fn from_str(text: &str) -> Result<IndexKeys, Error> {
        let bad = || Error::BadIndex {
            what: format!(
                "{} does not say what to index by: write value, bytes:FROM..TO, field:NUMBER, \
                 field:NUMBER:SEPARATOR, json:MEMBER or extractor:NAME",
                quoted(text)
            ),
        };
        if text == "value" {
            return Ok(IndexKeys::Value);
        }
        let (kind, what) = text.split_once(':').ok_or_else(bad)?;
        Ok(match kind {
            "bytes" => {
                let (from, to) = what.split_once("..").ok_or_else(bad)?;
                let from = from.parse().map_err(|_| bad())?;
                let to = if to.is_empty() { None } else { Some(to.parse().map_err(|_| bad())?) };
                if to.is_some_and(|to: u32| to <= from) {
                    return Err(bad());
                }
                IndexKeys::Bytes { from, to }
            }
            "field" => {
                let (number, separator) = match what.split_once(':') {
                    None => (what, TAB),
                    Some((number, separator)) => (number, separator_of(separator).ok_or_else(bad)?),
                };
                let number = number.parse().ok().filter(|&number: &u32| number > 0).ok_or_else(bad)?;
                IndexKeys::Field { number, separator }
            }
            "json" if !what.is_empty() => IndexKeys::Json(what.to_string()),
            "extractor" if !what.is_empty() => IndexKeys::Extractor(what.to_string()),
            _ => return Err(bad()),
        })
    }
}

fn separator_of(text: &str) -> Option<u8> {
    match text.as_bytes() {
        [byte] if byte.is_ascii() => Some(*byte),
        [b'0', b'x', digits @ ..] if digits.len() == 2 && digits.iter().all(u8::is_ascii_hexdigit) => {
            u8::from_str_radix(&text[2..], 16).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys_of(keys: &str, value: &[u8]) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        let keys: IndexKeys = keys.parse().unwrap_or_else(|error| panic!("{keys}: {error}"));
        keys.built_in(value, &mut |key| found.push(key.to_vec()));
        found
    }

    #[test]
    fn each_kind_finds_its_keys() {
        let check = |keys: &str, value: &str, expected: &[&str]| {
            let expected: Vec<Vec<u8>> = expected.iter().map(|key| key.as_bytes().to_vec()).collect();
            assert_eq!(keys_of(keys, value.as_bytes()), expected, "{keys} of {value:?}");
        };
        check("value", "", &[""]);
        check("value", "abc", &["abc"]);
        check("bytes:1..3", "abcd", &["bc"]);
        check("bytes:1..3", "ab", &["b"]);
        check("bytes:1..3", "a", &[]);
        check("bytes:2..", "abcd", &["cd"]);
        check("bytes:9..", "abcd", &[]);
        check("field:1", "a\tb", &["a"]);
        check("field:2", "a\tb", &["b"]);
        check("field:3", "a\tb", &[]);
        check("field:2:;", "a;;c", &[""]);
        check("json:city", r#"{"city":"Bern","zip":3000}"#, &["Bern"]);
        check("json:/a/b", r#"{"a":{"b":"x"}}"#, &["x"]);
        check("json:tags", r#"{"tags":["x","y",null]}"#, &["x", "y"]);
        check("json:tags", r#"{"tags":null}"#, &[]);
        check("json:tags", "no JSON", &[]);
        check("extractor:mine", "abc", &[]);
    }

    #[test]
    fn the_text_of_a_kind_is_read_back_as_it() {
        for text in
            ["value", "bytes:0..8", "bytes:4..", "field:2", "field:2:,", "field:2:0x1f", "json:a:b", "extractor:x y"]
        {
            assert_eq!(text.parse::<IndexKeys>().map(|keys| keys.to_string()).ok().as_deref(), Some(text));
        }
        assert_eq!("field:2:0x09".parse::<IndexKeys>().map(|keys| keys.to_string()).ok().as_deref(), Some("field:2"));
    }

    #[test]
    fn what_is_no_kind_is_refused() {
        for text in [
            "",
            "values",
            "bytes:",
            "bytes:3",
            "bytes:3..3",
            "bytes:a..",
            "field:0",
            "field:",
            "field:1:ab",
            "field:1:",
            "json:",
            "extractor:",
            "bytes:1..99999999999",
            "field:1:0xzz",
            "field:1:0x+1",
            "other:x",
        ] {
            assert!(matches!(text.parse::<IndexKeys>(), Err(Error::BadIndex { .. })), "{text}");
        }
    }
}
