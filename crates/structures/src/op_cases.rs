//! A case for every operation of this crate, for the authors' kit: one that is registered without a case fails.

use ledgerstone_op::{PageMut, Registry, kit};
use ledgerstone_page::{Layouts, OpId, PageId};
use ledgerstone_region::PageBuf;

use crate::blob::op_cases as blob_cases;
use crate::btree::args::{
    FenceArgs, FormatArgs, InsertArgs, PatchArgs, Place, PostArgs, ReplaceArgs, TakeArgs, write_cut_low, write_place,
    write_relink, write_remove, write_repoint,
};
use crate::btree::edit::child_value;
use crate::btree::entry::Entry;
use crate::btree::ops::*;

const ROOT: PageId = PageId(7);

fn page(ops: &Registry, steps: &[(OpId, Vec<u8>)]) -> PageBuf {
    let mut buf = PageBuf::new(4096);
    for (op, args) in steps {
        ops.get(*op).unwrap().redo(&mut PageMut::new(ROOT, buf.words_mut()), args).unwrap();
    }
    buf
}

#[test]
fn every_operation_keeps_the_rules_of_operations() {
    let mut ops = Registry::new();
    crate::register(&mut ops).unwrap();
    let mut layouts = Layouts::basic();
    crate::register_layouts(&mut layouts).unwrap();

    let place = |slot, key| Place { root: ROOT, slot, key };
    let values: Vec<Vec<u8>> = (0..20u8).map(|n| vec![n; 30 + usize::from(n)]).collect();
    let keys: Vec<Vec<u8>> = (0..20u8).map(|n| format!("key-{n:03}").into_bytes()).collect();
    let entries = |to: usize| {
        let entry = |n: usize| Entry::new(&keys[n], values[n].len() as u16, &values[n]);
        (0..to).map(entry).collect::<Vec<_>>()
    };
    let format = |to: usize| {
        FormatArgs { root: ROOT, level: 0, link: PageId(9), low: b"key", high: b"l", entries: entries(to) }.write()
    };
    let leaf = page(&ops, &[(OP_NODE_FORMAT, format(20))]);
    let delete = write_place(place(3, &keys[3])).into_vec();
    let with_ghost = page(&ops, &[(OP_NODE_FORMAT, format(20)), (OP_NODE_DELETE, delete.clone())]);
    let child = child_value(PageId(50));
    let children = vec![Entry::new(&[], 6, &child)];
    let inner = page(
        &ops,
        &[(
            OP_NODE_FORMAT,
            FormatArgs { root: ROOT, level: 1, link: PageId(0), low: &[], high: &[], entries: children }.write(),
        )],
    );
    let insert = InsertArgs { place: place(4, b"key-003a"), header: 5, value: b"value" }.write();
    let no_prefix = InsertArgs { place: place(0, b"key"), header: 5, value: b"value" }.write();
    let patch = PatchArgs { place: place(5, &keys[5]), offset: 3, old: &[5, 5], new: &[9, 8] }.write();
    let longer = ReplaceArgs {
        place: place(5, &keys[5]),
        old_header: values[5].len() as u16,
        old: &values[5],
        new_header: 700,
        new: &[1; 700],
    };
    let shorter = ReplaceArgs { new_header: 1, new: &[1], ..longer };
    let padded = page(&ops, &[(OP_NODE_FORMAT, format(20)), (OP_NODE_REPLACE, shorter.write().into_vec())]);
    let back_again = ReplaceArgs { new_header: values[5].len() as u16, new: &values[5], ..longer };
    let take = TakeArgs { link: PageId(12), high: b"m", entries: entries(20).split_off(12) };
    let mut cases = vec![
        kit::Case::new(OP_NODE_FORMAT, leaf.clone(), format(7)),
        kit::Case::new(OP_NODE_INSERT, leaf.clone(), insert.into_vec()),
        kit::Case::new(OP_NODE_INSERT, leaf.clone(), no_prefix.into_vec()),
        kit::Case::new(OP_NODE_DELETE, leaf.clone(), delete),
        kit::Case::new(OP_NODE_REVIVE, with_ghost, write_place(place(3, &keys[3])).into_vec()),
        kit::Case::new(OP_NODE_PATCH, leaf.clone(), patch.into_vec()),
        kit::Case::new(OP_NODE_REPLACE, leaf.clone(), longer.write().into_vec()),
        kit::Case::new(OP_NODE_REPLACE, leaf.clone(), shorter.write().into_vec()),
        kit::Case::new(OP_NODE_FENCE, leaf.clone(), FenceArgs { keep: 9, link: PageId(5), high: b"key-009" }.write()),
        kit::Case::new(OP_NODE_REMOVE, leaf.clone(), write_remove(&[0, 1, 7, 19])),
        kit::Case::new(OP_NODE_REPOINT, inner.clone(), write_repoint(0, PageId(77))),
        kit::Case::new(OP_NODE_RELINK, leaf.clone(), write_relink(PageId(77))),
        kit::Case::new(OP_NODE_TAKE, page(&ops, &[(OP_NODE_FORMAT, format(12))]), take.write()),
        kit::Case::new(OP_NODE_CUT_LOW, leaf.clone(), write_cut_low(7, b"key-007")),
        kit::Case::new(OP_NODE_POST, inner, PostArgs { slot: 1, child: PageId(51), key: b"m" }.write()),
        kit::Case::new(OP_NODE_TRIM, padded.clone(), write_remove(&[5])),
        kit::Case::new(OP_NODE_REPLACE, padded, back_again.write().into_vec()),
        kit::Case::new(OP_NODE_FREE, leaf, Vec::new()),
    ];
    cases.extend(blob_cases(|steps| page(&ops, steps)));
    cases.extend(crate::layouts::op_cases(|steps| page(&ops, steps)));
    kit::check_registry_with(&ops, &layouts, &cases).unwrap();
}
