//! An environment on a block device: a loop device, which only root can make. Without one the test says so and proves
//! nothing.

use std::os::unix::fs::FileExt;

use ledgerstone::{Environment, Error};
use ledgerstone_testkit::LoopDevice;

#[test]
fn an_environment_lives_on_a_device() {
    let Some(device) = LoopDevice::new(64 << 20) else { return };
    let open = || Environment::options().log_segment_bytes(1 << 20).open(&device.path);
    let refused = Environment::options().create(false).open(&device.path).err();
    assert!(matches!(refused, Some(Error::NotAnEnvironment { .. })), "{refused:?}");
    let env = open().unwrap();
    env.transact(|txn| txn.bytes_or_create("t")?.put(b"key", b"value")).unwrap();
    assert!(matches!(open().err(), Some(Error::AlreadyOpen { .. })));
    assert!(matches!(Environment::overwrite_device(&device.path), Err(Error::AlreadyOpen { .. })));
    let left = env.clone();
    env.close().unwrap();
    // As with a directory, a handle that is left keeps nobody out.
    let env = open().unwrap();
    drop(left);
    let get = |env: &Environment| env.transact(|txn| txn.bytes("t")?.get(b"key")).unwrap();
    assert_eq!(get(&env).as_deref(), Some(&b"value"[..]));

    // A full device is told as a full file system is. Room that is made is found.
    let fill = |env: &Environment| {
        for number in 0..2_000_u32 {
            env.transact(|txn| txn.bytes_or_create("full")?.put(&number.to_be_bytes(), &vec![1; 50_000]))?;
        }
        Ok::<_, Error>(())
    };
    let full = fill(&env).unwrap_err();
    assert!(matches!(full, Error::ReadOnly { .. }), "{full:?}");
    env.transact(|txn| txn.drop_table("full").map(drop)).unwrap();
    drop(env);
    let env = open().unwrap();
    env.compact().unwrap();
    env.transact(|txn| txn.bytes_or_create("again")?.put(b"large", &vec![2; 5_000_000])).unwrap();
    assert!(env.verify().unwrap().problems.is_empty());
    env.close().unwrap();
    // The table of names is there twice (docs/format/raw.md). Whoever opens the device first is told which is damaged.
    let bytes = std::fs::OpenOptions::new().write(true).open(&device.path).unwrap();
    bytes.write_all_at(&[0xFF; 4096], 8192).unwrap();
    bytes.sync_all().unwrap();
    drop(bytes);
    for told in [Some(0), None] {
        let env = open().unwrap();
        assert_eq!((env.recovery_report().damaged_table_slot, get(&env).is_some()), (told, true));
        env.close().unwrap();
    }
    let env = Environment::options().read_only(true).open(&device.path).unwrap();
    assert_eq!(get(&env).as_deref(), Some(&b"value"[..]));
    env.close().unwrap();
}
