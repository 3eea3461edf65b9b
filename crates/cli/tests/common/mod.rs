//! One environment and the program, for tests that type commands.
#![allow(dead_code)] // Not every test file uses all of it.

use std::process::{Output, Stdio};

use assert_cmd::Command;

/// One environment, and the program with its directory filled in for `@`.
pub struct Shell(pub tempfile::TempDir);

/// What a command has answered.
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Said {
        Said {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Shell {
    pub fn new() -> Shell {
        let shell = Shell(tempfile::tempdir().unwrap());
        assert_eq!(shell.run("init @").code, 0);
        shell
    }

    pub fn run(&self, line: &str) -> Said {
        self.run_with(line, b"")
    }

    pub fn run_with(&self, line: &str, input: &[u8]) -> Said {
        Command::from_std(self.command(line)).write_stdin(input).output().unwrap().into()
    }

    /// Runs a line whose answer goes elsewhere.
    pub fn run_into(&self, line: &str, stdout: impl Into<Stdio>) -> Said {
        self.command(line).stdout(stdout).output().unwrap().into()
    }

    fn command(&self, line: &str) -> std::process::Command {
        let dir = self.0.path().join("env").display().to_string();
        let words = line.split(' ').map(|word| if word == "@" { dir.clone() } else { word.replace('~', " ") });
        let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("ledgerstone"));
        command.current_dir(self.0.path()).args(words);
        command
    }

    /// Runs a line that must end with 0 and say `out`.
    pub fn says(&self, line: &str, out: &str) {
        let said = self.run(line);
        assert_eq!((said.code, said.out.as_str()), (0, out), "{line}: {}", said.err);
    }

    /// Runs a line that must end with 2, and whose error has `word` in it.
    pub fn refuses(&self, line: &str, word: &str) {
        let said = self.run(line);
        assert!(said.code == 2 && said.err.contains(word), "{line}: {} {}", said.code, said.err);
    }

    /// Puts records, each a key and a value.
    pub fn puts(&self, table: &str, records: &[&str]) {
        for record in records {
            self.says(&format!("put @ {table} {record}"), "");
        }
    }

    pub fn file(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).unwrap();
    }

    pub fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.path().join(name)).unwrap()
    }
}
