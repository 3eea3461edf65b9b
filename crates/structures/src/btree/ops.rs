//! Operations of the B-link tree. Arguments are in `args.rs`, what they do to the bytes in `edit.rs`.
//!
//! | id | name | undone by |
//! | --- | --- | --- |
//! | 32 | node format | in groups only |
//! | 33 | insert | making it a ghost |
//! | 34 | delete: becomes a ghost | revive |
//! | 35 | revive: a ghost with its value becomes a record | delete |
//! | 36 | patch: some bytes of a value | patch back |
//! | 37 | replace: value, blob and ghost flags | replace back |
//! | 38 | fence: fewer slots, new high fence and link | in groups only |
//! | 39 | remove slots | in groups only |
//! | 40 | post a child | in groups only |
//! | 41 | free: no node any more | in groups only |
//! | 42 | trim: pads go | in groups only |
//! | 43 | repoint: a slot names another child | in groups only |
//! | 44 | relink: the right sibling is another page | in groups only |
//! | 45 | take: records come from the right sibling; new high fence and link | in groups only |
//! | 46 | cut low: the first slots go, new low fence | in groups only |
//!
//! O1. All undo is logical: by the time of a rollback a record may have moved to another slot or page. `undo.rs` finds
//!     it by root and key.
//! O2. A group's operations are never undone: their `undo` is nothing.

use ledgerstone_op::{DuplicateOperation, PageMut, PageOperation, Registry, Undo, Unfit};
use ledgerstone_page::{LayoutId, OpId, PageId};

use super::args::{
    FenceArgs, FormatArgs, InsertArgs, PatchArgs, Place, PostArgs, ReplaceArgs, TakeArgs, read_cut_low, read_place,
    read_relink, read_remove, read_repoint,
};
use super::edit;
use super::node::{CHILD_BYTES, LAYOUT_NODE};

/// Makes a page a node, with content.
pub const OP_NODE_FORMAT: OpId = OpId(32);
/// A new record.
pub const OP_NODE_INSERT: OpId = OpId(33);
/// A record becomes a ghost.
pub const OP_NODE_DELETE: OpId = OpId(34);
/// A ghost becomes a record again.
pub const OP_NODE_REVIVE: OpId = OpId(35);
/// Some bytes of a value change.
pub const OP_NODE_PATCH: OpId = OpId(36);
/// A value and its flags change.
pub const OP_NODE_REPLACE: OpId = OpId(37);
/// The upper slots go, the high fence and the link change.
pub const OP_NODE_FENCE: OpId = OpId(38);
/// Slots go.
pub const OP_NODE_REMOVE: OpId = OpId(39);
/// A child is added to its parent.
pub const OP_NODE_POST: OpId = OpId(40);
/// Makes the page no longer a node.
pub const OP_NODE_FREE: OpId = OpId(41);

/// Pads go.
pub const OP_NODE_TRIM: OpId = OpId(42);
/// A slot names another child.
pub const OP_NODE_REPOINT: OpId = OpId(43);
/// The right sibling is another page.
pub const OP_NODE_RELINK: OpId = OpId(44);
/// Records come from the right sibling.
pub const OP_NODE_TAKE: OpId = OpId(45);
/// The first slots go to the left sibling.
pub const OP_NODE_CUT_LOW: OpId = OpId(46);

