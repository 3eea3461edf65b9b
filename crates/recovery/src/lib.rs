//! From a crash to a running system
