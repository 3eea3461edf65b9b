//! PostgreSQL, the relational row: a server of its own on a socket in the directory, rows with a primary key, prepared
//! statements, a connection for each worker. Each call is a round trip, as it is for its users.
//!
//! The server does not run as root, so it runs as the user `postgres` where this program is root.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ::postgres::{Client, NoTls, Statement};
use anyhow::{Context, ensure};

use crate::peer::{Durability, Failure, Kind, Peer, Settings, Step, Steps, TABLE_COUNT, Txn, Visit, Worker};

struct Server {
    dir: PathBuf,
}

/// Where Debian has the newest server's programs.
fn programs() -> anyhow::Result<PathBuf> {
    let found = std::fs::read_dir("/usr/lib/postgresql").context("PostgreSQL is not installed")?;
    let newest = found.filter_map(|entry| Some(entry.ok()?.path().join("bin"))).filter(|dir| dir.is_dir()).max();
    newest.context("PostgreSQL is not installed")
}

/// The version that is measured.
pub fn version() -> String {
    let said = programs().and_then(|dir| Ok(Command::new(dir.join("postgres")).arg("--version").output()?.stdout));
    said.map_or("not installed".into(), |said| String::from_utf8_lossy(&said).trim().to_owned())
}

/// A program of the server, as the user that may run it.
fn program(name: &str) -> anyhow::Result<Command> {
    let path = programs()?.join(name);
    if !rustix::process::getuid().is_root() {
        return Ok(Command::new(path));
    }
    let mut command = Command::new("runuser");
    command.args(["-u", "postgres", "--"]).arg(path).current_dir("/");
    Ok(command)
}

fn run(mut command: Command) -> anyhow::Result<()> {
    let done = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    ensure!(done.success(), "{command:?}: {done}");
    Ok(())
}

/// Starts, or makes, a server.
///
/// # Errors
/// There is none to start.
pub fn open(settings: Settings<'_>) -> anyhow::Result<Box<dyn Peer>> {
    let dir = settings.dir.canonicalize()?;
    let data = dir.join("data");
    if !data.exists() {
        if rustix::process::getuid().is_root() {
            run({
                let mut command = Command::new("chown");
                command.arg("postgres").arg(&dir);
                command
            })?;
        }
        let mut init = program("initdb")?;
        init.args(["--auth=trust", "--username=postgres", "--no-sync", "--encoding=UTF8", "--locale=C", "-D"]);
        init.arg(&data);
        run(init)?;
    }
    let mut start = program("pg_ctl")?;
    let set = format!(
        "-c listen_addresses='' -c unix_socket_directories='{}' -c shared_buffers={}MB -c max_connections=300 \
         -c max_wal_size=8GB -c checkpoint_timeout=30min -c jit=off",
        dir.display(),
        settings.cache_bytes >> 21
    );
    start.args(["start", "-w", "-s", "-l"]).arg(dir.join("log")).arg("-o").arg(set).arg("-D").arg(&data);
    run(start)?;
    let server = Server { dir };
    let mut client = server.client()?;
    for table in 0..TABLE_COUNT {
        let make = format!("CREATE TABLE IF NOT EXISTS t{table} (k BIGINT PRIMARY KEY, n BIGINT, v BYTEA)");
        client.batch_execute(&make)?;
    }
    Ok(Box::new(server))
}

/// Ends a server that somebody left in the directory.
pub fn end(dir: &Path) {
    let data = dir.join("data");
    if data.join("postmaster.pid").exists()
        && let Ok(mut stop) = program("pg_ctl")
    {
        stop.args(["stop", "-s", "-m", "fast", "-D"]).arg(&data);
        let _ = run(stop); // It may have ended by itself.
    }
}

impl Server {
    fn client(&self) -> anyhow::Result<Client> {
        let mut config = Client::configure();
        config.host_path(&self.dir).user("postgres").dbname("postgres");
        Ok(config.connect(NoTls)?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&self.dir);
    }
}

