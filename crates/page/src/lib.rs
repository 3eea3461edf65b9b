//! What the bytes of a page mean
