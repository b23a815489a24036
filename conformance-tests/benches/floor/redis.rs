//! The floor of `redis:`: `SET NX PX` and a script that compares and deletes, on one connection for
//! all tasks. No fence, which Redis keeps nothing of, and nobody is told of the release.

use std::sync::Arc;

use conformance_tests::async_trait;
use conformance_tests::measure::{Bare, Floor};
use conformance_tests::servers::Redis;
use lockkit_core::url::ConnectUrl;
use lockkit_core::{DistributedLock, Token};
use lockkit_redis::RedisLock;
use redis::aio::MultiplexedConnection;
use redis::{Script, Value};

const COMPARE_AND_DELETE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                                  return redis.call('DEL', KEYS[1]) end return 0";

const TTL_MILLIS: u64 = 30_000;

/// The server: one of its own, or the one that `LOCKKIT_URL_REDIS` names.
pub(crate) struct Place {
    url: String,
    _server: Option<Redis>,
}

impl Place {
    pub(crate) fn new() -> Self {
        if let Ok(url) = std::env::var("LOCKKIT_URL_REDIS") {
            return Self { url, _server: None };
        }
        let server = Redis::start().expect("a redis-server");
        Self { url: format!("redis://{}", server.address()), _server: Some(server) }
    }

    /// The lock, with these parameters in its URL.
    pub(crate) fn lock(&self, parameters: &str) -> Arc<dyn DistributedLock> {
        let url = ConnectUrl::parse(&format!("{}?{parameters}", self.url)).expect("a URL");
        Arc::new(RedisLock::from_url(&url).expect("a URL"))
    }

    pub(crate) async fn floor(&self) -> Arc<dyn Floor> {
        let client = redis::Client::open(self.url.as_str()).expect("a URL");
        let connection = client.get_multiplexed_async_connection().await.expect("a connection");
        Arc::new(RedisFloor { connection, release: Script::new(COMPARE_AND_DELETE) })
    }
}

#[derive(Clone)]
struct RedisFloor {
    connection: MultiplexedConnection,
    release: Script,
}

struct RedisBare {
    floor: RedisFloor,
    token: String,
}

#[async_trait]
impl Floor for RedisFloor {
    async fn open(&self) -> Box<dyn Bare> {
        Box::new(RedisBare { floor: self.clone(), token: String::new() })
    }
}

#[async_trait]
impl Bare for RedisBare {
    async fn acquire(&mut self, key: &str) -> bool {
        self.token = Token::new().to_string();
        let mut set = redis::cmd("SET");
        set.arg(key).arg(&self.token).arg("NX").arg("PX").arg(TTL_MILLIS);
        let answer: Value = set.query_async(&mut self.floor.connection).await.expect("an answer");
        answer == Value::Okay
    }

    async fn release(&mut self, key: &str) {
        let mut script = self.floor.release.key(key);
        let freed: i64 = script
            .arg(&self.token)
            .invoke_async(&mut self.floor.connection)
            .await
            .expect("an answer");
        assert_eq!(freed, 1, "the floor lost a claim");
    }
}
