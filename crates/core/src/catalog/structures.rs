//! The structures that a program has registered, checked and put beside our own.

use ledgerstone_region::ByNumber;
use std::fmt;
use std::sync::Arc;

use ledgerstone_disk::quoted;
use ledgerstone_op::Registry;
use ledgerstone_page::{LayoutId, LayoutTaken, Layouts, OpId, PageId};
use ledgerstone_structures::PagesOf;
use ledgerstone_txn::{Engine, LogicalUndo, Txn, TxnError};

use super::structure::{Structure, StructureId};
use crate::Error;

/// Structures by number. Cheap to clone.
#[derive(Clone, Default)]
pub struct Extensions {
    structures: Vec<Arc<dyn Structure>>,
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.structures.iter().map(|structure| structure.name())).finish()
    }
}

impl Extensions {
    /// Registers one.
    pub fn add(&mut self, structure: Arc<dyn Structure>) {
        self.structures.push(structure);
    }

    /// The one of this number.
    #[must_use]
    pub fn get(&self, id: StructureId) -> Option<&Arc<dyn Structure>> {
        self.structures.iter().find(|structure| structure.id() == id)
    }

    /// What there is of them, a line for each structure, operation and layout.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for structure in &self.structures {
            let of = structure.name();
            names.push(format!("structure {} {}", structure.id().0, quoted(of)));
            names.extend(
                structure.operations().iter().map(|op| format!("{} {} of {}", op.id(), quoted(op.name()), quoted(of))),
            );
            names.extend(
                structure
                    .layouts()
                    .iter()
                    .map(|layout| format!("{} {} of {}", layout.id(), quoted(layout.name()), quoted(of))),
            );
        }
        names
    }

    /// Adds their operations to ours.
    pub fn register_operations(&self, ops: &mut Registry) -> Result<(), Error> {
        let mut names = ByNumber::new();
        for structure in &self.structures {
            let bad = |what| Error::BadStructure { structure: structure.name(), what };
            if let Some(other) = names.insert(structure.id().0, structure.name()) {
                return Err(bad(format!("its number {} is that of {}", structure.id().0, quoted(other))));
            }
            for operation in structure.operations() {
                let (op, first) = (operation.id(), OpId::USERS_FIRST);
                if op < first {
                    return Err(bad(format!("{op} ({}) is ours: users' begin at {first}", operation.name())));
                }
                ops.register(operation).map_err(|taken| bad(taken.to_string()))?;
            }
        }
        Ok(())
    }

    /// Their layouts, beside ours.
    pub fn layouts(&self) -> Result<Layouts, Error> {
        let mut layouts = Layouts::basic();
        let taken = |taken: LayoutTaken| Error::BadStructure { structure: "b-tree", what: taken.to_string() };
        ledgerstone_structures::register_layouts(&mut layouts).map_err(taken)?;
        for structure in &self.structures {
            let bad = |what| Error::BadStructure { structure: structure.name(), what };
            for layout in structure.layouts() {
                let (id, first) = (layout.id(), LayoutId::USERS_FIRST);
                if id < first {
                    return Err(bad(format!("{id} ({}) is ours: users' begin at {first}", layout.name())));
                }
                layouts.register(layout).map_err(|taken| bad(taken.to_string()))?;
            }
        }
        Ok(layouts)
    }

    /// Registers who undoes what. Before the first rollback.
    pub fn register_undos(&self, engine: &Engine) {
        for structure in &self.structures {
            let undo: Arc<dyn LogicalUndo> = Arc::new(UndoBy(Arc::clone(structure)));
            for operation in structure.operations() {
                engine.register_undo(operation.id(), Arc::clone(&undo));
            }
        }
    }
}

impl PagesOf for Extensions {
    fn pages_of(&self, engine: &Arc<Engine>, structure: u16, root: PageId) -> Result<Option<Vec<PageId>>, TxnError> {
        let Some(structure) = self.get(StructureId(structure)) else { return Ok(None) };
        unless_it_panics(engine, &**structure, "pages", || structure.pages(engine, root)).map(Some)
    }
}

struct UndoBy(Arc<dyn Structure>);

impl LogicalUndo for UndoBy {
    fn undo(&self, txn: &mut Txn, op: OpId, args: &[u8]) -> Result<(), TxnError> {
        let engine = txn.engine_share().clone();
        unless_it_panics(&engine, &*self.0, "undo", || self.0.undo(txn, op, args))
    }
}

/// Makes an error of a panic: the housekeeper goes on, a rollback fails the environment in order.
fn unless_it_panics<T>(
    engine: &Engine,
    structure: &dyn Structure,
    method: &'static str,
    f: impl FnOnce() -> Result<T, TxnError>,
) -> Result<T, TxnError> {
    let panicked = TxnError::Panicked { structure: structure.name(), method };
    engine.unless_it_panics(f).unwrap_or(Err(panicked))
}

/// What is said where the catalog names a structure that is not registered.
#[must_use]
pub fn unknown(name: &str, structure: StructureId) -> Error {
    let what = format!("{} is an instance of structure {}, which is not registered", quoted(name), structure.0);
    Error::UnknownOperation { what }
}
