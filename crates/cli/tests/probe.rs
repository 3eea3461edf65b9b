//! `probe` under bad conditions: a clear message, a report of what could be measured, nothing left behind.
#![allow(missing_docs)]

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn probe(dir: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("ledgerstone"));
    command.args(["probe", "--quick", "--disk", "64M", "--dir"]).arg(dir).args(more).stdin(Stdio::null());
    command
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().count() == 0
}

/// Runs it to its end: it succeeds, its JSON is a report, and the directory is as empty as before.
fn report(dir: &Path, command: &mut Command) -> serde_json::Value {
    let output = command.arg("--json").output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(is_empty(dir), "something was left in {}", dir.display());
    serde_json::from_slice(&output.stdout).unwrap()
}

fn skips(report: &serde_json::Value) -> String {
    let all = report["experiments"].as_array().unwrap().iter().flat_map(|e| e["skipped"].as_array().unwrap());
    all.map(|s| format!("{}: {}\n", s["what"].as_str().unwrap(), s["why"].as_str().unwrap())).collect()
}

fn point_count(report: &serde_json::Value, experiment: &str) -> usize {
    let experiment = report["experiments"].as_array().unwrap().iter().find(|e| e["id"] == experiment).unwrap();
    experiment["groups"].as_array().unwrap().iter().map(|g| g["points"].as_array().unwrap().len()).sum()
}

#[test]
fn a_directory_that_cannot_be_written_to_is_refused_by_name() {
    for dir in ["/proc", "/no/such/directory"] {
        let output = probe(Path::new(dir), &[]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains(dir) && text(&output).contains("name a directory that you may write to"));
    }
}

#[test]
fn more_disk_than_there_is_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("ledgerstone"));
    let output = command.args(["probe", "--disk", "1000000G", "--dir"]).arg(dir.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("bytes free") && text(&output).contains("--disk"), "{}", text(&output));
    assert!(is_empty(dir.path()));
}

#[test]
fn unknown_experiments_are_refused_with_the_known_ones() {
    let dir = tempfile::tempdir().unwrap();
    let output = probe(dir.path(), &["locks"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("schedule"), "{}", text(&output));
}

#[test]
fn a_report_is_written_as_json_page_and_settings_and_can_be_compared() {
    let dir = tempfile::tempdir().unwrap();
    let (work, out) = (dir.path().join("work"), dir.path().join("out"));
    std::fs::create_dir(&work).unwrap();
    std::fs::create_dir(&out).unwrap();
    let (json, page, env) = (out.join("a.json"), out.join("a.html"), out.join("env"));
    let output = probe(&work, &["domains"])
        .arg("--out")
        .arg(&json)
        .arg("--html")
        .arg(&page)
        .arg("--write-config")
        .arg(&env)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("Recommended") && is_empty(&work));
    assert!(std::fs::read_to_string(&page).unwrap().ends_with("</html>\n"));
    let run = |args: &[&str], path: &Path| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("ledgerstone"));
        command.args(args).arg(path).output().unwrap()
    };
    let opened = run(&["init"], &env);
    assert!(opened.status.success(), "an environment takes the settings: {}", text(&opened));
    let compared = Command::new(assert_cmd::cargo::cargo_bin!("ledgerstone"))
        .args(["probe", "compare"])
        .args([&json, &json])
        .output()
        .unwrap();
    assert!(compared.status.success() && text(&compared).contains("domains/bytes"), "{}", text(&compared));
    std::fs::write(&json, "{\"format\": 99}").unwrap();
    let refused = Command::new(assert_cmd::cargo::cargo_bin!("ledgerstone"))
        .args(["probe", "compare"])
        .args([&json, &json])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused).contains("format 99"), "{}", text(&refused));
}

