//! What a URL says: which servers, how to reach them, and how to lock there.

use std::fmt;
use std::time::Duration;

pub(crate) use lockkit_core::url::{Address, TlsFiles};
use lockkit_core::url::{Authority, ConnectUrl, Params};
use lockkit_core::{Error, Result, Settings};
use redis::{ConnectionAddr, ConnectionInfo};

use crate::keys::Prefix;
use crate::options::{Layout, RedisOptions};

/// Everything that a URL says.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) servers: Servers,
    pub(crate) access: Access,
    pub(crate) settings: Settings,
    pub(crate) options: RedisOptions,
}

impl Target {
    /// What a client that exists already says.
    pub(crate) fn of_client(
        client: &redis::Client,
        settings: Settings,
        options: RedisOptions,
    ) -> Self {
        let info = client.get_connection_info();
        let (host, port) = match info.addr() {
            ConnectionAddr::Tcp(host, port) => (host.clone(), *port),
            ConnectionAddr::TcpTls { host, port, .. } => (host.clone(), *port),
            // A socket on this machine; the name is for messages only.
            other => (other.to_string(), 0),
        };
        let access = Access {
            database: info.redis_settings().db(),
            given: Some(info.clone()),
            ..Access::default()
        };
        Self { servers: Servers::One(Address { host, port }), access, settings, options }
    }
}

/// Which servers hold the locks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Servers {
    /// One server, always the same.
    One(Address),
    /// The primary that the sentinels name.
    Sentinel { sentinels: Vec<Address>, master: String },
    /// A cluster, reached through any of these.
    Cluster(Vec<Address>),
    /// Independent servers; a claim stands on most of them.
    Redlock(Vec<Address>),
}

/// How to get in.
#[derive(Clone, Default)]
pub(crate) struct Access {
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    /// Of the sentinels, which have users of their own.
    pub(crate) sentinel_username: Option<String>,
    pub(crate) sentinel_password: Option<String>,
    pub(crate) database: i64,
    pub(crate) tls: Option<TlsFiles>,
    /// `None`: as long as an exchange may take.
    pub(crate) connect_timeout: Option<Duration>,
    /// All of it, from a client that the application has.
    pub(crate) given: Option<ConnectionInfo>,
}

impl fmt::Debug for Access {
    /// Without names and passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("database", &self.database)
            .field("tls", &self.tls)
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}

const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// How many nodes Redlock takes: fewer than three outlive no failure, and every node more costs
/// every claim a request.
const REDLOCK_NODES: std::ops::RangeInclusive<usize> = 3..=9;

/// Reads a URL.
pub(crate) fn read(url: &ConnectUrl) -> Result<Target> {
    let scheme = url.scheme().to_owned();
    let authority = Authority::of(url)?;
    let port = if scheme == "redis+sentinel" { SENTINEL_PORT } else { REDIS_PORT };
    let addresses = authority.addresses(port)?;
    let servers = match scheme.as_str() {
        "redis" | "rediss" => Servers::One(only_one(addresses, &scheme)?),
        "redis+sentinel" => Servers::Sentinel {
            sentinels: addresses,
            master: authority.path().map(str::to_owned).ok_or_else(|| {
                Error::configuration(
                    "the URL names no primary; write `redis+sentinel://host,host,host/name`, \
                     with the name that the sentinels monitor it under",
                )
            })?,
        },
        "redis+cluster" => Servers::Cluster(addresses),
        "redlock" => Servers::Redlock(check_nodes(addresses)?),
        _ => return Err(Error::configuration(format!("`{scheme}:` is no Redis scheme"))),
    };
    let mut params = url.clone().into_params();
    let settings = Settings::default().read(&mut params)?;
    let access = access(&mut params, &authority, &scheme)?;
    let options = options(&mut params, &servers)?;
    params.finish(&scheme)?;
    Ok(Target { servers, access, settings, options })
}

