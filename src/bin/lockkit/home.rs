//! Where the lock file is when nobody says otherwise.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use lockkit::backend::encoding;

use crate::exit::{self, Exit};

/// The URL of this user's own lock file; makes its directory.
pub(crate) fn url() -> Result<String, Exit> {
    let directory = directory(std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"))?;
    DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(|error| {
        let code = match error.kind() {
            std::io::ErrorKind::PermissionDenied => exit::PERMISSION,
            _ => exit::UNAVAILABLE,
        };
        Exit::new(code, format!("cannot make the directory {}: {error}", directory.display()))
    })?;
    url_of(&directory.join("locks.db"))
}

fn directory(state: Option<OsString>, home: Option<OsString>) -> Result<PathBuf, Exit> {
    let absolute = |path: Option<OsString>| path.map(PathBuf::from).filter(|p| p.is_absolute());
    absolute(state)
        .or_else(|| absolute(home).map(|home| home.join(".local/state")))
        .map(|state| state.join("lockkit"))
        .ok_or_else(|| {
            Exit::usage(
                "no lock service is named (--url, LOCKKIT_URL), and there is no place for the \
                 default one: neither XDG_STATE_HOME nor HOME is an absolute path",
            )
        })
}

fn url_of(path: &Path) -> Result<String, Exit> {
    let text = path.to_str().ok_or_else(|| {
        Exit::usage(format!("the path {} is not UTF-8; give a --url", path.display()))
    })?;
    let encoded: Vec<_> = text.split('/').map(encoding::encode).collect();
    Ok(format!("sqlite:{}", encoded.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(state: Option<&str>, home: Option<&str>) -> Option<String> {
        let path = directory(state.map(OsString::from), home.map(OsString::from)).ok()?;
        path.to_str().map(str::to_owned)
    }

    #[test]
    fn the_state_directory_comes_first_and_must_be_absolute() {
        assert_eq!(dir(Some("/s"), Some("/h")).as_deref(), Some("/s/lockkit"));
        assert_eq!(dir(Some("s"), Some("/h")).as_deref(), Some("/h/.local/state/lockkit"));
        assert_eq!(dir(Some(""), Some("/h")).as_deref(), Some("/h/.local/state/lockkit"));
        assert_eq!(dir(None, Some("")), None);
        assert_eq!(dir(None, None), None);
    }

    #[test]
    fn odd_paths_become_proper_urls() {
        let url = url_of(Path::new("/a b/100%/c?d#e/locks.db")).unwrap();
        assert_eq!(url, "sqlite:/a%20b/100%25/c%3Fd%23e/locks.db");
    }
}
