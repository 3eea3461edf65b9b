use super::*;
use crate::{FileHeaderLayout, LAYOUT_FILE_HEADER};
use ledgerstone_op::kit::{Case, check_registry_with};
use ledgerstone_page::{Layout, Layouts, raw};
use ledgerstone_region::PageBuf;

fn registry() -> Registry {
    let mut ops = Registry::new();
    register(&mut ops).unwrap();
    ops
}

fn raw_page(id: u64) -> PageBuf {
    let mut buf = PageBuf::new(4096);
    raw::format(&mut buf.words_mut(), PageId(id), 0, PageId::NONE);
    buf
}

fn apply(page: &mut PageBuf, op: OpId, args: &[u8]) -> Result<(), OpError> {
    let id = header::page_id(page.words());
    registry().get(op).unwrap().redo(&mut PageMut::new(id, page.words_mut()), args)
}

fn first_map() -> PageBuf {
    let mut page = raw_page(1);
    apply(&mut page, OP_SPACE_FORMAT, &0u64.to_le_bytes()).unwrap();
    page
}

fn header_args() -> Vec<u8> {
    file_header::args(*b"0123456789abcdef", 0x1122_3344_5566_7788).to_vec()
}

#[test]
fn all_operations_keep_the_contract() {
    let mut layouts = Layouts::basic();
    crate::register_layouts(&mut layouts).unwrap();
    let mut used = first_map();
    apply(&mut used, OP_SPACE_SET, &mark_args(2, 100)).unwrap();
    let mut header = raw_page(0);
    apply(&mut header, OP_FILE_HEADER_FORMAT, &header_args()).unwrap();
    let second = bits_of(4096);
    let cases = [
        Case::new(OP_SPACE_SET, first_map(), mark_args(60, 10).to_vec()),
        Case::new(OP_SPACE_CLEAR, used, mark_args(5, 90).to_vec()),
        Case::new(OP_SPACE_FORMAT, raw_page(1), 0u64.to_le_bytes().to_vec()),
        Case::new(OP_SPACE_FORMAT, raw_page(second), second.to_le_bytes().to_vec()),
        Case::new(OP_FILE_HEADER_FORMAT, raw_page(0), header_args()),
        Case::new(OP_FILE_HEADER_MARK, header, Vec::new()),
    ];
    check_registry_with(&registry(), &layouts, &cases).unwrap();
}

#[test]
fn a_page_is_neither_given_out_twice_nor_freed_twice() {
    let mut map = first_map();
    apply(&mut map, OP_SPACE_SET, &mark_args(10, 5)).unwrap();
    let before = map.to_bytes();
    let twice = OpError::UnfitAt { op: OP_SPACE_SET, what: "the page is in use already", at: 14 };
    assert_eq!(apply(&mut map, OP_SPACE_SET, &mark_args(14, 3)), Err(twice));
    let twice = OpError::UnfitAt { op: OP_SPACE_CLEAR, what: "the page is free already", at: 15 };
    assert_eq!(apply(&mut map, OP_SPACE_CLEAR, &mark_args(13, 3)), Err(twice));
    let own = OpError::UnfitAt { op: OP_SPACE_CLEAR, what: "a space map is never free", at: 1 };
    assert_eq!(apply(&mut map, OP_SPACE_CLEAR, &mark_args(1, 1)), Err(own));
    assert_eq!(map.to_bytes(), before);
    assert!(matches!(apply(&mut raw_page(1), OP_SPACE_SET, &mark_args(9, 1)), Err(OpError::Unfit { .. })));
    assert!(matches!(apply(&mut raw_page(2), OP_SPACE_FORMAT, &[0; 8]), Err(OpError::BadArgs { .. })));
}

#[test]
fn the_map_has_the_bytes_of_its_table() {
    let mut map = first_map();
    apply(&mut map, OP_SPACE_SET, &mark_args(7, 2)).unwrap();
    let bytes = map.to_bytes();
    assert_eq!(bytes[4..8], [3, 0, 1, 0]);
    assert_eq!(bytes[40..64], [0; 24]);
    assert_eq!(bytes[64..67], [0b1000_0011, 0b1, 0]);
    let second = bits_of(4096);
    let mut map = raw_page(second);
    apply(&mut map, OP_SPACE_FORMAT, &second.to_le_bytes()).unwrap();
    assert_eq!(map.to_bytes()[40..48], second.to_le_bytes());
    assert_eq!(map.to_bytes()[64..66], [1, 0]);
}

#[test]
fn the_file_header_has_the_bytes_of_its_table() {
    let mut page = raw_page(0);
    apply(&mut page, OP_FILE_HEADER_FORMAT, &header_args()).unwrap();
    let bytes = page.to_bytes();
    assert_eq!(header::layout(page.words()), LAYOUT_FILE_HEADER);
    assert_eq!(&bytes[40..48], b"LSTNDATA");
    assert_eq!(bytes[48..56], [2, 0, 0, 0, 0, 0x10, 0, 0]);
    assert_eq!(&bytes[56..72], b"0123456789abcdef");
    assert_eq!(bytes[72..80], [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
    assert!(bytes[80..].iter().all(|&byte| byte == 0));
    assert_eq!(FileHeaderLayout.check(page.words()), Ok(()));
}