fn only_one(mut addresses: Vec<Address>, scheme: &str) -> Result<Address> {
    match (addresses.pop(), addresses.len()) {
        (Some(address), 0) => Ok(address),
        _ => Err(Error::configuration(format!(
            "`{scheme}:` takes one host; for several write `redis+sentinel:`, `redis+cluster:` or \
             `redlock:`"
        ))),
    }
}

fn check_nodes(nodes: Vec<Address>) -> Result<Vec<Address>> {
    if REDLOCK_NODES.contains(&nodes.len()) {
        return Ok(nodes);
    }
    Err(Error::configuration(format!(
        "`redlock:` takes {} to {} independent servers (an odd number is best), and got {}",
        REDLOCK_NODES.start(),
        REDLOCK_NODES.end(),
        nodes.len()
    )))
}

fn access(params: &mut Params, authority: &Authority, scheme: &str) -> Result<Access> {
    let (username, password) = authority.credentials(params)?;
    let by_sentinel = scheme == "redis+sentinel";
    let (sentinel_username, sentinel_password) = if by_sentinel {
        (params.text("sentinel_username")?, params.text("sentinel_password")?)
    } else {
        (None, None)
    };
    Ok(Access {
        username,
        password,
        sentinel_username,
        sentinel_password,
        database: database(params, authority, scheme)?,
        tls: tls(params, scheme)?,
        connect_timeout: params.duration("connect_timeout")?,
        given: None,
    })
}

/// The path of the URL or `db`; of a URL for Sentinel only `db`, and a cluster has but one.
fn database(params: &mut Params, authority: &Authority, scheme: &str) -> Result<i64> {
    let given = params.number("db", 0..=i64::MAX.unsigned_abs())?;
    let given = given.map(|n| i64::try_from(n).unwrap_or(i64::MAX));
    let in_path = match authority.path() {
        Some(path) if scheme != "redis+sentinel" => {
            Some(path.parse::<i64>().ok().filter(|n| *n >= 0).ok_or_else(|| {
                Error::configuration(format!(
                    "after the host comes the number of a database, as in `{scheme}://host/0`"
                ))
            })?)
        }
        _ => None,
    };
    if given.is_some() && in_path.is_some() {
        return Err(Error::configuration(
            "the database is given twice: in the URL's path and as `db`",
        ));
    }
    let database = given.or(in_path).unwrap_or(0);
    if scheme == "redis+cluster" && database != 0 {
        return Err(Error::configuration("a cluster has only the database 0"));
    }
    Ok(database)
}

fn tls(params: &mut Params, scheme: &str) -> Result<Option<TlsFiles>> {
    let on = if scheme == "redis" || scheme == "rediss" {
        scheme == "rediss"
    } else {
        params.flag("tls")?.unwrap_or(false)
    };
    let how = if scheme == "redis" { "write `rediss:`" } else { "add `tls=true`" };
    TlsFiles::read(params, on, how)
}

