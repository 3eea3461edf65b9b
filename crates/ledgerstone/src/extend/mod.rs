//! For authors of structures: page layouts, operations and logical undos of your own, beside those of the library
//! (Lemon, sections 3 and 4).
//!
//! A [`Structure`] brings its operations and layouts. Register it with
//! [`Options::structure`](crate::Options::structure) before you open the environment. Its instances have names in the
//! catalog. [`Transaction::create_structure`](crate::Transaction::create_structure) makes an instance, and
//! [`Transaction::structure`](crate::Transaction::structure) opens it. [`StructureHandle::enter`] lends the running
//! [`Txn`], with which the instance is changed.
//!
//! An instance is then like a table: it commits and aborts with the transaction, survives crashes, and is verified and
//! freed. `docs/operations.md` is the guide. Two structures that use all of this are in `examples/`.
//!
//! These are the engine's own parts. The B-link tree is written with nothing else.
//!
//! | to | there is |
//! | --- | --- |
//! | change a page | [`Operation`], [`PageMut`], [`Undo`], [`Txn::update`] |
//! | change several at once, for good | [`Txn::group`], [`Part`], [`Txn::nested_top`] |
//! | take back what has moved | [`Structure::undo`] |
//! | lock | [`Txn::lock_table`], [`Txn::lock_key`], [`KeyLock`], [`Mode`] |
//! | exclude other threads while an instance changes | [`Instance::latch`], [`StructureLatch`] |
//! | get pages | [`Instance::cache`], [`Instance::space`], [`OP_SPACE_SET`], [`OP_SPACE_CLEAR`] |
//! | describe bytes | [`Layout`], [`header`], [`Corrupt`] |
//! | keep records on a page | [`slotted`]; [`fixed`] and [`versioned`] with the operations in [`layouts`] |
//! | test an operation | [`kit`] |

mod handle;

pub use handle::{Instance, StructureHandle};

pub use ledgerstone_core::catalog::{Structure, StructureId};

pub use ledgerstone_buffer::{BufferError, Cache, ExclusivePage, OptimisticPage, SharedPage};
pub use ledgerstone_lock::{LockName, Mode};
pub use ledgerstone_op::{OpError, Operation, PageMut, PageOperation, Redo, Registry, Undo, Unfit, kit};
pub use ledgerstone_page::{Corrupt, HEADER_BYTES, LayoutId, OpId, PageId, TableId, header};
pub use ledgerstone_page::{Layout, Layouts, fixed, raw, slotted, versioned};
pub use ledgerstone_region::{PageBuf, Words, WordsMut};
pub use ledgerstone_space::{OP_SPACE_CLEAR, OP_SPACE_SET, Space, SpaceError};
pub use ledgerstone_structures::layouts;
pub use ledgerstone_txn::{
    Engine, KeyLock, Part, RECORD_OVERHEAD_BYTES, StructureGuard, StructureLatch, Txn, TxnError, key_hash,
};
