//! Directories that last as long as a test.

use std::path::PathBuf;

use tempfile::TempDir;

/// A new directory, in memory if possible. Tests at the same time would else wait for one
/// another's disk writes, and measure the disk.
pub(crate) fn directory(prefix: &str) -> std::io::Result<TempDir> {
    let memory = PathBuf::from("/dev/shm");
    let root = if memory.is_dir() { memory } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix(prefix).tempdir_in(root)
}
