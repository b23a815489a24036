//! What a hand-over costs the server, by its own counters, and who gets the key next.

#![cfg(test)] // for clippy: the helpers here may panic as the tests may

#[path = "handover/children.rs"]
mod children;
#[path = "handover/cost.rs"]
mod cost;
#[path = "handover/counters.rs"]
mod counters;
#[path = "handover/fairness.rs"]
mod fairness;
#[path = "handover/line.rs"]
mod line;