#[test]
fn settings_that_somebody_made_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (work, env) = (dir.path().join("work"), dir.path().join("env"));
    std::fs::create_dir(&work).unwrap();
    std::fs::create_dir(&env).unwrap();
    std::fs::write(env.join("ledgerstone.toml"), "escalate_after = 7\n").unwrap();
    let output = probe(&work, &["domains"]).arg("--write-config").arg(&env).output().unwrap();
    assert!(output.status.success() && text(&output).contains("left alone"), "{}", text(&output));
    assert_eq!(std::fs::read_to_string(env.join("ledgerstone.toml")).unwrap(), "escalate_after = 7\n");
    assert!(env.join("ledgerstone.probe.toml").exists());
}

#[test]
fn memory_as_file_system_is_said_and_nothing_is_read_cold_from_it() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return eprintln!("no /dev/shm here: not tested") };
    let report = report(dir.path(), &mut probe(dir.path(), &["strategy", "force"]));
    assert_eq!(report["machine"]["mount"]["kind"], "tmpfs");
    assert!(skips(&report).contains("cold"), "{}", skips(&report));
    assert!(report.to_string().contains("nothing here survives the loss of power"));
}

/// A filter that answers one system call with an error; with `flag`, only where the argument of that number has that
/// bit.
fn forbid(command: &mut Command, call: libc::c_long, flag: Option<(u32, u32)>, errno: i32) -> &mut Command {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let jump = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let deny = statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32);
    let allow = statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW);
    let equal = |k: u32, jt, jf| jump(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k, jt, jf);
    let mut filter = match flag {
        None => vec![statement(load, 0), equal(call as u32, 0, 1), deny, allow],
        // The arguments begin at offset 16, eight bytes each, the low half first.
        Some((argument, flag)) => vec![
            statement(load, 0),
            equal(call as u32, 0, 3),
            statement(load, 16 + 8 * argument),
            jump(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, flag, 0, 1),
            deny,
            allow,
        ],
    };
    let install = move || {
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: the program lives until the kernel has copied it; the calls change this process only, which will
        // exec.
        let failed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) != 0
        };
        if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: between fork and exec it makes two system calls and allocates nothing.
    unsafe { command.pre_exec(install) }
}

#[test]
fn without_io_uring_threads_make_the_queue_depth() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = probe(dir.path(), &["device", "force"]);
    let report = report(dir.path(), forbid(&mut command, libc::SYS_io_uring_setup, None, libc::EPERM));
    assert!(skips(&report).contains("io_uring_setup: Operation not permitted"), "{}", skips(&report));
    assert!(report.to_string().contains("\"queue depth is made by\",\"value\":\"threads\""));
    assert!(point_count(&report, "device") > 0 && point_count(&report, "force") > 0);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn without_direct_input_and_output_the_buffered_ways_are_measured() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = probe(dir.path(), &["device", "force"]);
    // Files can be opened by either call.
    forbid(&mut command, libc::SYS_openat, Some((2, libc::O_DIRECT as u32)), libc::EINVAL);
    let report =
        report(dir.path(), forbid(&mut command, libc::SYS_open, Some((1, libc::O_DIRECT as u32)), libc::EINVAL));
    assert!(skips(&report).contains("no direct I/O"), "{}", skips(&report));
    assert_eq!(point_count(&report, "device"), 0);
    assert!(point_count(&report, "force") > 0);
}

#[test]
fn where_one_way_to_write_durably_is_refused_the_others_are_still_compared() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = probe(dir.path(), &["force"]);
    let report = report(dir.path(), forbid(&mut command, libc::SYS_pwritev2, None, libc::EOPNOTSUPP));
    assert!(skips(&report).contains("turns: buffered, RWF_DSYNC: pwritev2"), "{}", skips(&report));
    let force = report["experiments"].as_array().unwrap().iter().find(|e| e["id"] == "force").unwrap();
    let turns = force["groups"].as_array().unwrap().iter().find(|g| g["id"] == "force/turns").unwrap();
    let has = |series: &str| turns["points"].as_array().unwrap().iter().any(|p| p["series"] == series);
    assert!(has("buffered, fdatasync") && !has("buffered, RWF_DSYNC"), "{turns}");
    let sync = report["advice"].as_array().unwrap().iter().find(|a| a["setting"] == "sync method").unwrap();
    let because = sync["because"].as_str().unwrap();
    assert!(because.starts_with("the default stays: ") && because.contains("RWF_DSYNC was not measured"), "{sync}");
    assert!(sync["config"].is_null() && sync["is_measured"] == false, "{sync}");
}

