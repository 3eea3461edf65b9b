//! Who may touch what, and who waits for whom
