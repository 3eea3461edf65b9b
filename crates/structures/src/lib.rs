//! B-link tree and blobs. They change pages as a structure of a user does: with the operations, pages, latches and
//! locks that users get.
//!
//! | folder | its idea |
//! | --- | --- |
//! | `btree` | keys and values in order, serializable |
//! | `blob` | values larger than a leaf takes |
//! | `layouts` | operations on fixed and versioned pages |
//! | `to_free` | what has to be freed once a transaction has ended, or a crash has ended it |
//!
//! This crate does not know what a table is called, or where its root is stored.
#![forbid(unsafe_code)]

// The tests' stack of layers names this crate as its users do.
#[cfg(test)]
extern crate self as ledgerstone_structures;

pub mod blob;
pub mod btree;
mod difference;
mod error;
pub mod layouts;
#[cfg(test)]
mod op_cases;
mod scratch;
mod to_free;

use std::sync::Arc;

use ledgerstone_op::{DuplicateOperation, Registry};
use ledgerstone_page::{LayoutTaken, Layouts};
use ledgerstone_space::Space;
use ledgerstone_txn::Engine;

pub use blob::BLOB_BYTES_MAX as VALUE_BYTES_MAX;
pub use btree::{
    Direction, FoundValue, LoadedLeaf, Loader, Moved, Packed, Purged, Read, RecordChange, Scan, Side, Tree, TreeReport,
    loaded_leaf, record_change, tree_of_update,
};
pub use error::TreeError;
pub use to_free::{PagesOf, ToFree};

/// Registers the operations of this crate.
///
/// # Errors
/// An id is taken.
pub fn register(ops: &mut Registry) -> Result<(), DuplicateOperation> {
    btree::ops::register(ops)?;
    blob::register(ops)?;
    layouts::register(ops)
}

/// Registers the layouts of this crate, for checks and printing.
///
/// # Errors
/// An id is taken.
pub fn register_layouts(layouts: &mut Layouts) -> Result<(), LayoutTaken> {
    layouts.register(Box::new(btree::node_check::NodeLayout))?;
    layouts.register(Box::new(blob::BlobIndexLayout))?;
    layouts.register(Box::new(blob::BlobDataLayout))
}

/// Registers the logical undos of this crate. To be called before the first rollback, also that of a restart.
///
/// The engine then holds the space, which holds the engine. `Engine::clear_undos` breaks the circle when the
/// environment closes.
pub fn register_undos(engine: &Arc<Engine>, space: &Arc<Space>, to_free: &ToFree) {
    btree::register_undos(engine, space, to_free);
}
