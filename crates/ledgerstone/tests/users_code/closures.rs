//! The closures and callbacks that a program can hand in: what is called with each, and where it calls the hook.

use std::io::{BufReader, Read, Write};
use std::ops::ControlFlow;
use std::sync::Arc;

use ledgerstone::{BackupOptions, Environment, Error, IndexDef, IndexKeys, TableDef, Transaction, TransactionOptions};
use ledgerstone_disk::SimDisk;
use ledgerstone_dump::{Dump, DumpOptions, LoadOptions};

use super::common::number::{NUMBER, add};
use super::told::{Code, TOLD, Told, telling};
use super::{Hook, env_table, typed_env_table};

/// Calls of a transaction that run the user's code: each calls the hook one or more times.
pub type Inside = fn(&Transaction, &Hook) -> Result<(), Error>;

pub const INSIDE: &[(&str, Inside)] = &[
    ("Options::index_extractor, put", |txn, _| txn.bytes("t")?.put(&[3], b"z")),
    ("Options::index_extractor, put of a new key", |txn, _| txn.bytes("t")?.put(b"new", b"z")),
    ("Options::index_extractor, insert_new", |txn, _| txn.bytes("t")?.insert_new(b"new", b"z")),
    ("Options::index_extractor, delete", |txn, _| txn.bytes("t")?.delete(&[3]).map(drop)),
    ("Options::index_extractor, delete_range", |txn, _| txn.bytes("t")?.delete_range(..).map(drop)),
    ("BytesTable::modify", |txn, hook| {
        let change = |_: &[u8]| {
            hook.call();
            Some(b"zz".to_vec())
        };
        txn.bytes("t")?.modify(&[3], change).map(drop)
    }),
    ("BytesTable::modify, without indexes", |txn, hook| {
        let change = |_: &[u8]| {
            hook.call();
            Some(b"zz".to_vec())
        };
        txn.bytes("plain")?.modify(&[3], change).map(drop)
    }),
    ("BytesTable::modify, of a large value", |txn, hook| {
        let change = |_: &[u8]| {
            hook.call();
            Some(vec![8; 30_000])
        };
        txn.bytes("plain")?.modify(b"large", change).map(drop)
    }),
    ("Table::modify", |txn, hook| {
        let table = txn.open(TableDef::<u64, u64>::new("typed"))?;
        table.put(&1, &1)?;
        let change = |old| {
            hook.call();
            Some(old + 1)
        };
        table.modify(&1, change).map(drop)
    }),
    ("Range::for_each_ref", |txn, hook| {
        txn.bytes("t")?.range(..)?.for_each_ref(|_, _| {
            hook.call();
            true
        })
    }),
    ("TypedRange::for_each_ref", |txn, hook| {
        txn.open(TOLD)?.range(..)?.for_each_ref(|_, _| {
            hook.call();
            true
        })
    }),
    ("Options::index_extractor, count of an index", |txn, _| {
        txn.bytes("t")?.put(&[4], b"q")?;
        txn.bytes("t")?.index("i")?.range(..)?.records().try_for_each(|record| record.map(drop))
    }),
    ("Entry::and_modify", |txn, hook| {
        let change = |value: &mut Vec<u8>| {
            hook.call();
            value.push(1);
        };
        txn.bytes("plain")?.entry([3])?.and_modify(change).map(drop)
    }),
    ("Entry::or_insert_with", |txn, hook| {
        let make = || {
            hook.call();
            b"made".to_vec()
        };
        txn.bytes("plain")?.entry(b"new")?.or_insert_with(make).map(drop)
    }),
    ("TypedEntry::and_modify", |txn, hook| {
        let change = |value: &mut Told| {
            hook.call();
            value.0 += 1;
        };
        txn.open(TOLD)?.entry(Told(3))?.and_modify(change).map(drop)
    }),
    ("TypedEntry::or_insert_with", |txn, hook| {
        let make = || {
            hook.call();
            Told(1)
        };
        txn.open(TOLD)?.entry(Told(99))?.or_insert_with(make).map(drop)
    }),
    ("Table::get_or_insert_with", |txn, hook| {
        let make = || {
            hook.call();
            Told(1)
        };
        txn.open(TOLD)?.get_or_insert_with(Told(99), make).map(drop)
    }),
    ("BytesTable::get_with", |txn, hook| txn.bytes("plain")?.get_with([3], |_| hook.call()).map(drop)),
    ("EnvTable::get_with", |txn, hook| env_table().get_with(txn, [3], |_| hook.call()).map(drop)),
    ("EnvTable::modify", |txn, hook| {
        let change = |_: &[u8]| {
            hook.call();
            Some(b"zz".to_vec())
        };
        env_table().modify(txn, [3], change).map(drop)
    }),
    ("EnvTable::load_sorted", |txn, hook| {
        let records = (200..210u8).map(|n| {
            hook.call();
            ([n], [b'a'])
        });
        env_table().load_sorted(txn, records).map(drop)
    }),
    ("EnvTable::try_load_sorted", |txn, hook| {
        let records = (200..210u8).map(|n| {
            hook.call();
            Ok::<_, Error>(([n], [b'a']))
        });
        env_table().try_load_sorted(txn, records).map(drop)
    }),
    ("TypedEnvTable::get_with", |txn, hook| typed_env_table().get_with(txn, Told(3), |_| hook.call()).map(drop)),
    ("TypedEnvTable::modify", |txn, hook| {
        let change = |old: Told| {
            hook.call();
            Some(Told(old.0 + 1))
        };
        typed_env_table().modify(txn, Told(3), change).map(drop)
    }),
    ("TypedEnvTable::get_or_insert_with", |txn, hook| {
        let make = || {
            hook.call();
            Told(1)
        };
        typed_env_table().get_or_insert_with(txn, Told(99), make).map(drop)
    }),
    ("TypedEnvTable::load_sorted", |txn, hook| {
        let records = (200..210).map(|n| {
            hook.call();
            (Told(n), Told(1))
        });
        typed_env_table().load_sorted(txn, records).map(drop)
    }),
    ("TypedEnvTable::try_load_sorted", |txn, hook| {
        let records = (200..210).map(|n| {
            hook.call();
            Ok::<_, Error>((Told(n), Told(1)))
        });
        typed_env_table().try_load_sorted(txn, records).map(drop)
    }),
    ("code of a type, insert by the environment's handle", |txn, hook| {
        telling(Code::DecodeValue, hook, || typed_env_table().insert(txn, Told(3), Told(7)))
    }),
    ("code of a type, remove by the environment's handle", |txn, hook| {
        telling(Code::DecodeValue, hook, || typed_env_table().remove(txn, Told(3)))
    }),
    ("code of a type, pop_first by the environment's handle", |txn, hook| {
        telling(Code::DecodeKey, hook, || typed_env_table().pop_first(txn))
    }),
    ("code of a type, modify by the environment's handle, the new value", |txn, hook| {
        telling(Code::EncodeValue, hook, || typed_env_table().modify(txn, Told(3), Some))
    }),
    ("code of a type, get by the environment's handle", |txn, hook| {
        telling(Code::DecodeValue, hook, || typed_env_table().get(txn, Told(3)))
    }),
    ("code of a type, delete_range by the environment's handle", |txn, hook| {
        telling(Code::EncodeKey, hook, || typed_env_table().delete_range(txn, Told(3)..Told(4)))
    }),
    ("Table::get_with", |txn, hook| txn.open(TOLD)?.get_with(Told(3), |_| hook.call()).map(drop)),
    ("Range::for_each_ref, when its back has moved", |txn, hook| {
        let mut range = txn.bytes("t")?.range(..)?;
        range.next_back().transpose()?;
        range.for_each_ref(|_, _| {
            hook.call();
            true
        })
    }),
    ("Options::typed_index_extractor, put", |txn, _| txn.open(TOLD)?.put(Told(3), Told(7))),
    ("Options::typed_index_extractor, remove", |txn, _| txn.open(TOLD)?.remove(Told(3)).map(drop)),
    ("Options::typed_index_extractor, pop", |txn, _| {
        txn.nested(|txn| {
            let told = txn.open(TOLD)?;
            told.pop_first()?;
            told.pop_last().map(drop)
        })
    }),
    ("code of a type, put", |txn, hook| {
        let told = txn.open(TOLD)?;
        telling(Code::EncodeValue, hook, || told.put(Told(3), Told(7)))
    }),
    ("code of a type, get, its key", |txn, hook| {
        let told = txn.open(TOLD)?;
        telling(Code::EncodeKey, hook, || told.get(Told(3)))
    }),
    ("code of a type, get", |txn, hook| {
        let told = txn.open(TOLD)?;
        telling(Code::DecodeValue, hook, || told.get(Told(3)))
    }),
    ("code of a type, first", |txn, hook| {
        let told = txn.open(TOLD)?;
        telling(Code::DecodeKey, hook, || told.first())
    }),
    ("code of a type, range", |txn, hook| {
        let told = txn.open(TOLD)?;
        telling(Code::DecodeKey, hook, || told.range(..)?.try_for_each(|record| record.map(drop)))
    }),
    ("code of a type, index", |txn, hook| {
        let told = txn.open(TOLD)?.index::<Told>("i")?;
        telling(Code::DecodeKey, hook, || told.range(..)?.try_for_each(|record| record.map(drop)))
    }),
    ("code of a type, load_sorted", |txn, hook| {
        let mut told = txn.open(TOLD)?;
        let records = (200..220).map(|n| (Told(n), Told(1)));
        telling(Code::EncodeValue, hook, || told.load_sorted(records))
    }),
    ("code of a type, insert", |txn, hook| {
        let told = txn.open(TOLD)?;
        telling(Code::DecodeValue, hook, || told.insert(Told(3), Told(7)))
    }),
    ("code of a type, remove", |txn, hook| {
        let told = txn.open(TOLD)?;
        telling(Code::DecodeValue, hook, || told.remove(Told(3)))
    }),
    ("code of a type, pop_first", |txn, hook| {
        let told = txn.open(TOLD)?;
        telling(Code::DecodeKey, hook, || told.pop_first())
    }),
    ("code of a type, pop_last", |txn, hook| {
        let told = txn.open(TOLD)?;
        telling(Code::DecodeValue, hook, || told.pop_last())
    }),
    ("code of a type, modify", |txn, hook| {
        let told = txn.open(TOLD)?;
        telling(Code::DecodeValue, hook, || told.modify(Told(3), Some))
    }),
    ("code of a type, modify, the new value", |txn, hook| {
        let told = txn.open(TOLD)?;
        telling(Code::EncodeValue, hook, || told.modify(Told(3), Some))
    }),
    ("Options::index_extractor, value writer", |txn, _| {
        let mut writer = txn.bytes("t")?.value_writer(&[3])?;
        writer.write_all(b"more").map_err(Error::user)
    }),
    ("Options::index_extractor, create_index", |txn, _| {
        txn.create_index("t", &IndexDef::new("second", IndexKeys::Extractor("first".into())))
    }),
    ("BytesTable::load_sorted", |txn, hook| {
        let records = (0..20u8).map(|n| {
            hook.call();
            ([n], [b'a' + n])
        });
        txn.bytes("empty")?.load_sorted(records).map(drop)
    }),
    ("BytesTable::try_load_sorted", |txn, hook| {
        let records = (0..20u8).map(|n| {
            hook.call();
            Ok::<_, Error>(([n], [b'a' + n]))
        });
        txn.bytes("empty")?.try_load_sorted(records).map(drop)
    }),
    ("BytesTable::try_load_sorted, behind others", |txn, hook| {
        let records = (100..110u8).map(|n| {
            hook.call();
            Ok::<_, Error>(([n], [b'a']))
        });
        txn.bytes("t")?.try_load_sorted(records).map(drop)
    }),
    ("Table::load_sorted", |txn, hook| {
        let records = (200..210).map(|n| {
            hook.call();
            (Told(n), Told(1))
        });
        txn.open(TOLD)?.load_sorted(records).map(drop)
    }),
    ("Table::try_load_sorted", |txn, hook| {
        let records = (200..210).map(|n| {
            hook.call();
            Ok::<_, Error>((Told(n), Told(1)))
        });
        txn.open(TOLD)?.try_load_sorted(records).map(drop)
    }),
    ("Transaction::create_index_with", |txn, hook| {
        let progress = &mut |_| {
            hook.call();
            ControlFlow::Continue(())
        };
        txn.nested(|txn| {
            let records = (0..1_100u16).map(|n| (n.to_be_bytes(), b"many"));
            txn.create_table("many")?.load_sorted(records)?;
            txn.create_index_with("many", &IndexDef::new("i", IndexKeys::Bytes { from: 0, to: Some(8) }), progress)
        })
    }),
    ("Transaction::try_nested", |txn, hook| {
        txn.try_nested(|txn| {
            txn.bytes("plain")?.put(b"nested", b"1")?;
            hook.call();
            Ok::<_, Error>(())
        })
    }),
    ("Transaction::run_inside", |txn, hook| {
        txn.run_inside(|| hook.call());
        Ok(())
    }),
    ("Transaction::nested", |txn, hook| {
        txn.nested(|txn| {
            txn.bytes("plain")?.put(b"nested", b"1")?;
            hook.call();
            Ok(())
        })
    }),
    ("Transaction::nested_read_only", |txn, hook| {
        txn.nested_read_only(|txn| {
            txn.bytes("plain")?.get(b"nested")?;
            hook.call();
            Ok(())
        })
    }),
    ("StructureHandle::enter", |txn, hook| add(txn, 3, &|| hook.call()).map(drop)),
    ("code of a structure, create_structure", |txn, _| txn.create_structure("another", NUMBER, &[]).map(drop)),
];

