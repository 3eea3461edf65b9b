//! Is it what its levels promise? Serializable: Random transactions, what each saw, and the graph of who must come
//! before whom (Adya 1999).
//!
//! | file | what |
//! | --- | --- |
//! | [`history`] | what is written down: reads, writes, commits, with the times of each |
//! | [`workload`] | random transactions on a real engine that write it down |
//! | `restless` | what clients do to tables as wholes, and between transactions |
//! | `processes` | one environment opened several times, as by several processes |
//! | [`check`] | from a history to a graph, and from a cycle to an explanation |
//! | `levels` | what the weaker levels promise |
//! | [`graph`] | strongly connected components (Tarjan 1972), shortest cycles |

pub mod check;
pub mod graph;
pub mod history;
mod levels;
mod processes;
mod restless;
pub mod workload;
