//! What errors are made of.

use std::fmt;

use ledgerstone_disk::quoted;
use thiserror::Error as ThisError;

/// Something in a settings file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The line, from 1.
    pub line: usize,
    /// The name as the file writes it. Empty if the line cannot be read at all.
    pub setting: String,
    /// What is wrong, and what is allowed.
    pub what: String,
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        if !self.setting.is_empty() {
            write!(f, "setting {}: ", self.setting)?;
        }
        f.write_str(&self.what)
    }
}

/// What differs between the types that a table was made with and those that it was opened with.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[error("table {} has {what} of type {stored}, not {asked}: {}", quoted(.table), self.advice())]
#[non_exhaustive]
pub struct TypeMismatch {
    /// The table.
    pub table: String,
    /// What has the wrong type: `keys`, `values`, or `keys in index "..."`.
    pub what: String,
    /// The type that the catalog names.
    pub stored: String,
    /// The type that was asked for.
    pub asked: String,
    /// The name of the index function that asks for the type. Empty where the table or the index was opened with it.
    pub extractor: String,
}

impl TypeMismatch {
    #[doc(hidden)] // For the library, which knows the tables.
    #[must_use]
    pub fn new(table: String, what: String, stored: String, asked: String, extractor: String) -> TypeMismatch {
        TypeMismatch { table, what, stored, asked, extractor }
    }

    /// What to do.
    fn advice(&self) -> String {
        match self.extractor.as_str() {
            "" => "open it with the types that it was made with, or as byte strings".into(),
            name => format!("the index function {name:?} is for other types; register one for those of the table"),
        }
    }
}
