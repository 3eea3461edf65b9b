//! The contract of an operation, and the registry of operations. The crate has no operation of its own.
//!
//! An [`Operation`] is the only thing that changes a page. Normal work logs its arguments and calls its `redo`, and so
//! does a restart. Rollback and restart find it by its [`OpId`](ledgerstone_page::OpId) in a [`Registry`], without
//! knowing what it does. The structures of the engine and those of users are written against this crate alike.
//!
//! [`kit`] checks an operation for its author: redo is deterministic, undo inverts, and no bytes make it panic.
//!
//! ```
//! use ledgerstone_op::{OpError, Operation, PageMut, Registry, Undo, kit};
//! use ledgerstone_page::{OpId, PageId, raw};
//! use ledgerstone_region::PageBuf;
//!
//! /// Adds to the counter at the beginning of a raw page. The sum may wrap, so that subtracting always inverts it.
//! struct Add;
//!
//! impl Operation for Add {
//!     fn id(&self) -> OpId {
//!         OpId(1024)
//!     }
//!     fn name(&self) -> &'static str {
//!         "counter.add"
//!     }
//!     fn redo(&self, page: &mut PageMut<'_>, args: &[u8]) -> Result<(), OpError> {
//!         let Ok(add) = args.try_into().map(i64::from_le_bytes) else {
//!             return Err(OpError::BadArgs { op: self.id(), len: args.len(), what: "eight bytes are expected" });
//!         };
//!         let old = page.words().u64(raw::DATA_START);
//!         page.put_u64(raw::DATA_START, old.wrapping_add_signed(add));
//!         Ok(())
//!     }
//!     fn undo(&self, args: &[u8]) -> Undo {
//!         match args.try_into().map(i64::from_le_bytes) {
//!             Ok(add) => Undo::Page { op: self.id(), args: add.wrapping_neg().to_le_bytes().to_vec() },
//!             Err(_) => Undo::Nothing,
//!         }
//!     }
//!     fn print(&self, args: &[u8]) -> String {
//!         format!("add {args:02x?}")
//!     }
//! }
//!
//! let mut ops = Registry::new();
//! ops.register(Box::new(Add))?;
//!
//! let mut page = PageBuf::new(4096);
//! raw::format(&mut page.words_mut(), PageId(7), 0, PageId::NONE);
//! let case = kit::Case::new(OpId(1024), page, 5i64.to_le_bytes().to_vec());
//! kit::check_registry(&ops, &[case])?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod error;
pub mod kit;
mod operation;
mod page_mut;
mod page_operation;
mod registry;

pub use error::{DuplicateOperation, OpError, UnknownOperation};
pub use operation::{Operation, Undo};
pub use page_mut::PageMut;
pub use page_operation::{PageOperation, Redo, Unfit};
pub use registry::Registry;
