//! How a server is started, the first time and again.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use tempfile::TempDir;

use super::{Fault, Program, Result, spawner};
use crate::scratch;

/// A program with its arguments, and a directory of its own.
///
/// The directory has two parts: one for data, which a restart can empty, and one for what lasts
/// as long as the server: certificates, sockets, and what the server writes to its output.
#[derive(Debug)]
pub struct Launch {
    program: Program,
    args: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    files: Vec<(String, String)>,
    sockets: Vec<String>,
    directory: TempDir,
}

impl Launch {
    /// `program` without arguments, with a new directory.
    ///
    /// # Errors
    /// If there can be no directory.
    pub fn new(program: Program) -> Result<Self> {
        let directory = scratch::directory("lockkit-server-")?;
        std::fs::create_dir(directory.path().join("data"))?;
        let (args, variables, files, sockets) = Default::default();
        Ok(Self { program, args, variables, files, sockets, directory })
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn variable(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// A file that is written into the data part before the first start, and again whenever that
    /// part was emptied. Otherwise it stays as the server has changed it.
    #[must_use]
    pub fn file(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.files.push((name.into(), text.into()));
        self
    }

    /// A socket in the data part, which every start takes away first: a server that was killed has
    /// left it there, and may not start beside it.
    #[must_use]
    pub fn socket(mut self, name: impl Into<String>) -> Self {
        self.sockets.push(name.into());
        self
    }

    /// The directory for data.
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// The directory for what lasts as long as the server.
    pub fn lasting(&self) -> &Path {
        self.directory.path()
    }

    /// Takes everything out of the directory for data.
    pub(super) fn empty(&self) -> Result<()> {
        std::fs::remove_dir_all(self.data())?;
        Ok(std::fs::create_dir(self.data())?)
    }

    /// Starts it. What it says goes to a file.
    pub(super) fn spawn(&self) -> Result<Child> {
        for (name, text) in &self.files {
            let path = self.data().join(name);
            if !path.exists() {
                std::fs::write(path, text)?;
            }
        }
        for name in &self.sockets {
            // Mostly there is none.
            let _ = std::fs::remove_file(self.data().join(name));
        }
        let output = File::options().create(true).append(true).open(self.output_file())?;
        let mut command = spawner::command(&self.program)?;
        command
            .args(&self.args)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(self.data())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let failed = |e| Fault::from(e).during(&format!("cannot start `{}`", self.program.name));
        spawner::spawn(command).map_err(failed)
    }

    /// What the program is called.
    pub(super) fn name(&self) -> &'static str {
        self.program.name
    }

    /// How many bytes it has written so far.
    pub(super) fn output_len(&self) -> u64 {
        self.output_file().metadata().map_or(0, |data| data.len())
    }

    /// What it has written since the byte `from`, as far as that can be read.
    pub(super) fn output(&self, from: u64) -> String {
        let read = || -> std::io::Result<Vec<u8>> {
            let mut file = File::open(self.output_file())?;
            file.seek(SeekFrom::Start(from))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
    }

    fn output_file(&self) -> PathBuf {
        self.directory.path().join("output")
    }
}
