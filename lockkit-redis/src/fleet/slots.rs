//! Which server has which slot, as the servers of a cluster tell it.

use redis::Value;

use crate::answer;
use crate::target::Address;

/// How many slots there are.
pub(super) const SLOTS: u16 = 16_384;

/// A cluster as one of its servers sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct View {
    /// First and last slot, and the primary that has them.
    pub(super) ranges: Vec<(u16, u16, Address)>,
    /// Grows with whatever changes owners: tells whose view is newer.
    pub(super) epoch: u64,
    /// Whether that server takes part in the cluster, as far as it can tell.
    pub(super) works: bool,
}

/// Reads the answers to `CLUSTER SLOTS` and `CLUSTER INFO` of the server at `asked`; `None` if
/// they are none.
pub(super) fn read(asked: &Address, answers: &[Value]) -> Option<View> {
    let [Value::Array(ranges), info @ ..] = answers else { return None };
    let ranges = ranges.iter().map(|r| range(asked, r)).collect::<Option<Vec<_>>>()?;
    let info = info.first().and_then(|info| answer::text(info).ok()).unwrap_or_default();
    let says = |name: &str| info.lines().find_map(|line| line.trim_end().strip_prefix(name));
    let epoch = says("cluster_current_epoch:").and_then(|epoch| epoch.parse().ok());
    let works = says("cluster_state:").is_none_or(|state| state == "ok");
    Some(View { ranges, epoch: epoch.unwrap_or(0), works })
}

fn range(asked: &Address, value: &Value) -> Option<(u16, u16, Address)> {
    let Value::Array(parts) = value else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = &parts[..] else {
        return None;
    };
    let slot = |n: &i64| u16::try_from(*n).ok().filter(|n| *n < SLOTS);
    let [host, Value::Int(port), ..] = &primary[..] else { return None };
    let host = match host {
        Value::Nil => String::new(),
        host => answer::text(host).ok()?,
    };
    Some((slot(first)?, slot(last)?, address(asked, &host, u16::try_from(*port).ok()?)?))
}

/// Reads where `MOVED slot host:port` or `ASK slot host:port`, said by `asked`, leads.
pub(super) fn hint(asked: &Address, detail: &str) -> Option<Address> {
    let (host, port) = detail.split_whitespace().nth(1)?.rsplit_once(':')?;
    address(asked, host, port.parse().ok()?)
}

/// A server that does not know its own name leaves it out: then it is the host that was asked.
fn address(asked: &Address, host: &str, port: u16) -> Option<Address> {
    let host = if host.is_empty() || host == "?" { &asked.host } else { host };
    (port != 0).then(|| Address { host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, port: u16) -> Address {
        Address { host: host.to_owned(), port }
    }

    fn bytes(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn slots(first: i64, last: i64, host: Value, port: i64) -> Value {
        let primary = Value::Array(vec![host, Value::Int(port), bytes("id")]);
        let replica = Value::Array(vec![bytes("r"), Value::Int(9), bytes("id")]);
        Value::Array(vec![Value::Int(first), Value::Int(last), primary, replica])
    }

    #[test]
    fn a_view_is_read() {
        let ranges = Value::Array(vec![
            slots(0, 99, bytes("10.0.0.1"), 7000),
            slots(100, 16383, Value::Nil, 7001),
        ]);
        let info = bytes("cluster_state:ok\r\ncluster_current_epoch:42\r\n");
        let view = read(&at("me", 1), &[ranges.clone(), info]).unwrap();
        let expected = vec![(0, 99, at("10.0.0.1", 7000)), (100, 16383, at("me", 7001))];
        assert_eq!(view, View { ranges: expected, epoch: 42, works: true });
        let down = read(&at("me", 1), &[ranges.clone(), bytes("cluster_state:fail\r\n")]);
        assert!(!down.unwrap().works);
        assert!(read(&at("me", 1), &[ranges]).unwrap().works, "may not ask");
    }

    #[test]
    fn odd_answers_are_none() {
        for odd in [
            Value::Nil,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![slots(0, 16384, bytes("h"), 1)]),
            Value::Array(vec![slots(-1, 1, bytes("h"), 1)]),
            Value::Array(vec![slots(0, 1, bytes("h"), 0)]),
            Value::Array(vec![slots(0, 1, bytes("h"), 70_000)]),
            Value::Array(vec![slots(0, 1, Value::Int(3), 1)]),
        ] {
            assert_eq!(read(&at("me", 1), std::slice::from_ref(&odd)), None, "{odd:?}");
        }
        assert_eq!(read(&at("me", 1), &[]), None);
    }

    #[test]
    fn hints_are_read() {
        let me = at("me", 1);
        assert_eq!(hint(&me, "3999 10.0.0.1:6381"), Some(at("10.0.0.1", 6381)));
        assert_eq!(hint(&me, "3999 ::1:6381"), Some(at("::1", 6381)));
        assert_eq!(hint(&me, "3999 :6381"), Some(at("me", 6381)));
        assert_eq!(hint(&me, "3999 ?:6381"), Some(at("me", 6381)));
        for odd in ["", "3999", "3999 h", "3999 h:", "3999 h:0", "3999 h:70000"] {
            assert_eq!(hint(&me, odd), None, "{odd}");
        }
    }
}
