//! What the backend promises, and what not.

use std::time::Duration;

use lockkit_core::{Capabilities, Consistency, Fencing, LeaseKind};

pub(crate) fn capabilities() -> Capabilities {
    let mut capabilities = Capabilities::new("etcd", Consistency::Cp(SENTENCE), LeaseKind::Expires);
    capabilities.smallest_ttl = Duration::from_secs(1);
    capabilities.fencing = Fencing::Strict;
    capabilities.fair = true;
    capabilities.shared = true;
    capabilities.permits = true;
    capabilities.inspection = true;
    capabilities.forced_release = true;
    capabilities.push = true;
    capabilities.least_version = Some("3.4");
    capabilities
}

const SENTENCE: &str = "never two holders, as long as most of the members keep what they have \
                        written and no leader that was stuck for a TTL revokes leases that live \
                        (seen before etcd 3.4.31 and 3.5.13); a key that is taken away by that or \
                        by hand is noticed by its holder within TTL/3";
