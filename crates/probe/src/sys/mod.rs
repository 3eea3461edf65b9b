//! System calls and instructions that no safe wrapper has. All unsafe code of the crate, each file with one kind.
//!
//! What leaves this folder is safe to call with any arguments. Experiments forbid unsafe code.
//!
//! | file | what |
//! | --- | --- |
//! | `signal` | heeding SIGINT and its like |
//! | `usage` | processor time, context switches, address space left |
//! | `map` | memory mappings whose bytes others may change |
//! | `child` | a forked process that only makes system calls |
//! | `file` | extents, dirty and cached pages, ranges, atomic writes, allocation |
//! | `pthread` | the C library's locks in shared memory |
//! | `file_lock` | byte-range locks |
//! | `loop_device` | a block device over a file |
//! | `fiber` | a stack switch in user mode |
//! | `dynamic` | a call into a dynamic library |
//! | `queue` | POSIX and System V message queues |
//! | `ring` | io_uring |
//! | `allowed` | what is found out by trying |
//! | `aligned` | memory for direct I/O |
#![allow(unsafe_code)]

pub(crate) mod aligned;
pub(crate) mod allowed;
pub(crate) mod child;
pub(crate) mod dynamic;
pub(crate) mod fiber;
pub(crate) mod file;
pub(crate) mod file_lock;
pub(crate) mod loop_device;
pub(crate) mod map;
pub(crate) mod pthread;
pub(crate) mod queue;
pub(crate) mod ring;
pub(crate) mod signal;
pub(crate) mod usage;
