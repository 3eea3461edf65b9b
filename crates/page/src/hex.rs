//! Bytes as hexadecimal digits.

use std::fmt;

/// Shows bytes as hexadecimal digits, two for each byte.
///
/// ```
/// assert_eq!(ledgerstone_page::Hex(&[0, 0xff]).to_string(), "00ff");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
