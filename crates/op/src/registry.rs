//! Which operation has which id.

use crate::{DuplicateOperation, Operation, UnknownOperation};
use ledgerstone_page::OpId;

/// Operations by id: filled when an environment is opened, fixed afterwards.
#[derive(Default)]
pub struct Registry {
    // Indexed by id, so that an update finds its operation by one load.
    by_id: Vec<Option<Box<dyn Operation>>>,
}

impl Registry {
    /// None at all.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// Adds an operation.
    ///
    /// # Errors
    /// If its id is taken; nothing has changed.
    pub fn register(&mut self, operation: Box<dyn Operation>) -> Result<(), DuplicateOperation> {
        let op = operation.id();
        let index = op.0 as usize;
        if self.by_id.len() <= index {
            self.by_id.resize_with(index + 1, || None);
        }
        match &mut self.by_id[index] {
            Some(first) => Err(DuplicateOperation { op, first: first.name(), second: operation.name() }),
            empty => {
                *empty = Some(operation);
                Ok(())
            }
        }
    }

    /// The operation with this id.
    ///
    /// # Errors
    /// If there is none.
    #[inline]
    pub fn get(&self, op: OpId) -> Result<&dyn Operation, UnknownOperation> {
        match self.by_id.get(op.0 as usize) {
            Some(Some(operation)) => Ok(&**operation),
            _ => Err(UnknownOperation { op }),
        }
    }

    /// All, by ascending id.
    pub fn iter(&self) -> impl Iterator<Item = &dyn Operation> {
        self.by_id.iter().flatten().map(|operation| &**operation)
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
        assert_eq!((twice.op, twice.first, twice.second), (OpId(33), "b", "other"));
        assert_eq!(ops.get(OpId(33)).unwrap().name(), "b");
        assert_eq!(ops.get(OpId(34)).err(), Some(UnknownOperation { op: OpId(34) }));
        assert_eq!(ops.get(OpId(u16::MAX)).err(), Some(UnknownOperation { op: OpId(u16::MAX) }));
        assert_eq!(ops.iter().map(|op| op.name()).collect::<String>(), "abc");
    }
}
