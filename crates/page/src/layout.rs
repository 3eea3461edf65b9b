//! What a page layout must be able to do, and who has which id.
//!
//! The engine needs nothing of a layout: it moves pages as bytes. Layouts are for verification and for printing, where
//! somebody meets a page and has only its header to go by. Users register theirs beside ours and are checked and
//! printed in the same way.

use crate::{Corrupt, LayoutId, LayoutTaken, fixed, header, raw, slotted, versioned};
use ledgerstone_region::{ByNumber, Words};

/// A way to use the bytes behind the header.
pub trait Layout: Send + Sync {
    /// The number in the header. It is on disk, so it never changes.
    fn id(&self) -> LayoutId;

    /// A word for messages.
    fn name(&self) -> &'static str;

    /// Checks the layout's invariants, for bytes that may be damaged. This includes the bytes of the header.
    ///
    /// Must end on any bytes, must not panic, and must not size an allocation by a number that it has not checked. The
    /// page does not change meanwhile.
    ///
    /// # Errors
    /// The first thing found wrong.
    fn check(&self, page: Words<'_>) -> Result<(), Corrupt>;

    /// The page for people. As careful with bytes as [`Layout::check`]: damaged pages are printed too.
    fn print(&self, page: Words<'_>) -> String;
}

/// Layouts by id.
#[derive(Default)]
pub struct Layouts {
    by_id: ByNumber<LayoutId, Box<dyn Layout>>,
}

impl Layouts {
    /// None at all.
    #[must_use]
    pub fn new() -> Layouts {
        Layouts::default()
    }

    /// The layouts of this crate: raw, fixed, slotted and versioned.
    #[must_use]
    pub fn basic() -> Layouts {
        let mut layouts = Layouts::new();
        layouts.by_id.insert(LayoutId::RAW, Box::new(raw::Raw));
        layouts.by_id.insert(LayoutId::SLOTTED, Box::new(slotted::Slotted));
        layouts.by_id.insert(LayoutId::FIXED, Box::new(fixed::Fixed));
        layouts.by_id.insert(LayoutId::VERSIONED, Box::new(versioned::Versioned));
        layouts
    }

    /// Adds a layout.
    ///
    /// # Errors
    /// Its id is already taken. Nothing has changed.
    pub fn register(&mut self, layout: Box<dyn Layout>) -> Result<(), LayoutTaken> {
        let id = layout.id();
        if let Some(first) = self.by_id.get(id) {
            return Err(LayoutTaken { id, first: first.name(), second: layout.name() });
        }
        self.by_id.insert(id, layout);
        Ok(())
    }

    /// The layout with this id.
    pub fn get(&self, id: LayoutId) -> Option<&dyn Layout> {
        self.by_id.get(id).map(|layout| &**layout)
    }

    /// All, by ascending id.
    pub fn iter(&self) -> impl Iterator<Item = &dyn Layout> {
        self.by_id.values().map(|layout| &**layout)
    }

    /// Checks a page by the layout that its header names.
    ///
    /// # Errors
    /// What the layout finds, or `layout` if no such layout is registered.
    pub fn check(&self, page: Words<'_>) -> Result<(), Corrupt> {
        let id = header::layout(page);
        match self.get(id) {
            Some(layout) => layout.check(page).map_err(|wrong| wrong.on(header::page_id(page))),
            None => Err(Corrupt::new("layout", header::LAYOUT as u64, 0, id.0 as u64).on(header::page_id(page))),
        }
    }

    /// Prints a page by the layout that its header names. If no such layout is registered, prints only the header.
    pub fn print(&self, page: Words<'_>) -> String {
        match self.get(header::layout(page)) {
            Some(layout) => layout.print(page),
            None => header::print(page),
        }
    }
}

impl std::fmt::Debug for Layouts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.by_id.iter().map(|(id, layout)| (id.0, layout.name()))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PageId;
    use ledgerstone_region::PageBuf;

    /// A user's layout: the sum of all bytes behind the header is even.
    struct Even;

    impl Layout for Even {
        fn id(&self) -> LayoutId {
            LayoutId(300)
        }
        fn name(&self) -> &'static str {
            "even"
        }
        fn check(&self, page: Words<'_>) -> Result<(), Corrupt> {
            header::check(page, self.id())?;
            let sum: u64 = page.to_vec(40, page.len_bytes()).iter().map(|&b| b as u64).sum();
            if sum.is_multiple_of(2) { Ok(()) } else { Err(Corrupt::new("sum", 40, 0, 1)) }
        }
        fn print(&self, page: Words<'_>) -> String {
            format!("even {}", header::print(page))
        }
    }

    #[test]
    fn a_users_layout_is_checked_and_printed_like_ours() {
        let mut layouts = Layouts::basic();
        layouts.register(Box::new(Even)).unwrap();
        let mut buf = PageBuf::new(4096);
        header::format(&mut buf.words_mut(), PageId(9), LayoutId(300), 0, PageId::NONE);
        assert_eq!(layouts.check(buf.words()), Ok(()));
        buf.words_mut().put_u8(99, 1);
        assert_eq!(layouts.check(buf.words()).unwrap_err().what, "sum");
        assert!(layouts.print(buf.words()).starts_with("even page 9"));
        let ids: Vec<u16> = layouts.iter().map(|layout| layout.id().0).collect();
        assert_eq!(ids, [1, 2, 16, 17, 300]);
    }

    #[test]
    fn an_id_is_given_out_once_and_strangers_are_refused() {
        let mut layouts = Layouts::basic();
        layouts.register(Box::new(Even)).unwrap();
        assert_eq!(layouts.register(Box::new(Even)).unwrap_err().id, LayoutId(300));
        let mut buf = PageBuf::new(4096);
        header::format(&mut buf.words_mut(), PageId(9), LayoutId(301), 0, PageId::NONE);
        let wrong = layouts.check(buf.words()).unwrap_err();
        assert_eq!((wrong.what, wrong.found, wrong.page), ("layout", 301, Some(PageId(9))));
    }
}
