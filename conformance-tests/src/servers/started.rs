//! Servers that a whole run of the suite works with.

use std::any::Any;
use std::fmt;

/// Servers, and the URL by which the suite's cases reach them. They live as long as this.
pub struct Started {
    url: String,
    servers: Box<dyn Any + Send + Sync>,
}

impl Started {
    /// `servers`, reached by `url`; in it `{space}` and `{dir}` stand for a name and a directory
    /// that are fresh for each case.
    pub fn new(url: impl Into<String>, servers: impl Any + Send + Sync) -> Self {
        Self { url: url.into(), servers: Box::new(servers) }
    }

    /// The URL that was given.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The servers, if they are an `S`.
    pub fn servers<S: Any>(&self) -> Option<&S> {
        self.servers.downcast_ref()
    }
}

impl fmt::Debug for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may hold a password.
        f.debug_struct("Started").finish_non_exhaustive()
    }
}
