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
