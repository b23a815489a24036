//! What Redis promises, and under which failures it does not.

use std::time::Duration;

use lockkit_core::{Capabilities, Consistency, Fencing, LeaseKind};

use crate::options::RedisOptions;
use crate::target::Servers;

pub(crate) fn capabilities(servers: &Servers, options: &RedisOptions) -> Capabilities {
    let (name, sentence) = match servers {
        Servers::One(_) => ("redis", ONE),
        Servers::Sentinel { .. } => ("redis+sentinel", SENTINEL),
        Servers::Cluster(_) => ("redis+cluster", CLUSTER),
        Servers::Redlock(_) => ("redlock", QUORUM),
    };
    let quorum = matches!(servers, Servers::Redlock(_));
    let mut capabilities = Capabilities::new(name, Consistency::Ap(sentence), LeaseKind::Expires);
    capabilities.smallest_ttl = Duration::from_millis(if quorum { 500 } else { 100 });
    capabilities.fencing =
        if options.fences && !quorum { Fencing::UnlessClockStepsBack } else { Fencing::None };
    capabilities.fair = options.fair && !quorum;
    capabilities.shared = true;
    capabilities.permits = !quorum;
    capabilities.stored_reentrancy = !quorum;
    capabilities.inspection = true;
    capabilities.forced_release = true;
    capabilities.push = true;
    capabilities.least_version = Some("5.0");
    capabilities
}

const ONE: &str = "two holders are possible after the server restarts without its last writes, \
                   or when its clock steps ahead; the older one is told at its next renewal";

const SENTINEL: &str = "two holders are possible when a failover promotes a replica that has not \
                        got the claim yet, and for as long as the old primary takes writes and a \
                        client has not heard of the new one (moments, unless it is cut off from \
                        the sentinels), and when a clock steps ahead; the older one is told at its \
                        next renewal";

const CLUSTER: &str = "two holders are possible when a replica takes a slot over that has not got \
                       the claim yet, and for as long as a primary that is cut off from the others \
                       takes writes (the cluster's node timeout), and when a clock steps ahead; \
                       the older one is told at its next renewal";

const QUORUM: &str = "two holders are possible when within a TTL so many servers restart without \
                      their last writes that another quorum can form, or when their clocks step \
                      ahead; the older one is told at its next renewal";
