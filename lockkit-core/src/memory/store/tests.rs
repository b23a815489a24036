//! Random histories of one key, under a clock that the test moves: whatever is asked in whatever
//! order, what is held stays within the rules.

use std::num::NonZeroU32;

use proptest::prelude::*;

use super::*;

const MS: fn(u64) -> Duration = Duration::from_millis;
const TTL: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy)]
enum Step {
    Attempt { who: usize, waits: Waits },
    Renew { who: usize },
    Release { who: usize },
    Force,
    Pass { ms: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let waits = prop_oneof![Just(Waits::No), Just(Waits::Somewhere), Just(Waits::InLine)];
    let step = prop_oneof![
        6 => (0..6_usize, waits).prop_map(|(who, waits)| Step::Attempt { who, waits }),
        2 => (0..6_usize).prop_map(|who| Step::Renew { who }),
        3 => (0..6_usize).prop_map(|who| Step::Release { who }),
        1 => Just(Step::Force),
        3 => (1..150_u64).prop_map(|ms| Step::Pass { ms }),
    ];
    prop::collection::vec(step, 1..120)
}

fn claims(modes: [Mode; 6]) -> Vec<Claim> {
    let key = Key::new("k").unwrap();
    modes.map(|mode| Claim::new(key.clone(), mode, TTL)).into()
}

/// What the test believes of one claim: until when it is held, and its fence.
type Belief = Option<(BootInstant, u64)>;

/// Runs the steps; `allowed` judges the modes of all that are held at the same time.
fn play(claims: &[Claim], steps: &[Step], allowed: impl Fn(&[Mode]) -> bool) {
    let mut store = Store::default();
    let mut now = BootInstant::from_nanos(1);
    let mut beliefs: Vec<Belief> = vec![None; claims.len()];
    let mut last_fence = 0;
    for step in steps {
        match *step {
            Step::Attempt { who, waits } => {
                let answer = store.attempt(&claims[who], waits, now).unwrap();
                if let Answer::Granted { fence } = answer {
                    let held = beliefs[who].filter(|(until, _)| *until > now);
                    match held {
                        Some((_, own)) => assert_eq!(own, fence, "a repeated grant"),
                        None => assert!(fence > last_fence, "fences grow"),
                    }
                    last_fence = last_fence.max(fence);
                    beliefs[who] = Some((now + TTL, fence));
                }
            }
            Step::Renew { who } => {
                let held = beliefs[who].is_some_and(|(until, _)| until > now);
                assert_eq!(store.extend(&claims[who], now + TTL, now), held, "renews what stands");
                if let Some((until, _)) = beliefs[who].as_mut().filter(|_| held) {
                    *until = now + TTL;
                }
            }
            Step::Release { who } => {
                let held = beliefs[who].take().is_some_and(|(until, _)| until > now);
                assert_eq!(store.release(&claims[who], now), held, "releases what stands");
            }
            Step::Force => {
                let held = beliefs.iter().flatten().any(|(until, _)| *until > now);
                let key = &claims[0].key;
                assert_eq!(store.force_release(key, Which::Whoever, now), held);
                beliefs.fill(None);
            }
            Step::Pass { ms } => now = now + MS(ms),
        }
        let held: Vec<Mode> = beliefs
            .iter()
            .zip(claims)
            .filter(|(belief, _)| belief.is_some_and(|(until, _)| until > now))
            .map(|(_, claim)| claim.mode)
            .collect();
        assert!(allowed(&held), "held together: {held:?}");
    }
    // Nothing lives for ever: neither claims nor places.
    assert_eq!(store.entries(now + Duration::from_secs(3600)), 0);
}

fn readers_and_writers(held: &[Mode]) -> bool {
    held.len() <= 1 || held.iter().all(|mode| *mode == Mode::Shared)
}

proptest! {
    #[test]
    fn writers_are_alone(steps in steps()) {
        let (w, r) = (Mode::Exclusive, Mode::Shared);
        play(&claims([w, w, r, r, r, w]), &steps, readers_and_writers);
    }

    #[test]
    fn permits_are_counted(steps in steps()) {
        let limit = NonZeroU32::new(2).unwrap();
        play(&claims([Mode::Permit { limit }; 6]), &steps, |held| held.len() <= 2);
    }
}

#[test]
fn the_queue_is_served_in_order() {
    let claims = claims([Mode::Exclusive; 6]);
    let mut store = Store::default();
    let now = BootInstant::from_nanos(1);
    let granted = |store: &mut Store, who: usize| {
        matches!(store.attempt(&claims[who], Waits::InLine, now), Ok(Answer::Granted { .. }))
    };
    assert!(granted(&mut store, 0));
    assert!(!granted(&mut store, 1) && !granted(&mut store, 2));
    assert!(store.release(&claims[0], now));
    assert!(!granted(&mut store, 2), "overtaken");
    assert!(!granted(&mut store, 3), "overtaken");
    assert!(granted(&mut store, 1));
    // A waiter that went away does not hold up the rest.
    assert!(!store.release(&claims[2], now));
    assert!(store.release(&claims[1], now));
    assert!(granted(&mut store, 3));
}

#[test]
fn a_waiting_writer_holds_new_readers_back_for_two_seconds() {
    let (w, r) = (Mode::Exclusive, Mode::Shared);
    let claims = claims([r, w, r, r, r, r]);
    let mut store = Store::default();
    let now = BootInstant::from_nanos(1);
    let ask = |store: &mut Store, who: usize, waits: Waits, now: BootInstant| {
        matches!(store.attempt(&claims[who], waits, now), Ok(Answer::Granted { .. }))
    };
    assert!(ask(&mut store, 0, Waits::No, now));
    assert!(!ask(&mut store, 1, Waits::No, now));
    assert!(ask(&mut store, 2, Waits::No, now), "a try leaves no word");
    assert!(!ask(&mut store, 1, Waits::Somewhere, now));
    assert!(!ask(&mut store, 3, Waits::No, now), "a new reader overtakes the writer");
    assert!(ask(&mut store, 3, Waits::No, now + MS(2001)), "the word of a dead writer stays");
}

#[test]
fn another_family_is_refused_at_once() {
    let permit = |n| Mode::Permit { limit: NonZeroU32::new(n).unwrap() };
    let claims =
        claims([permit(2), permit(3), Mode::Exclusive, Mode::Shared, permit(2), permit(2)]);
    let mut store = Store::default();
    let now = BootInstant::from_nanos(1);
    assert!(store.attempt(&claims[0], Waits::No, now).is_ok());
    for other in &claims[1..4] {
        let error = store.attempt(other, Waits::InLine, now).unwrap_err();
        assert!(matches!(error, Error::Configuration(_)), "{error}");
    }
    assert!(store.attempt(&claims[4], Waits::No, now).is_ok());
}
