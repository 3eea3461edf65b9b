//! All operations that a program knows, by number.

use ledgerstone_page::OpId;

use crate::{DuplicateOperation, Operation, UnknownOperation};

/// Numbers below this are found by index, because Ledgerstone's own operations are on the hot path.
const DENSE: usize = 256;

/// Operations by number.
#[derive(Default)]
pub struct Registry {
    dense: Vec<Option<Box<dyn Operation>>>,
    sparse: Vec<Box<dyn Operation>>, // sorted by number
}

impl Registry {
    /// An empty registry.
    #[must_use]
    pub fn new() -> Registry {
        Registry { dense: (0..DENSE).map(|_| None).collect(), sparse: Vec::new() }
    }

    /// Adds an operation.
    ///
    /// # Errors
    /// The operation's number is already taken.
    pub fn register(&mut self, operation: Box<dyn Operation>) -> Result<(), DuplicateOperation> {
        let op = operation.id();
        if let Ok(other) = self.get(op) {
            return Err(DuplicateOperation { op, name: other.name() });
        }
        match self.dense.get_mut(usize::from(op.0)) {
            Some(place) => *place = Some(operation),
            None => {
                let at = self.sparse.partition_point(|o| o.id() < op);
                self.sparse.insert(at, operation);
            }
        }
        Ok(())
    }

    /// The operation with this number.
    ///
    /// # Errors
    /// No operation with this number is registered.
    #[inline]
    pub fn get(&self, op: OpId) -> Result<&dyn Operation, UnknownOperation> {
        match self.dense.get(usize::from(op.0)) {
            Some(place) => place.as_deref().ok_or(UnknownOperation { op }),
            None => self.get_sparse(op),
        }
    }

    fn get_sparse(&self, op: OpId) -> Result<&dyn Operation, UnknownOperation> {
        match self.sparse.binary_search_by_key(&op, |o| o.id()) {
            Ok(at) => Ok(&*self.sparse[at]),
            Err(_) => Err(UnknownOperation { op }),
        }
    }

    /// All operations, by number.
    pub fn iter(&self) -> impl Iterator<Item = &dyn Operation> {
        self.dense.iter().flatten().map(|o| &**o).chain(self.sparse.iter().map(|o| &**o))
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter().map(|operation| (operation.id().0, operation.name()))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpError, PageMut};

    struct Named(u16, &'static str);

    impl Operation for Named {
        fn id(&self) -> OpId {
            OpId(self.0)
        }
        fn name(&self) -> &'static str {
            self.1
        }
        fn redo(&self, _page: &mut PageMut<'_>, _args: &[u8]) -> Result<(), OpError> {
            Ok(())
        }
        fn print(&self, _args: &[u8]) -> String {
            String::new()
        }
    }

    #[test]
    fn an_id_is_given_out_once_and_iteration_is_sorted() {
        let mut ops = Registry::new();
        for (id, name) in [(1030, "c"), (16, "a"), (33, "b")] {
            ops.register(Box::new(Named(id, name))).unwrap();
        }
        let twice = ops.register(Box::new(Named(33, "other"))).unwrap_err();
        assert_eq!((twice.op, twice.name), (OpId(33), "b"));
        assert_eq!(ops.get(OpId(33)).unwrap().name(), "b");
        assert_eq!(ops.get(OpId(34)).err(), Some(UnknownOperation { op: OpId(34) }));
        assert_eq!(ops.get(OpId(u16::MAX)).err(), Some(UnknownOperation { op: OpId(u16::MAX) }));
        assert_eq!(ops.iter().map(|op| op.name()).collect::<String>(), "abc");
    }
}
