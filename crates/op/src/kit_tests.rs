use super::*;
use crate::PageMut;
use ledgerstone_page::{SlottedError, slotted};

/// An operation made of functions, to be right or wrong in one way at a time.
#[derive(Clone, Copy)]
struct Made {
    id: u16,
    formats: bool,
    redo: fn(&mut PageMut<'_>, &[u8]) -> Result<(), OpError>,
    undo: fn(&[u8]) -> Undo,
}

impl Operation for Made {
    fn id(&self) -> OpId {
        OpId(self.id)
    }
    fn name(&self) -> &'static str {
        "made"
    }
    fn formats(&self) -> bool {
        self.formats
    }
    fn redo(&self, page: &mut PageMut<'_>, args: &[u8]) -> Result<(), OpError> {
        (self.redo)(page, args)
    }
    fn undo(&self, args: &[u8]) -> Undo {
        (self.undo)(args)
    }
    fn print(&self, args: &[u8]) -> String {
        format!("{args:?}")
    }
}

const BAD: OpError = OpError::BadArgs { op: OpId(1024), len: 0, what: "slot and record are expected" };

fn slot_of(args: &[u8]) -> Result<(u16, &[u8]), OpError> {
    args.split_first_chunk().map(|(slot, rest)| (u16::from_le_bytes(*slot), rest)).ok_or(BAD)
}

/// Inserts a record of a slotted page at its slot; 1025 deletes it.
const INSERT: Made = Made {
    id: 1024,
    formats: false,
    redo: |page, args| {
        let (slot, record) = slot_of(args)?;
        Ok(slotted::insert_at(page.words_mut(), slot, record)?)
    },
    undo: |args| Undo::Page { op: OpId(1025), args: args.to_vec() },
};

const DELETE: Made = Made {
    id: 1025,
    formats: false,
    redo: |page, args| {
        let (slot, record) = slot_of(args)?;
        match slotted::get(page.words(), slot)? {
            Some(found) if found == record => Ok(slotted::delete(page.words_mut(), slot)?),
            _ => Err(SlottedError::SlotFree { slot, slot_count: 0 }.into()),
        }
    },
    undo: |args| Undo::Page { op: OpId(1024), args: args.to_vec() },
};

fn registry(operations: &[Made]) -> Registry {
    let mut ops = Registry::new();
    for &operation in operations {
        ops.register(Box::new(operation)).unwrap();
    }
    ops
}

/// What a slotted page means, wherever its records lie.
fn records(page: Words<'_>) -> Vec<u8> {
    let mut all = Vec::new();
    for slot in slotted::used_slots(page) {
        let record = slotted::get(page, slot).unwrap().unwrap();
        all.extend_from_slice(&slot.to_le_bytes());
        all.extend_from_slice(&(record.len() as u16).to_le_bytes());
        all.extend_from_slice(&record);
    }
    all
}

fn slotted_page() -> PageBuf {
    let mut buf = PageBuf::new(4096);
    slotted::format(&mut buf.words_mut(), PageId(4), 0, PageId::NONE);
    for record in [&b"aa"[..], b"bbbb", b"c"] {
        slotted::insert(&mut buf.words_mut(), record).unwrap();
    }
    buf
}

fn case(op: u16, args: &[u8]) -> Case {
    Case::new(OpId(op), slotted_page(), args.to_vec()).same_by(records)
}

#[test]
fn operations_that_keep_the_contract_pass() {
    let cases = [case(1024, b"\x07\x00seven"), case(1025, b"\x01\x00bbbb")];
    assert_eq!(check_registry(&registry(&[INSERT, DELETE]), &cases), Ok(()));
}

#[test]
fn an_operation_without_a_case_fails() {
    let failure = check_registry(&registry(&[INSERT, DELETE]), &[case(1024, b"\x07\x00seven")]);
    assert_eq!(failure, Err(Failure::NoCase { op: OpId(1025), name: "made" }));
}

#[track_caller]
fn check_finds(wrong: Made, args: &[u8], found: impl Fn(&Failure) -> bool) {
    let others: Vec<Made> = [INSERT, DELETE].into_iter().filter(|other| other.id != wrong.id).chain([wrong]).collect();
    let failure = check_case(&registry(&others), &Layouts::basic(), &case(wrong.id, args)).unwrap_err();
    assert!(found(&failure), "{failure}");
}

#[test]
fn an_undo_that_does_nothing_is_found() {
    let lazy = Made { redo: |_, _| Ok(()), ..DELETE };
    let insert_then_lazy = registry(&[INSERT, lazy]);
    let failure = check_case(&insert_then_lazy, &Layouts::basic(), &case(1024, b"\x07\x00seven")).unwrap_err();
    assert!(matches!(failure, Failure::Differs { rule: "undo inverts", .. }), "{failure}");
}

#[test]
fn each_broken_rule_is_found() {
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
    static CALLS: AtomicU8 = AtomicU8::new(0);
    let moody = Made {
        redo: |page, _| {
            page.put_u8(4000, CALLS.fetch_add(1, Relaxed));
            Ok(())
        },
        undo: |_| Undo::Nothing,
        ..INSERT
    };
    check_finds(moody, b"", |f| matches!(f, Failure::Differs { rule: "redo is deterministic", .. }));

    let forger = Made {
        redo: |page, _| {
            header::set_page_lsn(page.words_mut(), Lsn(99));
            Ok(())
        },
        undo: |_| Undo::Nothing,
        ..INSERT
    };
    check_finds(forger, b"", |f| matches!(f, Failure::Differs { rule: "the page lsn is the engine's", .. }));

    let breaks_layout = Made {
        redo: |page, _| {
            page.put_u16(42, 5000);
            Ok(())
        },
        undo: |_| Undo::Nothing,
        ..INSERT
    };
    check_finds(breaks_layout, b"", |f| matches!(f, Failure::Layout { when: "after", .. }));

    let reads_past = Made {
        redo: |page, args| {
            page.put_u8(4000, args[0]);
            Ok(())
        },
        undo: |_| Undo::Nothing,
        ..INSERT
    };
    check_finds(reads_past, b"x", |f| matches!(f, Failure::Panics { step: "redo", args_len: 0, .. }));

    let half = Made {
        redo: |page, args| {
            page.put_u8(4000, 1);
            if args.len() == 3 { Ok(()) } else { Err(BAD) }
        },
        undo: |_| Undo::Nothing,
        ..INSERT
    };
    check_finds(half, b"abc", |f| matches!(f, Failure::Differs { rule: "a refused change changes nothing", .. }));

    let only_says_it_formats = Made { formats: true, undo: |_| Undo::Nothing, ..INSERT };
    check_finds(only_says_it_formats, b"\x07\x00x", |f| {
        matches!(f, Failure::Refused { .. } | Failure::Differs { rule: "a format ignores the page's old bytes", .. })
    });

    let orphan = Made { undo: |_| Undo::Page { op: OpId(2000), args: vec![] }, ..INSERT };
    check_finds(orphan, b"\x07\x00x", |f| *f == Failure::Unknown(UnknownOperation { op: OpId(2000) }));
}
