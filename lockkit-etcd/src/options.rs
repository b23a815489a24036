//! What is particular to locks in etcd.

use crate::keys::Prefix;

/// What is particular to locks in etcd. The URL parameter has the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EtcdOptions {
    /// What stands before every key. Empty to share locks with other languages' clients and with
    /// `etcdctl lock` under the plain name. At most 128 bytes. Default: `lockkit:`.
    pub prefix: String,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self { prefix: Prefix::DEFAULT.to_owned() }
    }
}
