//! One environment and the program, for tests that type commands.
#![allow(dead_code)] // Not every test file uses all of it.

use assert_cmd::Command;

/// One environment, and the program with its directory filled in for `@`.
pub struct Shell(pub tempfile::TempDir);

/// What a command has answered.
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
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
        let dir = self.0.path().join("env").display().to_string();
        let words = line.split(' ').map(|word| if word == "@" { dir.clone() } else { word.replace('~', " ") });
        let mut command = Command::cargo_bin("ledgerstone").unwrap();
        let output = command.current_dir(self.0.path()).args(words).write_stdin(input).output().unwrap();
        Said {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Runs a line that must end with 0 and say `out`.
    pub fn says(&self, line: &str, out: &str) {
        let said = self.run(line);
        assert_eq!((said.code, said.out.as_str()), (0, out), "{line}: {}", said.err);
    }

    pub fn file(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).unwrap();
    }

    pub fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.path().join(name)).unwrap()
    }
}