#[test]
fn without_cachestat_cold_files_are_still_checked() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = probe(dir.path(), &["strategy", "force"]);
    let report = report(dir.path(), forbid(&mut command, 451, None, libc::ENOSYS));
    assert!(skips(&report).contains("cachestat"), "the order of write-back cannot be seen: {}", skips(&report));
    assert!(point_count(&report, "strategy") > 0);
}

#[test]
fn on_one_processor_what_needs_two_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = probe(dir.path(), &["schedule", "message", "lock"]);
    // SAFETY: one system call on this process, which will exec; the set is zeroed and then has one processor that is
    // there.
    unsafe {
        command.pre_exec(|| {
            let mut all: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(0, size_of_val(&all), &mut all);
            let first = (0..libc::CPU_SETSIZE as usize).find(|cpu| libc::CPU_ISSET(*cpu, &all)).unwrap_or(0);
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(first, &mut one);
            if libc::sched_setaffinity(0, size_of_val(&one), &one) == 0 {
                Ok(())
            } else {
                Err(std::io::Error::last_os_error())
            }
        });
    }
    let report = report(dir.path(), &mut command);
    assert_eq!(report["machine"]["processor_count"], 1);
    assert!(skips(&report).contains("only one processor may be used"), "{}", skips(&report));
    assert!(point_count(&report, "schedule") > 0);
}

fn limit(command: &mut Command, what: libc::__rlimit_resource_t, bytes: u64) -> &mut Command {
    let set = move || {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: the kernel reads the limit.
        if unsafe { libc::setrlimit(what, &limit) } == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: one system call between fork and exec.
    unsafe { command.pre_exec(set) }
}

#[test]
fn a_memory_limit_costs_measurements_and_not_the_report() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = probe(dir.path(), &["schedule", "bind"]);
    let report = report(dir.path(), limit(&mut command, libc::RLIMIT_AS, 96 << 20));
    assert!(point_count(&report, "schedule") > 0);
}

#[test]
fn a_limit_on_files_is_like_a_full_disk_for_one_experiment() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = probe(dir.path(), &["bind", "domains"]);
    let report = report(dir.path(), limit(&mut command, libc::RLIMIT_FSIZE, 1 << 20));
    let bind = &report["experiments"].as_array().unwrap().iter().find(|e| e["id"] == "bind").unwrap()["status"];
    assert!(bind.to_string().contains("File too large"), "{bind}");
    assert!(point_count(&report, "domains") > 0);
}

/// Another program, busy until this is dropped.
struct Busy(std::process::Child);

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

#[test]
fn beside_a_busy_program_values_are_noisy_and_nothing_is_advised_from_them() {
    let dir = tempfile::tempdir().unwrap();
    let busy = Busy(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap());
    let report = report(dir.path(), &mut probe(dir.path(), &["lock", "force"]));
    drop(busy);
    let groups = report["experiments"].as_array().unwrap().iter().flat_map(|e| e["groups"].as_array().unwrap());
    let points: Vec<_> = groups.flat_map(|g| g["points"].as_array().unwrap()).collect();
    // If the hypervisor takes the processor, too, that is said instead.
    let is_disturbed = |why: &str| why.contains("other programs used") || why.contains("the hypervisor took");
    let disturbed = points.iter().filter(|p| is_disturbed(&p["value"]["noisy"].to_string())).count();
    assert!(disturbed * 2 > points.len(), "{disturbed} of {}", points.len());
    assert!(points.iter().all(|p| p["value"]["noisy"].is_null() != p["value"]["median"].is_null()));
    let sync = report["advice"].as_array().unwrap().iter().find(|a| a["setting"] == "sync method").unwrap();
    let decides = |p: &&serde_json::Value| p["series"] == "O_DIRECT, RWF_DSYNC" && p["x"] == 4096.0;
    if points.iter().copied().find(|p| decides(p)).is_some_and(|p| p["value"]["median"].is_null()) {
        assert_eq!(sync["is_measured"], false, "{sync}");
    }
}

