//! Reports for people: in the terminal, as a page, two side by side.

mod number;
mod terminal;

pub use number::{quantity, value_words};
pub use terminal::terminal;
