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
//! O1. All undo is logical: by the time of a rollback a record may have moved to another slot or page. `undo.rs` finds it
//!     by root and key.
//! O2. A group's operations are never undone; their `undo` is nothing.

use ledgerstone_op::{DuplicateOperation, OpError, Operation, PageMut, Registry, Undo};
use ledgerstone_page::{LayoutId, OpId, PageId};

use super::args::{
    FenceArgs, FormatArgs, InsertArgs, PatchArgs, Place, PostArgs, ReplaceArgs, TakeArgs, read_cut_low, read_place,
    read_relink, read_remove, read_repoint,
};
use super::edit::{self, Unfit};
use super::node::{CHILD_BYTES, LAYOUT_NODE, LINK_AT};

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
/// The page is no node any more.
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

type Redo = fn(&mut PageMut<'_>, &[u8]) -> Option<Result<(), Unfit>>;

/// One operation: all of them look alike, so they are values of one type.
struct NodeOperation {
    id: OpId,
    name: &'static str,
    formats: bool,
    is_undoable: bool,
    /// `None`: the arguments cannot be read.
    redo: Redo,
    print: fn(&[u8]) -> Option<String>,
}

impl Operation for NodeOperation {
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

    fn undo(&self, _args: &[u8]) -> Undo {
        if self.is_undoable { Undo::Logical } else { Undo::Nothing }
    }

    fn root(&self, args: &[u8]) -> Option<PageId> {
        match self.id {
            OP_NODE_FORMAT => FormatArgs::root(args),
            _ if self.is_undoable => Place::of(args).map(|place| place.root),
            _ => None,
        }
    }

    fn print(&self, args: &[u8]) -> String {
        (self.print)(args).unwrap_or_else(|| format!("unreadable arguments of {} bytes", args.len()))
    }
}

const OPERATIONS: [NodeOperation; 15] = [
    NodeOperation {
        id: OP_NODE_FORMAT,
        name: "node format",
        formats: true,
        is_undoable: false,
        redo: redo_format,
        print: |args| {
            let a = FormatArgs::read(args)?;
            let (count, low, high) = (a.entries.len(), Bytes(a.low), Bytes(a.high));
            Some(format!("tree {} level {} slots {count} low {low} high {high} link {}", a.root, a.level, a.link))
        },
    },
    NodeOperation {
        id: OP_NODE_INSERT,
        name: "node insert",
        formats: false,
        is_undoable: true,
        redo: |page, args| {
            let a = InsertArgs::read(args)?;
            Some(edit::insert(page, a.place.slot, a.place.key, a.header, a.value))
        },
        print: |args| {
            let a = InsertArgs::read(args)?;
            Some(format!("{} value {} bytes", print_place(a.place), a.value.len()))
        },
    },
    NodeOperation {
        id: OP_NODE_DELETE,
        name: "node delete",
        formats: false,
        is_undoable: true,
        redo: |page, args| Some(edit::set_ghost(page, read_place(args)?.slot, true)),
        print: |args| read_place(args).map(print_place),
    },
    NodeOperation {
        id: OP_NODE_REVIVE,
        name: "node revive",
        formats: false,
        is_undoable: true,
        redo: |page, args| Some(edit::set_ghost(page, read_place(args)?.slot, false)),
        print: |args| read_place(args).map(print_place),
    },
    NodeOperation {
        id: OP_NODE_PATCH,
        name: "node patch",
        formats: false,
        is_undoable: true,
        redo: |page, args| {
            let a = PatchArgs::read(args)?;
            Some(edit::patch(page, a.place.slot, a.offset, a.old, a.new))
        },
        print: |args| {
            let a = PatchArgs::read(args)?;
            Some(format!("{} at {}: {} to {}", print_place(a.place), a.offset, Bytes(a.old), Bytes(a.new)))
        },
    },
    NodeOperation {
        id: OP_NODE_REPLACE,
        name: "node replace",
        formats: false,
        is_undoable: true,
        redo: |page, args| {
            let a = ReplaceArgs::read(args)?;
            Some(edit::replace(page, a.place.slot, a.new_header, a.new))
        },
        print: |args| {
            let a = ReplaceArgs::read(args)?;
            let (place, old, new) = (print_place(a.place), a.old.len(), a.new.len());
            Some(format!("{place} flags {:#06x} to {:#06x}, {old} to {new} bytes", a.old_header, a.new_header))
        },
    },
    NodeOperation {
        id: OP_NODE_FENCE,
        name: "node fence",
        formats: false,
        is_undoable: false,
        redo: redo_fence,
        print: |args| {
            let a = FenceArgs::read(args)?;
            Some(format!("keeps {} slots, high {}, link {}", a.keep, Bytes(a.high), a.link))
        },
    },
    NodeOperation {
        id: OP_NODE_REMOVE,
        name: "node remove",
        formats: false,
        is_undoable: false,
        redo: |page, args| Some(edit::remove(page, &read_remove(args)?)),
        print: |args| read_remove(args).map(|slots| format!("slots {slots:?}")),
    },
    NodeOperation {
        id: OP_NODE_POST,
        name: "node post",
        formats: false,
        is_undoable: false,
        redo: |page, args| {
            let a = PostArgs::read(args)?;
            Some(edit::insert(page, a.slot, a.key, CHILD_BYTES as u16, &edit::child_value(a.child)))
        },
        print: |args| {
            let a = PostArgs::read(args)?;
            Some(format!("slot {} child {} from {}", a.slot, a.child, Bytes(a.key)))
        },
    },
    NodeOperation {
        id: OP_NODE_FREE,
        name: "node free",
        formats: true,
        is_undoable: false,
        redo: |page, _| {
            page.format(LayoutId::ZERO, 0, PageId::NONE);
            Some(Ok(()))
        },
        print: |_| Some(String::new()),
    },
    NodeOperation {
        id: OP_NODE_TRIM,
        name: "node trim",
        formats: false,
        is_undoable: false,
        redo: |page, args| Some(edit::trim(page, &read_remove(args)?)),
        print: |args| read_remove(args).map(|slots| format!("slots {slots:?}")),
    },
    NodeOperation {
        id: OP_NODE_REPOINT,
        name: "node repoint",
        formats: false,
        is_undoable: false,
        redo: |page, args| {
            let (slot, child) = read_repoint(args)?;
            Some(edit::repoint(page, slot, child))
        },
        print: |args| read_repoint(args).map(|(slot, child)| format!("slot {slot} child {child}")),
    },
    NodeOperation {
        id: OP_NODE_RELINK,
        name: "node relink",
        formats: false,
        is_undoable: false,
        redo: |page, args| Some(edit::relink(page, read_relink(args)?)),
        print: |args| read_relink(args).map(|link| format!("link {link}")),
    },
    NodeOperation {
        id: OP_NODE_TAKE,
        name: "node take",
        formats: false,
        is_undoable: false,
        redo: |page, args| {
            let a = TakeArgs::read(args)?;
            Some(edit::take(page, a.link, a.high, &a.entries))
        },
        print: |args| {
            let a = TakeArgs::read(args)?;
            Some(format!("{} slots more, high {}, link {}", a.entries.len(), Bytes(a.high), a.link))
        },
    },
    NodeOperation {
        id: OP_NODE_CUT_LOW,
        name: "node cut low",
        formats: false,
        is_undoable: false,
        redo: |page, args| {
            let (drop, low) = read_cut_low(args)?;
            Some(edit::cut_low(page, drop, low))
        },
        print: |args| read_cut_low(args).map(|(drop, low)| format!("{drop} slots less, low {}", Bytes(low))),
    },
];

fn redo_format(page: &mut PageMut<'_>, args: &[u8]) -> Option<Result<(), Unfit>> {
    let a = FormatArgs::read(args)?;
    let page_bytes = page.words().len_bytes();
    let Some(built) = edit::build(page_bytes, a.level, a.link, a.low, a.high, &a.entries) else {
        return Some(Err(Unfit("content larger than the page")));
    };
    page.format(LAYOUT_NODE, a.level, a.root);
    page.put(LINK_AT, &built);
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

fn print_place(place: Place<'_>) -> String {
    format!("tree {} slot {} key {}", place.root, place.slot, Bytes(place.key))
}

/// Registers the tree's operations.
///
/// # Errors
/// An id is taken.
pub fn register(ops: &mut Registry) -> Result<(), DuplicateOperation> {
    for operation in OPERATIONS {
        ops.register(Box::new(operation))?;
    }
    Ok(())
}
