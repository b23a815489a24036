//! What SQLite's result codes mean to a user of locks.

use std::path::Path;

use lockkit_core::Error;

/// The groups of result codes that the lanes treat differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Another connection has the file; the statement did nothing. Ask again soon.
    Busy,
    /// The table, or the whole file, went away under an open connection. Open it anew.
    Moved,
    /// Everything else, by result code (`None`: not from SQLite at all).
    Other(Option<u32>),
}

/// The primary result codes that are told apart. See <https://sqlite.org/rescode.html>.
mod code {
    pub(super) const ERROR: u32 = 1;
    pub(super) const PERM: u32 = 3;
    pub(super) const BUSY: u32 = 5;
    pub(super) const LOCKED: u32 = 6;
    pub(super) const READONLY: u32 = 8;
    pub(super) const IOERR: u32 = 10;
    pub(super) const CORRUPT: u32 = 11;
    pub(super) const FULL: u32 = 13;
    pub(super) const CANTOPEN: u32 = 14;
    pub(super) const SCHEMA: u32 = 17;
    pub(super) const AUTH: u32 = 23;
    pub(super) const NOTADB: u32 = 26;
    /// An extended code: the file was renamed or deleted.
    pub(super) const READONLY_DBMOVED: u32 = 1032;
}

/// Tells the groups apart.
pub(super) fn kind(error: &sqlx::Error) -> Kind {
    let sqlx::Error::Database(database) = error else { return Kind::Other(None) };
    let Some(full) = database.code().and_then(|code| code.parse::<u32>().ok()) else {
        return Kind::Other(None);
    };
    match full & 0xff {
        code::BUSY | code::LOCKED => Kind::Busy,
        code::SCHEMA => Kind::Moved,
        code::ERROR if database.message().starts_with("no such table") => Kind::Moved,
        code::READONLY if full == code::READONLY_DBMOVED => Kind::Moved,
        primary => Kind::Other(Some(primary)),
    }
}

/// Says what `error`, met at the file `path`, means. Of the URL no more than the path is told.
pub(super) fn explain(path: &Path, error: sqlx::Error) -> Error {
    let file = path.display();
    let told = match kind(&error) {
        Kind::Busy => Error::unavailable(format!(
            "another connection has locked the database `{file}` all the time"
        )),
        Kind::Moved => Error::unavailable(format!("the table went away from `{file}`")),
        Kind::Other(Some(code::FULL)) => Error::unavailable(format!(
            "no room left to write to `{file}`: the disk is full, or the database has reached its \
             size limit"
        )),
        Kind::Other(Some(code::IOERR)) => {
            Error::unavailable(format!("reading or writing `{file}` failed"))
        }
        Kind::Other(Some(code::READONLY)) => Error::permission(format!(
            "`{file}` can only be read: the file, its directory or the file system does not let \
             this process write"
        )),
        Kind::Other(Some(code::PERM | code::AUTH)) => {
            Error::permission(format!("access to `{file}` was refused"))
        }
        Kind::Other(Some(code::CANTOPEN)) => cannot_open(path),
        Kind::Other(Some(code::NOTADB)) => Error::configuration(format!(
            "`{file}` is not a SQLite database (or is encrypted); it was left as it is"
        )),
        Kind::Other(Some(code::CORRUPT)) => {
            Error::configuration(format!("the SQLite database `{file}` is damaged"))
        }
        // A statement of ours that this database does not understand: not our table, or a
        // database that cannot be.
        Kind::Other(Some(code::ERROR)) => {
            Error::configuration(format!("`{file}` does not take lockkit's statements"))
        }
        Kind::Other(_) => Error::unavailable(format!("the database `{file}` cannot serve now")),
    };
    told.with_source(error)
}

/// SQLite has one code for every reason; the file system knows more.
fn cannot_open(path: &Path) -> Error {
    let file = path.display();
    if path.is_dir() {
        return Error::configuration(format!("`{file}` is a directory; name a file in it"));
    }
    let parent = path.parent().unwrap_or(path);
    match std::fs::metadata(parent) {
        Ok(metadata) if !metadata.is_dir() => Error::configuration(format!(
            "`{}`, in which `{file}` should lie, is not a directory",
            parent.display()
        )),
        Ok(_) if !writable(parent) || (path.exists() && !writable(path)) => {
            Error::permission(format!(
                "`{file}` cannot be opened for writing (SQLite also has to create files beside it)"
            ))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Error::configuration(format!(
            "the directory `{}` does not exist; lockkit creates files, but no directories",
            parent.display()
        )),
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            Error::permission(format!("the directory `{}` cannot be entered", parent.display()))
        }
        // Too many open files, for example.
        _ => Error::unavailable(format!("`{file}` cannot be opened now")),
    }
}

#[cfg(target_os = "linux")]
fn writable(path: &Path) -> bool {
    use rustix::fs::{Access, access};

    access(path, Access::WRITE_OK).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn writable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| !metadata.permissions().readonly())
}