fn options(params: &mut Params, servers: &Servers) -> Result<RedisOptions> {
    let mut options = RedisOptions::default();
    if let Some(prefix) = params.text_or_empty("prefix") {
        Prefix::new(&prefix)?;
        options.prefix = prefix;
    }
    if matches!(servers, Servers::Redlock(_)) {
        // Nothing of the rest holds on a quorum: no common clock, no common queue.
        return Ok(options);
    }
    if let Some(fences) = params.flag("fences")? {
        options.fences = fences;
    }
    if let Some(fair) = params.flag("fair")? {
        options.fair = fair;
    }
    let layouts = [("string", Layout::String), ("hash", Layout::Hash)];
    if let Some(layout) = params.choice("layout", &layouts)? {
        options.layout = layout;
    }
    if let Some(replicas) = params.number("wait_replicas", 1..=99)? {
        options.wait_replicas = u32::try_from(replicas).unwrap_or(u32::MAX);
    }
    if let Some(timeout) = params.duration("wait_timeout")? {
        if options.wait_replicas == 0 {
            return Err(Error::configuration(
                "`wait_timeout` says how long to wait for replicas; say for how many with \
                 `wait_replicas`",
            ));
        }
        if timeout.is_zero() {
            return Err(Error::configuration("`wait_timeout` must be longer than nothing"));
        }
        options.wait_timeout = timeout;
    }
    Ok(options)
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
        let servers = |url| target(url).unwrap().servers;
        assert_eq!(servers("redis://h"), Servers::One(at("h", 6379)));
        assert_eq!(servers("rediss://[::1]:7000/2"), Servers::One(at("::1", 7000)));
        assert_eq!(
            servers("redis+sentinel://a,b:1,c/main"),
            Servers::Sentinel {
                sentinels: vec![at("a", 26379), at("b", 1), at("c", 26379)],
                master: "main".to_owned()
            }
        );
        assert_eq!(
            servers("redis+cluster://a,b"),
            Servers::Cluster(vec![at("a", 6379), at("b", 6379)])
        );
        assert_eq!(
            servers("redlock://a,b,c"),
            Servers::Redlock(["a", "b", "c"].map(|host| at(host, 6379)).to_vec())
        );
    }

    #[test]
    fn passwords_are_decoded_and_never_shown() {
        for url in [
            "redis://me%3Atoo:p%40ss%2Fw%23r%3Dd%253D%3F@h/3",
            "redis://h/3?username=me%3Atoo&password=p%40ss%2Fw%23r%3Dd%253D%3F",
        ] {
            let target = target(url).unwrap();
            assert_eq!(target.access.username.as_deref(), Some("me:too"));
            assert_eq!(target.access.password.as_deref(), Some("p@ss/w#r=d%3D?"));
            assert_eq!(target.access.database, 3);
            let shown = format!("{target:?}");
            assert!(!shown.contains("p@ss") && !shown.contains("me:too"), "{shown}");
        }
        assert_eq!(target("redis://:pw@h").unwrap().access.password.as_deref(), Some("pw"));
    }

    #[test]
    fn wrong_urls_say_what_is_right() {
        for (url, hint) in [
            ("redis:h", "redis://localhost"),
            ("redis://", "name:port"),
            ("redis://h:0", "name:port"),
            ("redis://h:x", "name:port"),
            ("redis://a,b", "takes one host"),
            ("redis://h/x", "number of a database"),
            ("redis://h/1?db=2", "given twice"),
            ("redis://u:p@ss@h", "%40"),
            ("redis://u:p/ss@h", "%2F"),
            ("redis://u@h", "user:password"),
            ("redis://u:p@h?password=q", "given twice"),
            ("redis://h?tls_ca=/x", "rediss:"),
            ("redis+cluster://h?tls_ca=/x", "tls=true"),
            ("rediss://h?tls_cert=/x", "go together"),
            ("redis+sentinel://a,b", "names no primary"),
            ("redis+cluster://a/1", "only the database 0"),
            ("redlock://a,b", "3 to 9"),
            ("redlock://a,b,a", "named twice"),
            ("redlock://a,b,c?fair=true", "no parameter `fair`"),
            ("redis://h?prefix=a%7B", "must not hold"),
            ("redis://h?wait_timeout=1s", "wait_replicas"),
            ("redis://h?wait_replicas=1&wait_timeout=0s", "wait_timeout"),
            ("redis://h?layout=list", "`string`, `hash`"),
            ("redis://h?databse=1", "it knows"),
        ] {
            let error = target(url).unwrap_err().to_string();
            assert!(error.contains(hint), "{url}: {error}");
        }
    }

    #[test]
    fn an_empty_prefix_is_one() {
        assert_eq!(target("redis://h?prefix=").unwrap().options.prefix, "");
        assert_eq!(target("redis://h").unwrap().options.prefix, "lockkit:");
    }

    proptest! {
        #[test]
        fn any_url_is_read_or_refused_without_a_panic(rest in "\\PC*") {
            for scheme in ["redis", "redis+sentinel", "redlock"] {
                if let Ok(url) = ConnectUrl::parse(&format!("{scheme}://{rest}")) {
                    let _ = read(&url);
                }
            }
        }
    }
}
