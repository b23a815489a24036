//! A key space that no other case shares.

use std::path::{Path, PathBuf};

use lockkit_core::url::ConnectUrl;

use crate::scratch;
use crate::subject::Subject;

/// A fresh name and a fresh directory, and the URL that is made with them.
#[derive(Debug)]
pub(crate) struct Space {
    url: String,
    dir: tempfile::TempDir,
}

impl Space {
    /// Made from a URL with gaps: that of [`template`].
    pub(crate) fn fresh(template: &str) -> Self {
        let dir = scratch::directory("lockkit-case-").expect("a directory");
        let name = format!("t{:x}{:08x}", std::process::id(), fastrand::u32(..));
        let path = dir.path().to_str().expect("a temporary directory with a UTF-8 name");
        let url = template.replace("{space}", &name).replace("{dir}", path);
        Self { url, dir }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The URL with one more parameter.
    pub(crate) fn url_with(&self, parameter: &str) -> String {
        let separator = if self.url.contains('?') { '&' } else { '?' };
        format!("{}{separator}{parameter}", self.url)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        let dir: &Path = self.dir.path();
        dir.join(name)
    }
}

/// The variable that names a server.
pub(crate) fn variable(subject: &dyn Subject) -> String {
    format!("LOCKKIT_URL_{}", subject.name().to_uppercase().replace('-', "_"))
}

/// The URL with gaps that the user has named, or that the suite's own process has.
pub(crate) fn given(subject: &dyn Subject) -> Option<String> {
    std::env::var(variable(subject)).ok()
}

/// The URL with gaps of a process that is one case.
pub(crate) fn template(subject: &dyn Subject) -> String {
    given(subject).unwrap_or_else(|| subject.url().to_owned())
}

pub(crate) fn parse(url: &str) -> ConnectUrl {
    ConnectUrl::parse(url).expect("the subject's URL")
}
