//! Operations on space maps and the file header. They are parts of groups: never undone, redone with what they are for.
//!
//! | id | name | arguments |
//! | --- | --- | --- |
//! | 16 | set | first bit u32, count u32 |
//! | 17 | clear | first bit u32, count u32 |
//! | 18 | format map | first page u64 |
//! | 19 | format file header | see `file_header.rs` |
//! | 20 | mark file header | none: only the page's LSN changes |

use ledgerstone_op::{DuplicateOperation, OpError, Operation, PageMut, Registry};
use ledgerstone_page::{OpId, PageId, header};

use crate::file_header;
use crate::map::{BITS_AT, FIRST_PAGE_AT, LAYOUT_SPACE_MAP, bit_of, bits_of, is_set, map_of};

/// Marks pages as in use.
pub const OP_SPACE_SET: OpId = OpId(16);
/// Marks pages as free.
pub const OP_SPACE_CLEAR: OpId = OpId(17);
/// Makes a new map.
pub const OP_SPACE_FORMAT: OpId = OpId(18);
/// Makes the file header.
pub const OP_FILE_HEADER_FORMAT: OpId = OpId(19);

/// Gives the file header a later LSN.
pub const OP_FILE_HEADER_MARK: OpId = OpId(20);

/// Registers the operations of this crate.
///
/// # Errors
/// A number is taken.
pub fn register(ops: &mut Registry) -> Result<(), DuplicateOperation> {
    ops.register(Box::new(Mark { op: OP_SPACE_SET, name: "space set", set: true }))?;
    ops.register(Box::new(Mark { op: OP_SPACE_CLEAR, name: "space clear", set: false }))?;
    ops.register(Box::new(FormatMap))?;
    ops.register(Box::new(FormatFileHeader))?;
    ops.register(Box::new(MarkFileHeader))
}

/// Arguments of set and clear.
pub(crate) fn mark_args(first_bit: u32, count: u32) -> [u8; 8] {
    let mut args = [0; 8];
    args[..4].copy_from_slice(&first_bit.to_le_bytes());
    args[4..].copy_from_slice(&count.to_le_bytes());
    args
}

fn read_mark(args: &[u8]) -> Option<(u32, u32)> {
    let args: &[u8; 8] = args.try_into().ok()?;
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| args[at + i]));
    Some((word(0), word(4)))
}

struct Mark {
    op: OpId,
    name: &'static str,
    set: bool,
}

impl Operation for Mark {
    fn id(&self) -> OpId {
        self.op
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn redo(&self, page: &mut PageMut<'_>, args: &[u8]) -> Result<(), OpError> {
        let bad = |what| OpError::BadArgs { op: self.op, len: args.len(), what };
        let (first, count) = read_mark(args).ok_or(bad("8 bytes are needed"))?;
        let limit = bits_of(page.len_bytes());
        if count == 0 || u64::from(first) + u64::from(count) > limit {
            return Err(bad("no bits, or bits beyond the map"));
        }
        if header::layout(page.words()) != LAYOUT_SPACE_MAP {
            return Err(OpError::Unfit { op: self.op, what: "the page is not a space map" });
        }
        let first_page = page.words().u64(FIRST_PAGE_AT);
        let unfit = |what, bit: u32| OpError::UnfitAt { op: self.op, what, at: first_page.wrapping_add(bit.into()) };
        let own = bit_of(page.id(), page.len_bytes());
        if !self.set && (first..first + count).contains(&own) {
            return Err(unfit("a space map is never free", own)); // M3
        }
        // All are looked at before any is changed: a page given out twice must never pass silently.
        if let Some(bit) = (first..first + count).find(|&bit| is_set(page.words(), bit) == self.set) {
            return Err(unfit(if self.set { "the page is in use already" } else { "the page is free already" }, bit));
        }
        for bit in first..first + count {
            let at = BITS_AT + bit as usize / 8;
            let byte = page.words().u8(at) ^ (1 << (bit % 8));
            page.put_u8(at, byte);
        }
        Ok(())
    }

    fn print(&self, args: &[u8]) -> String {
        match read_mark(args) {
            Some((first, count)) => format!("bits {first}..{}", u64::from(first) + u64::from(count)),
            None => "malformed".into(),
        }
    }
}

struct FormatMap;

impl Operation for FormatMap {
    fn id(&self) -> OpId {
        OP_SPACE_FORMAT
    }

    fn name(&self) -> &'static str {
        "space format"
    }

    fn formats(&self) -> bool {
        true
    }

    fn redo(&self, page: &mut PageMut<'_>, args: &[u8]) -> Result<(), OpError> {
        let Ok(first) = args.try_into().map(u64::from_le_bytes) else {
            return Err(OpError::BadArgs { op: OP_SPACE_FORMAT, len: args.len(), what: "8 bytes are needed" });
        };
        // M1 and M2: of all numbers only one is right for this page.
        if !first.is_multiple_of(bits_of(page.len_bytes())) || map_of(PageId(first), page.len_bytes()) != page.id() {
            return Err(OpError::BadArgs { op: OP_SPACE_FORMAT, len: args.len(), what: "the map lies elsewhere" });
        }
        page.format(LAYOUT_SPACE_MAP, 0, PageId::NONE);
        page.put_u64(FIRST_PAGE_AT, first);
        let own = bit_of(page.id(), page.len_bytes());
        let with_header = if first == 0 { 1 } else { 0 };
        let byte = page.words().u8(BITS_AT + own as usize / 8) | 1 << (own % 8) | with_header; // M3
        page.put_u8(BITS_AT + own as usize / 8, byte);
        Ok(())
    }

    fn print(&self, args: &[u8]) -> String {
        args.try_into().map_or("malformed".into(), |a| format!("from page {}", u64::from_le_bytes(a)))
    }
}

struct FormatFileHeader;

impl Operation for FormatFileHeader {
    fn id(&self) -> OpId {
        OP_FILE_HEADER_FORMAT
    }

    fn name(&self) -> &'static str {
        "file header format"
    }

    fn formats(&self) -> bool {
        true
    }

    fn redo(&self, page: &mut PageMut<'_>, args: &[u8]) -> Result<(), OpError> {
        file_header::write(page, args).ok_or(OpError::BadArgs {
            op: OP_FILE_HEADER_FORMAT,
            len: args.len(),
            what: "an environment id of 16 bytes and a time of 8 are needed",
        })
    }

    fn print(&self, args: &[u8]) -> String {
        format!("{} bytes", args.len())
    }
}

struct MarkFileHeader;

impl Operation for MarkFileHeader {
    fn id(&self) -> OpId {
        OP_FILE_HEADER_MARK
    }

    fn name(&self) -> &'static str {
        "file header mark"
    }

    fn redo(&self, page: &mut PageMut<'_>, args: &[u8]) -> Result<(), OpError> {
        if !args.is_empty() {
            return Err(OpError::BadArgs { op: OP_FILE_HEADER_MARK, len: args.len(), what: "there are none" });
        }
        if header::layout(page.words()) != file_header::LAYOUT_FILE_HEADER {
            return Err(OpError::Unfit { op: OP_FILE_HEADER_MARK, what: "the page is not a file header" });
        }
        Ok(())
    }

    fn print(&self, _: &[u8]) -> String {
        String::new()
    }
}

#[cfg(test)]
#[path = "ops_tests.rs"]
mod tests;
