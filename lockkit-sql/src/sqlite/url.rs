//! Where the file lies, and what the URL says about it.

use std::path::{Path, PathBuf};

use lockkit_core::url::{ConnectUrl, Params, decode};
use lockkit_core::{Error, Result, Settings};

use super::table::DEFAULT_NAME;

/// What can be set for SQLite beyond [`Settings`].
///
/// In a URL: `sqlite:locks.db?table=our_locks&migrate=false`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// The table (`table=`). Default: `lockkit_claims`. Clients that share locks name the same.
    pub table: String,
    /// Whether the file and the table are created when they are not there (`migrate=`). Default:
    /// yes. See [`schema`](crate::schema) for doing it yourself.
    pub migrate: bool,
    /// Whether to accept a file system that other machines may reach (`any_filesystem=`), on your
    /// word that none does. Default: no.
    pub any_filesystem: bool,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { table: DEFAULT_NAME.to_owned(), migrate: true, any_filesystem: false }
    }
}

/// What a URL says.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) path: PathBuf,
    pub(super) settings: Settings,
    pub(super) options: SqliteOptions,
}

/// Reads `sqlite:path`, `sqlite://path` or `sqlite:///absolute/path`.
pub(super) fn read(url: &ConnectUrl) -> Result<Target> {
    let rest = url.rest();
    let path = decode("the path", rest.strip_prefix("//").unwrap_or(rest))?;
    let mut params = url.clone().into_params();
    refuse_mode(&params)?;
    let settings = Settings::default().read(&mut params)?;
    let defaults = SqliteOptions::default();
    let options = SqliteOptions {
        table: params.text("table")?.unwrap_or(defaults.table),
        migrate: params.flag("migrate")?.unwrap_or(defaults.migrate),
        any_filesystem: params.flag("any_filesystem")?.unwrap_or(defaults.any_filesystem),
    };
    params.finish("sqlite")?;
    Ok(Target { path: absolute(Path::new(&path))?, settings, options })
}

/// Other users of such URLs know `mode=`; here it could only be wrong.
fn refuse_mode(params: &Params) -> Result<()> {
    if params.clone().text("mode")?.is_none() {
        return Ok(());
    }
    Err(Error::configuration(
        "`sqlite:` takes no `mode`: locks have to be written, so the file is always opened for \
         reading and writing (and created, unless `migrate=false`)",
    ))
}

/// Checks a path and makes it absolute: connections are opened later, perhaps after the process
/// has changed its directory.
pub(super) fn absolute(path: &Path) -> Result<PathBuf> {
    let Some(text) = path.to_str() else {
        return Err(Error::configuration("the path of a SQLite database must be UTF-8"));
    };
    if text.is_empty() || text == ":memory:" {
        return Err(Error::configuration(
            "`sqlite:` needs the path of a file, which other processes can open too; for locks \
             within this process write `memory:`",
        ));
    }
    if text.starts_with("file:") {
        return Err(Error::configuration("write the path of the SQLite file without `file:`"));
    }
    if text.contains('\0') {
        return Err(Error::configuration("the path of a SQLite database holds a zero byte"));
    }
    if text.ends_with('/') {
        return Err(Error::configuration(format!("`{text}` is a directory; name a file in it")));
    }
    std::path::absolute(path)
        .map_err(|e| Error::configuration("the current directory cannot be told").with_source(e))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn target(url: &str) -> Result<Target> {
        read(&ConnectUrl::parse(url)?)
    }

    #[test]
    fn paths() {
        let here = std::env::current_dir().unwrap();
        for (url, path) in [
            ("sqlite:locks.db", here.join("locks.db")),
            ("sqlite://locks.db", here.join("locks.db")),
            ("sqlite://a b.db", here.join("a b.db")),
            ("sqlite:a%20b%3F.db", here.join("a b?.db")),
            ("sqlite:///abs.db", "/abs.db".into()),
            ("sqlite:/abs/%C3%A9.db", "/abs/é.db".into()),
            ("SQLITE:../x.db", here.join("../x.db")),
        ] {
            assert_eq!(target(url).unwrap().path, path, "{url}");
        }
    }

    #[test]
    fn wrong_urls_say_what_is_right() {
        for (url, hint) in [
            ("sqlite:", "`memory:`"),
            ("sqlite://", "`memory:`"),
            ("sqlite::memory:", "`memory:`"),
            ("sqlite://:memory:", "`memory:`"),
            ("sqlite:file:x.db", "without `file:`"),
            ("sqlite:x.db?mode=ro", "takes no `mode`"),
            ("sqlite:x.db?mode=memory", "takes no `mode`"),
            ("sqlite:x.db?cache=shared", "`any_filesystem`, `migrate`, `op_timeout`"),
            ("sqlite:x%00.db", "zero byte"),
            ("sqlite:dir/", "is a directory"),
            ("sqlite:x.db?migrate=no", "`true`, `false`"),
        ] {
            let error = target(url).unwrap_err();
            assert!(matches!(error, Error::Configuration(_)), "{url}: {error}");
            assert!(error.to_string().contains(hint), "{url}: {error}");
        }
    }

    #[test]
    fn parameters() {
        let target = target("sqlite:x?table=t&migrate=false&any_filesystem=true&ttl=2s").unwrap();
        assert_eq!(target.settings.ttl, Duration::from_secs(2));
        let expected =
            SqliteOptions { table: "t".to_owned(), migrate: false, any_filesystem: true };
        assert_eq!(target.options, expected);
    }
}
