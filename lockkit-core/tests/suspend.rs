//! A machine that slept: the clock has gone on, and no timer has fired yet.

#![cfg(test)] // for clippy: the helpers here may panic as the tests may

mod common;

use std::time::Duration;

use common::MS;
use lockkit_core::{Clock, LockExt, LossReason, Memory, Request, Settings};

#[tokio::test]
async fn the_first_look_after_a_suspend_tells_the_loss() {
    let clock = Clock::adjustable();
    let memory = Memory::with(Settings::default(), clock.clone());
    let guard = memory.acquire("k").await.unwrap();
    assert!(guard.is_held());
    clock.advance(Duration::from_secs(300));
    assert!(!guard.is_held());
    assert!(guard.loss().is_some(), "over, but not told: a late renewal could revive it");
    assert_eq!(guard.remaining(), Duration::ZERO);
    let lost = guard.lost().await;
    assert!(matches!(lost.reason, LossReason::Expired { .. }));
    assert!(guard.release().await.unwrap_err().is_lost());
}

#[tokio::test]
async fn whoever_awaits_the_loss_is_told_too() {
    let clock = Clock::adjustable();
    let memory = Memory::with(Settings::default(), clock.clone());
    let guard = memory.acquire(Request::new("k").ttl(MS(300))).await.unwrap();
    let waiting = tokio::spawn(guard.lost());
    // Let it wait, then sleep on: its next renewal is due within a third of the TTL.
    tokio::task::yield_now().await;
    clock.advance(MS(300));
    let lost = tokio::time::timeout(MS(300), waiting).await.unwrap().unwrap();
    assert_eq!(lost.reason.reason(), "expired");
}

#[tokio::test]
async fn an_answer_read_after_a_suspend_is_no_grant() {
    let clock = Clock::adjustable();
    clock.advance(Duration::from_secs(60));
    // The store answers on the real clock, a minute behind: as if the process had been stopped
    // between the answer and its reading.
    let memory = Memory::with(Settings::default(), clock);
    let error = memory.try_acquire("k").await.unwrap_err();
    assert_eq!(error.reason(), "unavailable");
    assert!(error.to_string().contains("after the end of the lease"), "{error}");
}
