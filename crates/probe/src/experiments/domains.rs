//! domains: what the system offers beside the five services (9): security, monitoring, limits.
//!
//! Most of it is asked by trying and noted as facts; checksums and encryption are measured by the processor's time.

use std::fs::{self, File};

use aes_gcm::aead::AeadInOut;
use aes_gcm::{Aes128Gcm, KeyInit};

use crate::context::{Context, at, timed};
use crate::error::{On, ProbeError};
use crate::experiment::Experiment;
use crate::measure::Batch;
use crate::report::{Better, Unit};
use crate::sys::allowed::{self, Counter, Encryption};
use crate::sys::file;
use crate::sys::ring::Ring;

pub(crate) struct Domains;

impl Experiment for Domains {
    fn id(&self) -> &'static str {
        "domains"
    }

    fn title(&self) -> &'static str {
        "security, monitoring and limits"
    }

    fn section(&self) -> &'static str {
        "9"
    }

    fn weight(&self) -> u32 {
        3
    }

    fn run(&self, context: &mut Context<'_>) -> Result<(), ProbeError> {
        context.expect(10);
        throughput(context)?;
        security(context);
        monitoring(context);
        limits(context);
        Ok(())
    }
}

fn throughput(context: &mut Context<'_>) -> Result<(), ProbeError> {
    context.group(
        "bytes",
        "Checksums and encryption by one processor",
        Some(("bytes at a time", Unit::Bytes)),
        Unit::BytesPerSecond,
        Better::Higher,
    );
    let cipher = Aes128Gcm::new(&[7; 16].into());
    for size in [4096_usize, 16384] {
        let mut bytes = vec![1_u8; size];
        let mut copy = vec![0_u8; size];
        let (x, amount) = (size as f64, size as f64);
        context.measure_amount(at("bytes", "copy").x(x), Batch::Auto, amount, |n| {
            timed(n, || {
                copy.copy_from_slice(std::hint::black_box(&bytes));
                std::hint::black_box(&mut copy);
                Ok(())
            })
        })?;
        context.measure_amount(at("bytes", "CRC-32C").x(x), Batch::Auto, amount, |n| {
            timed(n, || {
                std::hint::black_box(crc32c::crc32c(std::hint::black_box(&bytes)));
                Ok(())
            })
        })?;
        context.measure_amount(at("bytes", "XXH3").x(x), Batch::Auto, amount, |n| {
            timed(n, || {
                std::hint::black_box(xxhash_rust::xxh3::xxh3_64(std::hint::black_box(&bytes)));
                Ok(())
            })
        })?;
        // A TLS record is at most 16 KiB; this is its cost without the handshake.
        context.measure_amount(at("bytes", "AES-128-GCM, as in TLS").x(x), Batch::Auto, amount, |n| {
            timed(n, || {
                let tag = cipher.encrypt_inout_detached(&[3; 12].into(), &[], bytes.as_mut_slice().into());
                std::hint::black_box(tag.map_err(|_| ProbeError::Missing("the cipher refused".into()))?);
                Ok(())
            })
        })?;
    }
    let of = |name| context.median(at("bytes", name).x(16384.0));
    let says = match (of("CRC-32C"), of("AES-128-GCM, as in TLS")) {
        (Some(crc), Some(aes)) => format!(
            "One processor checks {:.1} GiB/s by CRC-32C and encrypts {:.1} GiB/s as TLS does.",
            crc / (1u64 << 30) as f64,
            aes / (1u64 << 30) as f64
        ),
        _ => "Too noisy to say what checksums and encryption cost.".into(),
    };
    context.say("bytes", says);
    Ok(())
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn security(context: &mut Context<'_>) {
    let peer = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )
    .on("socketpair")
    .and_then(|(ours, _theirs)| rustix::net::sockopt::socket_peercred(&ours).on("SO_PEERCRED"));
    let value = match peer {
        Ok(peer) => format!("told: user {}", peer.uid.as_raw()),
        Err(error) => error.to_string(),
    };
    context.fact("peer credentials", value, "a server knows its local client's user without asking for a password");
    let value = match allowed::user_namespace() {
        Ok(true) => "allowed".to_owned(),
        Ok(false) => "refused".to_owned(),
        Err(error) => error.to_string(),
    };
    context.fact("user namespaces", value, "a server can give up its view of the system without being root");
    let dir = File::open(context.work.path());
    let value = dir.map_or(Encryption::Unknown, |dir| allowed::encryption(&dir));
    let value = match value {
        Encryption::On => "on for this directory",
        Encryption::Possible => "possible, not on for this directory",
        Encryption::Unknown => "not offered by this file system",
    };
    context.fact("encryption by the file system", value, "the paper's NTFS encrypts files without the program's help");
    let declared = context.file("domains", 4096).map(|file| file::declared(&file.file)).unwrap_or_default();
    let value = match (declared.answers_direct, declared.direct_offset_bytes) {
        (false, _) => "not told".to_owned(),
        (true, 0) => "none".to_owned(),
        (true, bytes) => format!("blocks of {bytes} bytes, memory aligned to {}", declared.direct_memory_bytes),
    };
    context.fact(
        "direct I/O",
        value,
        "none would mean that encryption, compression or the file system stands in its way",
    );
    let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let has =
        |flag: &str| flags.lines().find(|l| l.starts_with("flags")).is_some_and(|l| l.split(' ').any(|f| f == flag));
    let value = [
        ("aes", "AES"),
        ("vaes", "wide AES"),
        ("pclmulqdq", "carry-less product"),
        ("sse4_2", "CRC-32C"),
        ("sha_ni", "SHA"),
    ]
    .iter()
    .filter(|(flag, _)| has(flag))
    .map(|(_, name)| *name)
    .collect::<Vec<_>>()
    .join(", ");
    context.fact(
        "instructions for encryption and checksums",
        if value.is_empty() { "none told".into() } else { value },
        "why the rates above are as they are",
    );
}

