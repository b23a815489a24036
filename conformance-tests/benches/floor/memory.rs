//! The floor of `memory:`: a map behind a mutex.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use conformance_tests::async_trait;
use conformance_tests::measure::{Bare, Floor};
use lockkit_core::{DistributedLock, Memory, Token};

#[derive(Default)]
struct Map {
    held: HashMap<String, (Token, u64)>,
    fence: u64,
}

struct MapFloor(Arc<Mutex<Map>>);

struct MapBare(Arc<Mutex<Map>>);

pub(crate) fn both() -> (Arc<dyn Floor>, Arc<dyn DistributedLock>) {
    (Arc::new(MapFloor(Arc::default())), Arc::new(Memory::new()))
}

#[async_trait]
impl Floor for MapFloor {
    async fn open(&self) -> Box<dyn Bare> {
        Box::new(MapBare(Arc::clone(&self.0)))
    }
}

#[async_trait]
impl Bare for MapBare {
    async fn acquire(&mut self, key: &str) -> bool {
        let mut map = self.0.lock().expect("no panic");
        if map.held.contains_key(key) {
            return false;
        }
        map.fence += 1;
        let claim = (Token::new(), map.fence);
        map.held.insert(key.to_owned(), claim).is_none()
    }

    async fn release(&mut self, key: &str) {
        let mut map = self.0.lock().expect("no panic");
        map.held.remove(key).expect("it was acquired");
    }
}
