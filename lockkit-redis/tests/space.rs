//! What many names and many claims leave: nothing, in the server and in the client.

#![cfg(test)] // for clippy: the helpers here may panic as the tests may

mod clients;
#[path = "space/fences.rs"]
mod fences;
#[path = "space/memory.rs"]
mod memory;
#[path = "space/names.rs"]
mod names;
#[path = "space/pairs.rs"]
mod pairs;
