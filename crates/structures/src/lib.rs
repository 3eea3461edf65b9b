//! B-link tree and blobs, written as a user would write them