impl Peer for Server {
    fn worker(&self, durability: Durability) -> anyhow::Result<Box<dyn Worker + '_>> {
        ensure!(durability != Durability::Pipelined, "this peer has no pipelined commits");
        let mut client = self.client()?;
        let is_sync = if durability == Durability::Sync { "on" } else { "off" };
        client.batch_execute(&format!("SET synchronous_commit = {is_sync}"))?;
        let mut prepare = |text: &str| {
            (0..TABLE_COUNT)
                .map(|table| client.prepare(&text.replace("TABLE", &format!("t{table}"))))
                .collect::<Result<Vec<_>, _>>()
        };
        let get = prepare("SELECT n, v FROM TABLE WHERE k = $1")?;
        let put = prepare("INSERT INTO TABLE VALUES ($1, $2, $3) ON CONFLICT (k) DO UPDATE SET n = $2, v = $3")?;
        let add = prepare("UPDATE TABLE SET n = n + $2 WHERE k = $1")?;
        let scan = prepare("SELECT k, n, v FROM TABLE WHERE k >= $1 ORDER BY k LIMIT $2")?;
        Ok(Box::new(Own { client, get, put, add, scan }))
    }

    fn checkpoint(&self) -> anyhow::Result<()> {
        Ok(self.client()?.batch_execute("CHECKPOINT")?)
    }

    fn close(self: Box<Self>) -> anyhow::Result<()> {
        Ok(()) // The server ends when this value does.
    }

    /// COPY, as its users load.
    fn load(&self, table: usize, records: &mut dyn Iterator<Item = (u64, Vec<u8>)>) -> Option<anyhow::Result<()>> {
        let load = || -> anyhow::Result<()> {
            let mut client = self.client()?;
            let mut writer = client.copy_in(&format!("COPY t{table} FROM STDIN"))?;
            let mut line = String::new();
            for (key, value) in records {
                let (number, rest) = value.split_first_chunk::<8>().context("not a record with a number")?;
                line.clear();
                write!(line, "{key}\t{}\t\\\\x", i64::from_le_bytes(*number))?;
                rest.iter().try_for_each(|byte| write!(line, "{byte:02x}"))?;
                line.push('\n');
                writer.write_all(line.as_bytes())?;
            }
            writer.finish()?;
            Ok(client.batch_execute(&format!("VACUUM ANALYZE t{table}"))?)
        };
        Some(load())
    }

    /// The server's first process and its children.
    fn processes(&self) -> Vec<u32> {
        let text = std::fs::read_to_string(self.dir.join("data/postmaster.pid")).unwrap_or_default();
        let Some(first) = text.lines().next().and_then(|pid| pid.trim().parse::<u32>().ok()) else { return Vec::new() };
        let children = std::fs::read_to_string(format!("/proc/{first}/task/{first}/children")).unwrap_or_default();
        let children = children.split_whitespace().filter_map(|pid| pid.parse().ok());
        std::iter::once(first).chain(children).collect()
    }
}

struct Own {
    client: Client,
    get: Vec<Statement>,
    put: Vec<Statement>,
    add: Vec<Statement>,
    scan: Vec<Statement>,
}

fn failure(error: ::postgres::Error) -> Failure {
    use ::postgres::error::SqlState;
    match error.code() {
        Some(code) if [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED].contains(code) => {
            Failure::Again
        }
        _ => Failure::Other(error.into()),
    }
}

fn record(number: i64, rest: &[u8], record: &mut Vec<u8>) {
    record.clear();
    record.extend_from_slice(&number.to_le_bytes());
    record.extend_from_slice(rest);
}

impl Worker for Own {
    fn once(&mut self, kind: Kind, steps: Steps<'_>) -> Step {
        let begin = match kind {
            Kind::Write => "BEGIN",
            Kind::Read | Kind::Snapshot => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            Kind::One => return steps(self), // A statement is a transaction by itself.
        };
        self.client.batch_execute(begin).map_err(failure)?;
        let ended = steps(self).and_then(|()| self.client.batch_execute("COMMIT").map_err(failure));
        if ended.is_err() {
            // The first failure counts.
            let _ = self.client.batch_execute("ROLLBACK");
        }
        ended
    }
}

impl Txn for Own {
    fn get(&mut self, table: usize, key: u64, value: &mut Vec<u8>) -> Step<bool> {
        let row = self.client.query_opt(&self.get[table], &[&(key as i64)]).map_err(failure)?;
        value.clear();
        let Some(row) = row else { return Ok(false) };
        record(row.get(0), row.get(1), value);
        Ok(true)
    }

    fn put(&mut self, table: usize, key: u64, value: &[u8]) -> Step {
        let Some((number, rest)) = value.split_first_chunk::<8>() else {
            return Err(Failure::Other(anyhow::anyhow!("not a record with a number")));
        };
        let number = i64::from_le_bytes(*number);
        self.client.execute(&self.put[table], &[&(key as i64), &number, &rest]).map_err(failure)?;
        Ok(())
    }

    fn add(&mut self, table: usize, key: u64, delta: i64) -> Step<bool> {
        Ok(self.client.execute(&self.add[table], &[&(key as i64), &delta]).map_err(failure)? == 1)
    }

    fn scan(&mut self, table: usize, from: u64, count_max: u64, visit: Visit<'_>) -> Step {
        let limit = i64::try_from(count_max).unwrap_or(i64::MAX);
        let mut value = Vec::new();
        for row in self.client.query(&self.scan[table], &[&(from as i64), &limit]).map_err(failure)? {
            record(row.get(1), row.get(2), &mut value);
            if !visit(row.get::<_, i64>(0) as u64, &value) {
                break;
            }
        }
        Ok(())
    }
}
