//! The contract of an operation, and the registry
