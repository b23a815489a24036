//! Hosts, user and password: the part of a URL between `//` and the first slash.

use std::fmt;

use crate::error::{Error, Result};
use crate::url::{ConnectUrl, Params, decode};

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// A name or an IP address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Address {
    /// Reads `host`, `host:port` or `[IPv6]:port`; `port` is taken if the text names none. `None`
    /// if it is something else.
    pub fn parse(text: &str, port: u16) -> Option<Self> {
        let (host, given) = if let Some(rest) = text.strip_prefix('[') {
            let (host, rest) = rest.split_once(']')?;
            (host, rest.strip_prefix(':').or_else(|| rest.is_empty().then_some("")))
        } else {
            match text.split_once(':') {
                Some((host, port)) => (host, Some(port).filter(|port| !port.is_empty())),
                None => (text, Some("")),
            }
        };
        let given = given?;
        let port = if given.is_empty() { port } else { given.parse().ok().filter(|p| *p != 0)? };
        let host = decode("a host", host).ok()?;
        let plain = |c: char| c.is_alphanumeric() || "-_.:%".contains(c);
        (!host.is_empty() && host.chars().all(plain)).then_some(Self { host, port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// `//[user[:password]@]hosts[/path]`, decoded as far as its parts must not be split any more.
#[derive(Clone, PartialEq, Eq)]
pub struct Authority {
    username: Option<String>,
    password: Option<String>,
    hosts: String,
    path: Option<String>,
    scheme: String,
}

impl Authority {
    /// Takes what `url` says behind its scheme apart.
    ///
    /// # Errors
    /// [`Error::Configuration`] if it does not begin with two slashes, if user or password hold
    /// what must be percent-encoded, or if the path has more than one part.
    pub fn of(url: &ConnectUrl) -> Result<Self> {
        let scheme = url.scheme();
        let Some(rest) = url.rest().strip_prefix("//") else {
            return Err(Error::configuration(format!(
                "after `{scheme}:` come two slashes and a host, as in `{scheme}://localhost`"
            )));
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(user), hosts),
            None => (None, authority),
        };
        let (username, password) = match user {
            // A raw `@` or `:` in a password could be meant either way.
            Some(user) if user.contains('@') || user.matches(':').count() > 1 => {
                return Err(Error::configuration(
                    "the user or the password holds a raw `@` or `:`; write them \
                     percent-encoded, as `%40` and `%3A`",
                ));
            }
            Some(user) => {
                let (name, password) = user.split_once(':').unwrap_or((user, ""));
                (text("the user", name)?, text("the password", password)?)
            }
            None => (None, None),
        };
        if path.contains(['/', '@']) {
            return Err(Error::configuration(
                "the URL has more after its host than one name or number; if a slash or an `@` \
                 belongs to the password, write it as `%2F` or `%40`",
            ));
        }
        let path = text("the path", path)?;
        Ok(Self { username, password, hosts: hosts.to_owned(), path, scheme: scheme.to_owned() })
    }

    /// What stands behind the first slash, if anything does.
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// The hosts, with `port` where none is given.
    ///
    /// # Errors
    /// [`Error::Configuration`] for what is no host, and for one that is named twice.
    pub fn addresses(&self, port: u16) -> Result<Vec<Address>> {
        let mut all: Vec<Address> = Vec::new();
        for host in self.hosts.split(',') {
            let address = Address::parse(host, port).ok_or_else(|| {
                Error::configuration(format!(
                    "`{}:` takes hosts as `name`, `name:port` or `[IPv6]:port`, with commas \
                     between them; one of them is something else",
                    self.scheme
                ))
            })?;
            if all.contains(&address) {
                return Err(Error::configuration(format!("`{address}` is named twice")));
            }
            all.push(address);
        }
        Ok(all)
    }

    /// The user and the password, which may also be the parameters `username` and `password`.
    ///
    /// # Errors
    /// [`Error::Configuration`] for one that is given twice, and for a user without a password.
    pub fn credentials(&self, params: &mut Params) -> Result<(Option<String>, Option<String>)> {
        let either = |what: &str, a: Option<String>, b: Option<String>| match (a, b) {
            (Some(_), Some(_)) => Err(Error::configuration(format!(
                "the {what} is given twice: in the URL and as a parameter"
            ))),
            (a, b) => Ok(a.or(b)),
        };
        let username = either("user", self.username.clone(), params.text("username")?)?;
        let password = either("password", self.password.clone(), params.text("password")?)?;
        if username.is_some() && password.is_none() {
            return Err(Error::configuration(
                "a user without a password; write `user:password@host`",
            ));
        }
        Ok((username, password))
    }
}

impl fmt::Debug for Authority {
    /// Without names and passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authority({}:…)", self.scheme)
    }
}

fn text(what: &str, encoded: &str) -> Result<Option<String>> {
    Ok(Some(decode(what, encoded)?).filter(|text| !text.is_empty()))
}