fn monitoring(context: &mut Context<'_>) {
    for (name, counter, means) in [
        ("hardware counters", Counter::Cycles, "cycles, cache misses and the like can be counted"),
        ("kernel counters", Counter::PageFaults, "page faults and context switches can be counted by thread"),
    ] {
        let value = match allowed::counter(counter) {
            Ok(_) => "available".to_owned(),
            Err(error) => format!("not available: {error}"),
        };
        context.fact(name, value, means);
    }
    for what in ["cpu", "io", "memory"] {
        let value = read(&format!("/proc/pressure/{what}")).and_then(|text| text.lines().next().map(str::to_owned));
        context.fact(
            &format!("pressure, {what}"),
            value.unwrap_or_else(|| "not available".into()),
            "the part of the last 10, 60 and 300 s in which somebody waited for it",
        );
    }
}

fn limits(context: &mut Context<'_>) {
    let machine = crate::machine::Machine::look(context.work.path(), context.places.count());
    let value = machine.memory_limit_bytes.map_or("none".to_owned(), |bytes| format!("{bytes} bytes"));
    context.fact("memory limit of the control group", value, "a page cache must stay below it");
    let value = ["/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"]
        .iter()
        .find_map(|path| read(path))
        .unwrap_or_else(|| "none told".into());
    context.fact("processor limit of the control group", value, "max or -1: none; otherwise time by period, in us");
    let value = read("/sys/fs/cgroup/io.max").filter(|text| !text.is_empty()).unwrap_or_else(|| "none told".into());
    context.fact("device limit of the control group", value, "bytes or requests a second, by device");
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    for (line, means) in [
        ("Max open files", "files, sockets and queues at once"),
        ("Max locked memory", "memory that can be kept from being written out or swapped"),
        ("Max processes", "threads of this user"),
    ] {
        let value = limits.lines().find_map(|l| l.strip_prefix(line)).and_then(|l| l.split_whitespace().next());
        context.fact(&line.to_lowercase(), value.unwrap_or("unknown"), means);
    }
    let value = match Ring::new(2, 4096) {
        Ok(_) => "allowed".to_owned(),
        Err(error) => error.to_string(),
    };
    context.fact("io_uring", value, "many requests by one thread; many containers forbid it");
}