/// Those that run the user's code between calls of the transaction, which answers then.
pub const BETWEEN: &[&str] = &[
    "BytesTable::get_with",
    "BytesTable::load_sorted",
    "BytesTable::try_load_sorted",
    "BytesTable::try_load_sorted, behind others",
    "Entry::and_modify",
    "Entry::or_insert_with",
    "EnvTable::get_with",
    "EnvTable::load_sorted",
    "EnvTable::try_load_sorted",
    "Range::for_each_ref, when its back has moved",
    "Table::get_or_insert_with",
    "Table::get_with",
    "Table::load_sorted",
    "Table::try_load_sorted",
    "Transaction::nested",
    "Transaction::nested_read_only",
    "Transaction::run_inside",
    "Transaction::try_nested",
    "TypedEntry::and_modify",
    "TypedEntry::or_insert_with",
    "TypedEnvTable::get_or_insert_with",
    "TypedEnvTable::get_with",
    "TypedEnvTable::load_sorted",
    "TypedEnvTable::try_load_sorted",
    "code of a type, delete_range by the environment's handle",
    "code of a type, first",
    "code of a type, get",
    "code of a type, get by the environment's handle",
    "code of a type, get, its key",
    "code of a type, index",
    "code of a type, load_sorted",
    "code of a type, put",
    "code of a type, range",
];

