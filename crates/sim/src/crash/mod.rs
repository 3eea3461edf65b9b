//! The crash harness: random transactions, a power failure, recovery, and a judge.
//!
//! | file | what |
//! | --- | --- |
//! | [`plan`] | what a round is going to do, drawn from one seed |
//! | [`client`] | does it, and writes down what it did and saw |
//! | [`round`] | power on, power off, and what is kept in between |
//! | [`model`] | the engine as it should be |
//! | `ground` | the simulated disk, or a raw store in a file of it |
//! | [`consumer`] | a reader of the change feed that goes on after every crash |
//! | [`tally`] | numbers in structures of users; [`cells`] is one of them |
//! | [`dump`] | a dump beside the clients, read back |
//! | [`doubt`] | transactions in doubt after a restart: are they the right ones, with their locks? Then they are decided |
//! | [`judge`] | is what recovery left allowed? |
//! | [`order`] | transactions one after the other, compared with what each saw |
//! | [`shrink`] | the smallest plan that still fails |

pub mod cells;
pub mod client;
pub mod consumer;
pub mod doubt;
pub mod dump;
pub(crate) mod ground;
pub mod judge;
pub mod model;
pub mod order;
pub mod plan;
pub mod round;
pub mod shrink;
pub mod tally;
