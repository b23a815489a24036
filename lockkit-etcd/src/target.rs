//! What a URL says: which servers, how to reach them, and how to lock there.

use std::fmt;
use std::time::Duration;

use lockkit_core::url::{Address, Authority, ConnectUrl, TlsFiles};
use lockkit_core::{Error, Result, Settings};

use crate::keys::Prefix;
use crate::options::EtcdOptions;

/// Everything that a URL says.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) servers: Vec<Address>,
    pub(crate) access: Access,
    pub(crate) settings: Settings,
    pub(crate) options: EtcdOptions,
}

/// How to get in.
#[derive(Clone, Default)]
pub(crate) struct Access {
    pub(crate) user: Option<(String, String)>,
    pub(crate) tls: Option<TlsFiles>,
    /// `None`: as long as an exchange may take.
    pub(crate) connect_timeout: Option<Duration>,
}

impl fmt::Debug for Access {
    /// Without names and passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("tls", &self.tls)
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}

const PORT: u16 = 2379;

/// Reads a URL.
pub(crate) fn read(url: &ConnectUrl) -> Result<Target> {
    let scheme = url.scheme();
    if !matches!(scheme, "etcd" | "etcds") {
        return Err(Error::configuration(format!("`{scheme}:` is no etcd scheme")));
    }
    let authority = Authority::of(url)?;
    if authority.path().is_some() {
        return Err(Error::configuration(
            "the URL has more after its hosts; what stands before the keys is `prefix=`",
        ));
    }
    let servers = authority.addresses(PORT)?;
    let mut params = url.clone().into_params();
    let settings = Settings::default().read(&mut params)?;
    let user = match authority.credentials(&mut params)? {
        (Some(name), Some(password)) => Some((name, password)),
        (None, Some(_)) => {
            return Err(Error::configuration(
                "a password without a user; write `user:password@host`",
            ));
        }
        (_, None) => None,
    };
    let tls = TlsFiles::read(&mut params, scheme == "etcds", "write `etcds:`")?;
    let connect_timeout = params.duration("connect_timeout")?;
    let mut options = EtcdOptions::default();
    if let Some(prefix) = params.text_or_empty("prefix") {
        Prefix::new(&prefix)?;
        options.prefix = prefix;
    }
    params.finish(scheme)?;
    let access = Access { user, tls, connect_timeout };
    Ok(Target { servers, access, settings, options })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn target(url: &str) -> Result<Target> {
        read(&ConnectUrl::parse(url)?)
    }

    fn at(host: &str, port: u16) -> Address {
        Address { host: host.to_owned(), port }
    }

    #[test]
    fn all_forms() {
        let one = target("etcd://h").unwrap();
        assert_eq!(one.servers, [at("h", 2379)]);
        assert_eq!((one.access.tls, one.options.prefix.as_str()), (None, "lockkit:"));
        let three = target("etcds://a,b:1,[::1]:7?prefix=&tls_ca=/ca").unwrap();
        assert_eq!(three.servers, [at("a", 2379), at("b", 1), at("::1", 7)]);
        assert_eq!(three.access.tls.unwrap().ca.unwrap().to_str(), Some("/ca"));
        assert_eq!(three.options.prefix, "");
    }

    #[test]
    fn passwords_are_decoded_and_never_shown() {
        for url in ["etcd://me%3Atoo:p%40ss@h", "etcd://h?username=me%3Atoo&password=p%40ss"] {
            let target = target(url).unwrap();
            let user = target.access.user.clone().unwrap();
            assert_eq!(user, ("me:too".to_owned(), "p@ss".to_owned()));
            let shown = format!("{target:?}");
            assert!(!shown.contains("p@ss") && !shown.contains("me:too"), "{shown}");
        }
    }

    #[test]
    fn wrong_urls_say_what_is_right() {
        for (url, hint) in [
            ("etcd:h", "etcd://localhost"),
            ("etcd://", "name:port"),
            ("etcd://h:0", "name:port"),
            ("etcd://h/x", "prefix="),
            ("etcd://a,a", "named twice"),
            ("etcd://u:p@ss@h", "%40"),
            ("etcd://u@h", "user:password"),
            ("etcd://:p@h", "user:password"),
            ("etcd://u:p@h?password=q", "given twice"),
            ("etcd://h?tls_ca=/x", "etcds:"),
            ("etcds://h?tls_cert=/x", "go together"),
            ("etcd://h?db=1", "it knows `connect_timeout`"),
        ] {
            let error = target(url).unwrap_err().to_string();
            assert!(error.contains(hint), "{url}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_url_is_read_or_refused_without_a_panic(rest in "\\PC*") {
            if let Ok(url) = ConnectUrl::parse(&format!("etcd://{rest}")) {
                let _ = read(&url);
            }
        }
    }
}