const OPERATIONS: [PageOperation; 15] = [
    PageOperation {
        id: OP_NODE_FORMAT,
        name: "node format",
        formats: true,
        redo: redo_format,
        root: FormatArgs::root,
        print: |args| {
            let a = FormatArgs::read(args)?;
            let (count, low, high) = (a.entries.len(), Bytes(a.low), Bytes(a.high));
            Some(format!("tree {} level {} slots {count} low {low} high {high} link {}", a.root, a.level, a.link))
        },
        ..PageOperation::PLAIN
    },
    PageOperation {
        id: OP_NODE_INSERT,
        name: "node insert",
        undo: |_| Undo::Logical,
        root: place_root,
        redo: |page, args| {
            let a = InsertArgs::read(args)?;
            Some(edit::insert(page, a.place.slot, a.place.key, a.header, a.value))
        },
        print: |args| {
            let a = InsertArgs::read(args)?;
            Some(format!("{} value {} bytes", print_place(a.place), a.value.len()))
        },
        ..PageOperation::PLAIN
    },
    PageOperation {
        id: OP_NODE_DELETE,
        name: "node delete",
        undo: |_| Undo::Logical,
        root: place_root,
        redo: |page, args| Some(edit::set_ghost(page, read_place(args)?.slot, true)),
        print: |args| read_place(args).map(print_place),
        ..PageOperation::PLAIN
    },
    PageOperation {
        id: OP_NODE_REVIVE,
        name: "node revive",
        undo: |_| Undo::Logical,
        root: place_root,
        redo: |page, args| Some(edit::set_ghost(page, read_place(args)?.slot, false)),
        print: |args| read_place(args).map(print_place),
        ..PageOperation::PLAIN
    },
    PageOperation {
        id: OP_NODE_PATCH,
        name: "node patch",
        undo: |_| Undo::Logical,
        root: place_root,
        redo: |page, args| {
            let a = PatchArgs::read(args)?;
            Some(edit::patch(page, a.place.slot, a.offset, a.old, a.new))
        },
        print: |args| {
            let a = PatchArgs::read(args)?;
            Some(format!("{} at {}: {} to {}", print_place(a.place), a.offset, Bytes(a.old), Bytes(a.new)))
        },
        ..PageOperation::PLAIN
    },
    PageOperation {
        id: OP_NODE_REPLACE,
        name: "node replace",
        undo: |_| Undo::Logical,
        root: place_root,
        redo: |page, args| {
            let a = ReplaceArgs::read(args)?;
            Some(edit::replace(page, a.place.slot, a.new_header, a.new))
        },
        print: |args| {
            let a = ReplaceArgs::read(args)?;
            let (place, old, new) = (print_place(a.place), a.old.len(), a.new.len());
            Some(format!("{place} flags {:#06x} to {:#06x}, {old} to {new} bytes", a.old_header, a.new_header))
        },
        ..PageOperation::PLAIN
    },
    PageOperation {
        id: OP_NODE_FENCE,
        name: "node fence",
        redo: redo_fence,
        print: |args| {
            let a = FenceArgs::read(args)?;
            Some(format!("keeps {} slots, high {}, link {}", a.keep, Bytes(a.high), a.link))
        },
        ..PageOperation::PLAIN
    },
    PageOperation {
        id: OP_NODE_REMOVE,
        name: "node remove",
        redo: |page, args| Some(edit::remove(page, &read_remove(args)?)),
        print: |args| read_remove(args).map(|slots| format!("slots {slots:?}")),
        ..PageOperation::PLAIN
    },
    PageOperation {
        id: OP_NODE_POST,
        name: "node post",
        redo: |page, args| {
            let a = PostArgs::read(args)?;
            Some(edit::insert(page, a.slot, a.key, CHILD_BYTES as u16, &edit::child_value(a.child)))
        },
        print: |args| {
            let a = PostArgs::read(args)?;
            Some(format!("slot {} child {} from {}", a.slot, a.child, Bytes(a.key)))
        },
        ..PageOperation::PLAIN
    },
    PageOperation {
        id: OP_NODE_FREE,
        name: "node free",
        formats: true,
        redo: |page, _| {
            page.format(LayoutId::ZERO, 0, PageId::NONE);
            Some(Ok(()))
        },
        print: |_| Some(String::new()),
        ..PageOperation::PLAIN
    },
    PageOperation {
        id: OP_NODE_TRIM,
        name: "node trim",
        redo: |page, args| Some(edit::trim(page, &read_remove(args)?)),
        print: |args| read_remove(args).map(|slots| format!("slots {slots:?}")),
        ..PageOperation::PLAIN
    },
    PageOperation {
        id: OP_NODE_REPOINT,
        name: "node repoint",
        redo: |page, args| {
            let (slot, child) = read_repoint(args)?;
            Some(edit::repoint(page, slot, child))
        },
        print: |args| read_repoint(args).map(|(slot, child)| format!("slot {slot} child {child}")),
        ..PageOperation::PLAIN
    },
    PageOperation {
        id: OP_NODE_RELINK,
        name: "node relink",
        redo: |page, args| Some(edit::relink(page, read_relink(args)?)),
        print: |args| read_relink(args).map(|link| format!("link {link}")),
        ..PageOperation::PLAIN
    },
    PageOperation {
        id: OP_NODE_TAKE,
        name: "node take",
        redo: |page, args| {
            let a = TakeArgs::read(args)?;
            Some(edit::take(page, a.link, a.high, &a.entries))
        },
        print: |args| {
            let a = TakeArgs::read(args)?;
            Some(format!("{} slots more, high {}, link {}", a.entries.len(), Bytes(a.high), a.link))
        },
        ..PageOperation::PLAIN
    },
    PageOperation {
        id: OP_NODE_CUT_LOW,
        name: "node cut low",
        redo: |page, args| {
            let (drop, low) = read_cut_low(args)?;
            Some(edit::cut_low(page, drop, low))
        },
        print: |args| read_cut_low(args).map(|(drop, low)| format!("{drop} slots less, low {}", Bytes(low))),
        ..PageOperation::PLAIN
    },
];

fn redo_format(page: &mut PageMut<'_>, args: &[u8]) -> Option<Result<(), Unfit>> {
    let a = FormatArgs::read(args)?;
    let page_bytes = page.words().len_bytes();
    let Some(built) = edit::build(page_bytes, a.level, a.link, a.low, a.high, &a.entries) else {
        return Some(Err(Unfit("content larger than the page")));
    };
    page.format(LAYOUT_NODE, a.level, a.root);
    built.put_in_zeroed(page);
    Some(Ok(()))
}

fn redo_fence(page: &mut PageMut<'_>, args: &[u8]) -> Option<Result<(), Unfit>> {
    let a = FenceArgs::read(args)?;
    Some(edit::set_fence(page, a.keep, a.high, a.link))
}

/// Bytes as people read them.
struct Bytes<'a>(&'a [u8]);

impl std::fmt::Display for Bytes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

fn place_root(args: &[u8]) -> Option<PageId> {
    Place::of(args).map(|place| place.root)
}

fn print_place(place: Place<'_>) -> String {
    format!("tree {} slot {} key {}", place.root, place.slot, Bytes(place.key))
}

/// Registers the tree's operations.
///
/// # Errors
/// An id is taken.
pub fn register(ops: &mut Registry) -> Result<(), DuplicateOperation> {
    PageOperation::register(&OPERATIONS, ops)
}