/// Runs a script as root of a namespace of its own; none where that is forbidden.
fn in_namespace(script: &str, program: &Path) -> Option<Output> {
    let allowed = Command::new("unshare").args(["-rm", "true"]).output().is_ok_and(|o| o.status.success());
    if !allowed {
        eprintln!("no namespaces here: not tested");
        return None;
    }
    Some(Command::new("unshare").args(["-rm", "sh", "-ec", script, "sh"]).arg(program).output().unwrap())
}

#[test]
fn a_disk_that_fills_up_ends_experiments_and_not_the_run() {
    let script = "d=$(mktemp -d); trap 'rmdir $d' EXIT; mount -t tmpfs -o size=48m none $d; \
                  (until [ -n \"$(ls -A $d)\" ]; do sleep 0.01; done; head -c 40m /dev/zero > $d/other 2>/dev/null) 2>/dev/null & \
                  \"$1\" --json probe --quick --disk 24M --dir $d device bind force domains; \
                  wait; rm $d/other; ls -A $d >&2; umount $d";
    let program = assert_cmd::cargo::cargo_bin!("ledgerstone");
    let Some(output) = in_namespace(script, program) else { return };
    assert!(output.status.success(), "{}", text(&output));
    assert!(output.stderr.is_empty(), "left behind: {}", text(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(point_count(&report, "domains") > 0);
}

#[test]
fn an_overlay_is_measured_and_named() {
    let script = "d=$(mktemp -d); trap 'rm -rf $d' EXIT; mount -t tmpfs none $d; mkdir $d/l $d/u $d/w $d/m; \
                  mount -t overlay overlay -o lowerdir=$d/l,upperdir=$d/u,workdir=$d/w $d/m || exit 77; \
                  \"$1\" --json probe --quick --disk 32M --dir $d/m lock domains; ls -A $d/m >&2; umount $d/m $d";
    let program = assert_cmd::cargo::cargo_bin!("ledgerstone");
    let Some(output) = in_namespace(script, program) else { return };
    if output.status.code() == Some(77) {
        return eprintln!("no overlay in a namespace here: not tested");
    }
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["machine"]["mount"]["kind"], "overlay");
    assert!(point_count(&report, "lock") > 0);
}

/// Whenever the signal comes, the run ends soon, says that it is not whole, and leaves nothing.
#[test]
fn a_request_to_stop_at_any_time_leaves_a_partial_report_and_nothing_else() {
    for (no, experiment) in ledgerstone_probe::experiments::ALL.iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let signal = if no % 2 == 0 { libc::SIGINT } else { libc::SIGTERM };
        let mut child =
            probe(dir.path(), &[experiment.id()]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // From the moment that it has made something, and a little later each time. Before, a signal ends it as any
        // process.
        while is_empty(dir.path()) && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        let after = Instant::now() + Duration::from_millis(17 * no as u64);
        while Instant::now() < after {
            std::thread::yield_now();
        }
        if child.try_wait().unwrap().is_none() {
            // SAFETY: our child, not yet waited for.
            unsafe { libc::kill(child.id() as i32, signal) };
        }
        let output = child.wait_with_output().unwrap();
        let said = text(&output);
        assert!(is_empty(dir.path()), "{} left something behind: {said}", experiment.id());
        match output.status.code() {
            Some(0) => assert!(said.contains("Recommended"), "it was done before: {said}"),
            Some(1) => assert!(said.contains("NOT WHOLE") && said.contains("Recommended"), "{said}"),
            other => panic!("{}: {other:?}: {said}", experiment.id()),
        }
    }
}
