//! What a structure says about itself.

use std::sync::Arc;

use ledgerstone_op::Operation;
use ledgerstone_page::{Layout, Lsn, OpId, PageId};
use ledgerstone_txn::{Engine, Txn, TxnError};

/// Number of a structure, in the catalog of every environment that has an instance of it. It never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StructureId(pub u16);

/// A kind of structure, such as "counters": its operations, its layouts, and what the engine needs to know about its
/// instances.
///
/// Ids are on disk. The author chooses those of structures. Operations begin at [`OpId::USERS_FIRST`] (1024), and
/// layouts at `LayoutId::USERS_FIRST` (256). The meaning of an id never changes. An improved version gets another id.
///
/// The methods are called from any thread. During recovery there is no transaction but the one that is being rolled
/// back.
pub trait Structure: Send + Sync + 'static {
    /// Its number.
    fn id(&self) -> StructureId;

    /// A word for messages.
    fn name(&self) -> &'static str;

    /// Its operations. Asked for once, when the environment is opened.
    fn operations(&self) -> Vec<Box<dyn Operation>>;

    /// Its page layouts, by which `verify` checks its pages.
    fn layouts(&self) -> Vec<Box<dyn Layout>>;

    /// The operation that makes page `root` the root of a new instance, and its arguments. The operation is one that
    /// formats. `options` are those of `Transaction::create_structure`.
    fn format_root(&self, root: PageId, options: &[u8]) -> (OpId, Vec<u8>);

    /// Undoes one update whose operation has a logical undo (`Undo::Logical`), and
    /// whose place may have moved since. It calls [`Txn::update`] exactly once, which becomes the compensation record.
    /// It takes no locks.
    ///
    /// # Errors
    /// Any error fails the environment.
    fn undo(&self, txn: &mut Txn, op: OpId, args: &[u8]) -> Result<(), TxnError> {
        let _ = (txn, args);
        Err(TxnError::NoLogicalUndo { op, lsn: Lsn::NONE })
    }

    /// All pages of the instance with this root, the root included. Used to verify the instance, and to free it after a
    /// drop. The instance does not change meanwhile.
    ///
    /// # Errors
    /// A page cannot be read, or is not what it must be.
    fn pages(&self, engine: &Arc<Engine>, root: PageId) -> Result<Vec<PageId>, TxnError>;

    /// What is wrong with the instance, beyond what its layouts find on single pages. For `verify`. The instance does
    /// not change meanwhile.
    ///
    /// # Errors
    /// A page cannot be read.
    fn check(&self, engine: &Arc<Engine>, root: PageId) -> Result<Vec<String>, TxnError> {
        let _ = (engine, root);
        Ok(Vec::new())
    }
}
