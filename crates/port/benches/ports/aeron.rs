//! Aeron IPC, if `AERON_JAR` says where Aeron is (`scripts/port-bench.sh` fetches it): two Java programs of ours, each
//! on a processor of its own, as all other mechanisms.

use crate::process;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// What Aeron wants to be allowed on the Java of today; and no collector on other threads.
const JAVA: [&str; 3] = [
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "-XX:+UseSerialGC",
];

/// Median of a round trip in microseconds; `None` without Aeron.
pub fn round_trip(bytes: usize) -> Option<f64> {
    let jar = std::env::var_os("AERON_JAR")?;
    // The driver's files are to be in memory, as everybody's.
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in shared memory");
    let driver = directory.path().join("driver");
    let echo = process::child(1, || {
        let error = command(&jar, "echo", &driver).exec();
        panic!("java: {error}");
    });
    let result = process::apart(0, || {
        let output = command(&jar, "ping", &driver).arg(bytes.to_string()).output().expect("java");
        String::from_utf8_lossy(&output.stdout).trim().parse().into_iter().collect()
    });
    process::end(echo);
    result.first().copied()
}

fn command(jar: &OsString, role: &str, driver: &Path) -> Command {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/ports/AeronPing.java");
    let mut command = Command::new("java");
    command.args(JAVA).arg("-cp").arg(jar).arg(program).arg(role).arg(driver);
    command
}
