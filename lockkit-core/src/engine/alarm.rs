//! What wakes the watchdog: one alarm that can be set from any thread.

#[cfg(all(target_os = "linux", not(lockkit_portable_clock)))]
mod boottime;
#[cfg(not(all(target_os = "linux", not(lockkit_portable_clock))))]
mod portable;

#[cfg(all(target_os = "linux", not(lockkit_portable_clock)))]
pub(super) use boottime::Alarm;
#[cfg(not(all(target_os = "linux", not(lockkit_portable_clock))))]
pub(super) use portable::Alarm;
