//! Programs that the system's packages bring.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Fault, Result};

/// A program, and the Debian package that has it.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// What it is called; with a slash in it, where it is.
    pub name: &'static str,
    /// The Debian package, to be named when it is missing.
    pub package: &'static str,
}

impl Program {
    /// Where it is: on `PATH`, or in the directories for administrators, which users do not have
    /// there.
    ///
    /// # Errors
    /// If it is not there: names the package.
    pub fn find(&self) -> Result<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let directories = std::env::split_paths(&path)
            .chain(["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from));
        let mut places = directories.map(|directory| directory.join(self.name));
        places.find(|place| is_program(place)).ok_or_else(|| {
            Fault::new(format!(
                "`{}` is missing; on Debian it is in the package `{}`",
                self.name, self.package
            ))
        })
    }

    /// Runs it to its end, and gives what it wrote to its standard output.
    ///
    /// # Errors
    /// If it is missing or fails: with what it wrote.
    pub fn run(&self, args: &[&str]) -> Result<String> {
        let output = Command::new(self.find()?).args(args).output()?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        Err(Fault::new(format!("`{} {}`: {}\n{said}", self.name, args.join(" "), output.status)))
    }
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}
