//! Operations as values of one type, for a crate that has a table of them.

use ledgerstone_page::{OpId, PageId};

use crate::{DuplicateOperation, OpError, Operation, PageMut, Registry, Undo};

/// Why a page does not fit an operation, for [`OpError::Unfit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unfit(pub &'static str);

/// What an operation does with the page. `None` means that the arguments cannot be read.
pub type Redo = fn(&mut PageMut<'_>, &[u8]) -> Option<Result<(), Unfit>>;

/// One operation, in a table of them.
///
/// ```
/// use ledgerstone_op::{PageOperation, Undo, Unfit};
/// use ledgerstone_page::{OpId, raw};
///
/// const OPERATIONS: [PageOperation; 1] = [PageOperation {
///     id: OpId(1024),
///     name: "counter.add",
///     redo: |page, args| {
///         let add = i64::from_le_bytes(args.try_into().ok()?);
///         let Some(sum) = page.words().u64(raw::DATA_START).checked_add_signed(add) else {
///             return Some(Err(Unfit("a sum beyond 64 bits")));
///         };
///         page.put_u64(raw::DATA_START, sum);
///         Some(Ok(()))
///     },
///     print: |args| Some(format!("add {}", i64::from_le_bytes(args.try_into().ok()?))),
///     ..PageOperation::PLAIN
/// }];
/// # let mut ops = ledgerstone_op::Registry::new();
/// PageOperation::register(&OPERATIONS, &mut ops)?;
/// # Ok::<(), ledgerstone_op::DuplicateOperation>(())
/// ```
#[derive(Clone, Copy)]
pub struct PageOperation {
    /// See [`Operation::id`].
    pub id: OpId,
    /// See [`Operation::name`].
    pub name: &'static str,
    /// See [`Operation::formats`].
    pub formats: bool,
    /// See [`Operation::redo`].
    pub redo: Redo,
    /// See [`Operation::undo`].
    pub undo: fn(&[u8]) -> Undo,
    /// See [`Operation::is_undone_by_page`].
    pub is_undone_by_page: bool,
    /// See [`Operation::root`].
    pub root: fn(&[u8]) -> Option<PageId>,
    /// See [`Operation::print`]. `None` means that the arguments cannot be read.
    pub print: fn(&[u8]) -> Option<String>,
}

impl PageOperation {
    /// The defaults: an operation that changes nothing, formats nothing, and is never undone.
    pub const PLAIN: PageOperation = PageOperation {
        id: OpId(0),
        name: "",
        formats: false,
        redo: |_, _| Some(Ok(())),
        undo: |_| Undo::Nothing,
        is_undone_by_page: false,
        root: |_| None,
        print: |args| Some(format!("{} bytes", args.len())),
    };

    /// Registers a table of operations.
    ///
    /// # Errors
    /// An id is already taken. The operations before it are registered.
    pub fn register(table: &[PageOperation], ops: &mut Registry) -> Result<(), DuplicateOperation> {
        table.iter().try_for_each(|operation| ops.register(Box::new(*operation)))
    }
}

impl Operation for PageOperation {
    fn id(&self) -> OpId {
        self.id
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn formats(&self) -> bool {
        self.formats
    }

    fn redo(&self, page: &mut PageMut<'_>, args: &[u8]) -> Result<(), OpError> {
        match (self.redo)(page, args) {
            None => Err(OpError::BadArgs { op: self.id, len: args.len(), what: "not what the operation writes" }),
            Some(Err(Unfit(what))) => Err(OpError::Unfit { op: self.id, what }),
            Some(Ok(())) => Ok(()),
        }
    }

    fn undo(&self, args: &[u8]) -> Undo {
        (self.undo)(args)
    }

    fn is_undone_by_page(&self) -> bool {
        self.is_undone_by_page
    }

    fn root(&self, args: &[u8]) -> Option<PageId> {
        (self.root)(args)
    }

    fn print(&self, args: &[u8]) -> String {
        (self.print)(args).unwrap_or_else(|| format!("unreadable arguments of {} bytes", args.len()))
    }
}
