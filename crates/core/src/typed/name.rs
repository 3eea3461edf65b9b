//! Names of types, as the catalog holds them: what an encoding is called in every program and every version.
//!
//! N1. A name stands for an encoding, not for a Rust type: types whose bytes mean the same may share one, and a type
//!     whose bytes change gets another. The compiler's names of types would change with a module's name.
//! N2. A name is a constant, and is compared with the catalog's text without being written out: a table is opened in
//!     every transaction.

use std::fmt;

/// The name of a type of keys or values, which the catalog keeps with a table ([`Key::TYPE`](super::Key::TYPE),
/// [`Value::TYPE`](super::Value::TYPE)). At most 255 bytes when written out.
///
/// ```
/// use ledgerstone::typed::{Key, TypeName};
///
/// assert_eq!(<(u64, Option<String>)>::TYPE.to_string(), "(u64, option<string>)");
/// assert_eq!(TypeName::Named("shop.money").to_string(), "shop.money");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TypeName {
    /// A type by its name. The library's names are in lower case, without a dot or a colon. For your own types, put the
    /// name of your program before it.
    Named(&'static str),
    /// So many bytes: `bytes[16]`.
    Bytes(usize),
    /// An array of a type, with its length: `[u64; 4]`.
    Array(&'static TypeName, usize),
    /// A type made of others: `option<u64>`.
    Of(&'static str, &'static [TypeName]),
    /// Several, one behind the other: `(u64, string)`.
    Tuple(&'static [TypeName]),
}

impl fmt::Display for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, parts: &[TypeName]| {
            parts.iter().enumerate().try_for_each(|(no, part)| {
                f.write_str(if no == 0 { "" } else { ", " })?;
                part.fmt(f)
            })
        };
        match self {
            TypeName::Named(name) => f.write_str(name),
            TypeName::Bytes(len) => write!(f, "bytes[{len}]"),
            TypeName::Array(part, count) => write!(f, "[{part}; {count}]"),
            TypeName::Of(name, parts) => {
                write!(f, "{name}<")?;
                list(f, parts)?;
                f.write_str(">")
            }
            TypeName::Tuple(parts) => {
                f.write_str("(")?;
                list(f, parts)?;
                f.write_str(")")
            }
        }
    }
}

impl TypeName {
    /// Whether `text` is this name written out (N2).
    #[doc(hidden)] // For the crates of this workspace.
    pub fn is(&self, text: &str) -> bool {
        self.strip(text) == Some("")
    }

    /// Whether arrays of it are [`TypeName::Bytes`].
    pub(super) const fn is_u8(&self) -> bool {
        matches!(self, TypeName::Named(name) if matches!(name.as_bytes(), b"u8"))
    }

    /// Bytes of each value of this name if it is a number: arrays of them stand one behind the other. Whatever shares
    /// the name shares this, too.
    pub(super) const fn number_bytes(&self) -> Option<usize> {
        let TypeName::Named(name) = self else { return None };
        match name.as_bytes() {
            b"u8" | b"i8" => Some(1),
            b"u16" | b"i16" => Some(2),
            b"u32" | b"i32" | b"f32" => Some(4),
            b"u64" | b"i64" | b"f64" => Some(8),
            b"u128" | b"i128" => Some(16),
            _ => None,
        }
    }

    /// What follows this name at the beginning of `text`.
    fn strip<'t>(&self, text: &'t str) -> Option<&'t str> {
        let list = |text: &'t str, parts: &[TypeName]| {
            parts
                .iter()
                .enumerate()
                .try_fold(text, |text, (no, part)| part.strip(if no == 0 { text } else { text.strip_prefix(", ")? }))
        };
        match self {
            TypeName::Named(name) => text.strip_prefix(name),
            TypeName::Bytes(len) => {
                let (digits, rest) = text.strip_prefix("bytes[")?.split_once(']')?;
                (digits.parse() == Ok(*len)).then_some(rest)
            }
            TypeName::Array(part, count) => {
                let (digits, rest) = part.strip(text.strip_prefix('[')?)?.strip_prefix("; ")?.split_once(']')?;
                (digits.parse() == Ok(*count)).then_some(rest)
            }
            TypeName::Of(name, parts) => list(text.strip_prefix(name)?.strip_prefix('<')?, parts)?.strip_prefix('>'),
            TypeName::Tuple(parts) => list(text.strip_prefix('(')?, parts)?.strip_prefix(')'),
        }
    }
}

/// The types of a table's keys and values as the catalog names them, as text. `None` if the catalog names none, as for
/// a table that was made for byte strings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableTypes {
    /// The keys'.
    pub key: Option<String>,
    /// The values'.
    pub value: Option<String>,
}

impl TableTypes {
    /// Those of a typed table.
    #[must_use]
    pub fn of<K: super::Key, V: super::Value>() -> TableTypes {
        TableTypes { key: Some(K::TYPE.to_string()), value: Some(V::TYPE.to_string()) }
    }

    /// True if nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.key.is_none() && self.value.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Key, Value};
    use super::*;

    const ALL: [TypeName; 16] = [
        <u8 as Key>::TYPE,
        <u64 as Key>::TYPE,
        <i64 as Key>::TYPE,
        <String as Key>::TYPE,
        <Vec<u8> as Key>::TYPE,
        <[u8; 3] as Key>::TYPE,
        <() as Key>::TYPE,
        <Option<u64> as Key>::TYPE,
        <(u64, String) as Key>::TYPE,
        <((u64, bool), char) as Value>::TYPE,
        <(u64, bool, Option<[u8; 30]>) as Value>::TYPE,
        TypeName::Named("shop.u64"),
        <[u64; 3] as Key>::TYPE,
        <[Option<[u8; 2]>; 30] as Value>::TYPE,
        <std::time::SystemTime as Key>::TYPE,
        <std::time::Duration as Value>::TYPE,
    ];

    /// These names are in files: a change of one is a new format.
    #[test]
    fn the_names_are_what_the_files_hold() {
        let names: Vec<String> = ALL.iter().map(ToString::to_string).collect();
        let expected = "u8;u64;i64;string;bytes;bytes[3];();option<u64>;(u64, string);((u64, bool), char);\
                        (u64, bool, option<bytes[30]>);shop.u64;[u64; 3];[option<bytes[2]>; 30];time;duration";
        assert_eq!(names.join(";"), expected);
        assert_eq!(<f64 as Value>::TYPE.to_string(), "f64");
    }

    #[test]
    fn a_name_is_its_own_text_and_no_other() {
        for (a, name) in ALL.iter().enumerate() {
            for (b, other) in ALL.iter().enumerate() {
                assert_eq!(name.is(&other.to_string()), a == b, "{name} {other}");
            }
            assert!(!name.is(&format!("{name} ")) && !name.is(""));
        }
    }
}
