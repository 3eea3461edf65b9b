//! Bytes that survive, and disks that fail on purpose
