//! Reports for people: in the terminal, as a page, two side by side.

mod compare;
mod html;
mod number;
mod plot;
mod terminal;

pub use compare::compare;
pub use html::html;
pub use number::{quantity, value_words};
pub use terminal::terminal;

/// Control characters, and those that turn the direction of what follows, with which a text can look like another. The
/// engine has the same list in `disk`, which this crate does not use.
pub(crate) fn is_obeyed(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
