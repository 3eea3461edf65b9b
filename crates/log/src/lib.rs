//! One endless sequence of records
