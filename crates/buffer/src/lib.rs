//! Pages in memory, and when they go out