/// Calls of an environment that run the user's code.
pub type Outside = fn(&Environment, &Hook) -> Result<(), Error>;

pub const OUTSIDE: &[(&str, Outside)] = &[
    ("Environment::transact", |env, hook| env.transact(|txn| put_around(txn, hook))),
    ("Environment::transact_with", |env, hook| {
        env.transact_with(TransactionOptions::default(), |txn| put_around(txn, hook))
    }),
    ("Environment::transact_ticket", |env, hook| {
        env.transact_ticket(TransactionOptions::default(), |txn| put_around(txn, hook)).map(drop)
    }),
    ("Environment::try_transact", |env, hook| env.try_transact(|txn| put_around(txn, hook))),
    ("Environment::try_transact_with", |env, hook| {
        env.try_transact_with(TransactionOptions::default(), |txn| put_around(txn, hook))
    }),
    ("Environment::try_transact_ticket", |env, hook| {
        env.try_transact_ticket(TransactionOptions::default(), |txn| put_around(txn, hook)).map(drop)
    }),
    ("Environment::backup_with", |env, hook| {
        let dir = tempfile::tempdir().unwrap();
        env.backup_with(dir.path(), BackupOptions::default(), |_| hook.call()).map(drop)
    }),
    ("Environment::verify_with", |env, hook| env.verify_with(|_| hook.call()).map(drop)),
    ("Environment::compact_with", |env, hook| env.compact_with(|_| hook.call()).map(drop)),
    ("Environment::backup_on", |env, hook| {
        env.backup_on(Arc::new(SimDisk::new()), BackupOptions::default(), |_| hook.call()).map(drop)
    }),
    ("Environment::backup_to", |env, hook| {
        let to = &mut Calling(hook.clone(), Vec::new());
        env.backup_to(to, BackupOptions::default(), |_| ()).map(drop)
    }),
    ("dump", |env, hook| {
        env.dump_with(&mut Vec::new(), &DumpOptions::default().locked(true), |_| hook.call()).map(drop)
    }),
    ("dump into a stream", |env, hook| {
        let to = &mut Calling(hook.clone(), Vec::new());
        env.dump(to, &DumpOptions::default().table("plain")).map(drop)
    }),
    ("load", |env, hook| {
        let mut text = Vec::from("VERSION=3\nformat=print\ndatabase=loaded\ntype=btree\nHEADER=END\n");
        (0..2500).for_each(|n| text.extend_from_slice(format!(" {n:05}\n v\n").as_bytes()));
        text.extend_from_slice(b"DATA=END\n");
        let from = &mut BufReader::with_capacity(8192, CallingReader(hook.clone(), text, 0));
        env.load_with(from, &LoadOptions::default(), |_| hook.call()).map(drop)
    }),
    ("code of a structure, reclaim", |env, _| {
        env.transact(|txn| txn.drop_structure("number"))?;
        env.reclaim()
    }),
];

fn put_around(txn: &Transaction, hook: &Hook) -> Result<(), Error> {
    txn.bytes("plain")?.put(b"k", b"transact")?;
    hook.call();
    txn.bytes("plain")?.put(b"l", b"transact")
}

struct Calling(Hook, Vec<u8>);

impl Write for Calling {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.1.len().is_multiple_of(3) {
            self.0.call();
        }
        self.1.push(1);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct CallingReader(Hook, Vec<u8>, usize);

impl Read for CallingReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.call();
        let len = buffer.len().min(self.1.len() - self.2);
        buffer[..len].copy_from_slice(&self.1[self.2..self.2 + len]);
        self.2 += len;
        Ok(len)
    }
}
