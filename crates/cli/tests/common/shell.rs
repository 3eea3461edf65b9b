//! The shell from a pipe, for tests that type lines into it.
#![allow(dead_code)] // Not every test file uses all of it.

use std::process::Output;

use assert_cmd::Command;

/// What a shell has answered.
pub struct Said {
    pub code: i32,
    pub lines: Vec<String>,
    pub err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Said {
        Said {
            code: output.status.code().unwrap_or(-1),
            lines: String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs a script in a shell of an environment that is empty.
pub fn run(args: &[&str], script: &str) -> Said {
    let dir = tempfile::tempdir().unwrap();
    let env = dir.path().join("env");
    let ledgerstone = || Command::cargo_bin("ledgerstone").unwrap();
    ledgerstone().arg("init").arg(&env).assert().success();
    ledgerstone().arg("shell").arg(&env).args(args).write_stdin(script).output().unwrap().into()
}

/// An environment beside its directory, and a shell in it that runs a script.
pub struct Place(pub tempfile::TempDir);

impl Place {
    pub fn new() -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        place.run(&["init", "env"], "");
        place
    }

    pub fn run(&self, args: &[&str], input: &str) -> Said {
        let mut command = Command::cargo_bin("ledgerstone").unwrap();
        command.current_dir(self.0.path()).args(args).write_stdin(input).output().unwrap().into()
    }

    pub fn shell(&self, script: &str) -> Said {
        self.run(&["shell", "env"], script)
    }
}

pub const CITIES: &str = "name,size\nBern,1\nRome,30\nOslo,4\nParma,x\n";
