//! Which pages are free
