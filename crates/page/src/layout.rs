//! What a layout is: a way to use a page's bytes that can prove itself on bytes nobody vouches for.

use std::collections::BTreeMap;
use std::sync::Arc;

use ledgerstone_region::Words;

use crate::{Corrupt, LayoutId, header};

/// A way to use the bytes of a page. Ledgerstone's and users' own are registered alike.
pub trait Layout: Send + Sync {
    /// Its number, stored in the pages.
    fn id(&self) -> LayoutId;
    /// Its name, for people.
    fn name(&self) -> &'static str;
    /// Proves every invariant of the layout on any bytes at all, or says which is broken. Never panics.
    ///
    /// # Errors
    /// The first broken invariant.
    fn check(&self, page: Words<'_>) -> Result<(), Corrupt>;
    /// The page in words, for people. Never panics.
    fn print(&self, page: Words<'_>) -> String;
}

/// The layouts that a program knows.
#[derive(Default, Clone)]
pub struct Layouts {
    by_id: BTreeMap<LayoutId, Arc<dyn Layout>>,
}

impl Layouts {
    /// None yet.
    #[must_use]
    pub fn new() -> Layouts {
        Layouts::default()
    }

    /// Adds a layout; gives it back if its number is taken.
    ///
    /// # Errors
    /// The number is taken.
    pub fn register(&mut self, layout: Arc<dyn Layout>) -> Result<(), Arc<dyn Layout>> {
        if self.by_id.contains_key(&layout.id()) {
            return Err(layout);
        }
        self.by_id.insert(layout.id(), layout);
        Ok(())
    }

    /// The layout with this number.
    #[must_use]
    pub fn get(&self, id: LayoutId) -> Option<&Arc<dyn Layout>> {
        self.by_id.get(&id)
    }

    /// Checks a page by the layout that it names.
    ///
    /// # Errors
    /// The first broken invariant, or an unknown layout.
    pub fn check(&self, page: Words<'_>) -> Result<(), Corrupt> {
        let id = header::layout(page);
        match self.get(id) {
            Some(layout) => layout.check(page).map_err(|c| c.on(header::page_id(page))),
            None => Err(Corrupt::new("unknown layout", header::LAYOUT_AT, 0, u64::from(id.0)).on(header::page_id(page))),
        }
    }
}
