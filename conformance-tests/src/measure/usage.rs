//! What this process uses, as Linux tells it.

use std::time::Duration;

/// Memory and processor time of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Resident memory, in bytes.
    pub resident: u64,
    /// Processor time so far, of all threads.
    pub processor: Duration,
}

impl Usage {
    /// Now.
    ///
    /// # Errors
    /// If `/proc` is not there or says something else.
    pub fn now() -> std::io::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let kilobytes = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|rest| rest.trim().strip_suffix(" kB"))
            .and_then(|number| number.trim().parse::<u64>().ok())
            .ok_or_else(|| std::io::Error::other("no VmRSS in /proc/self/status"))?;
        Ok(Self { resident: kilobytes * 1024, processor: processor()? })
    }
}

/// Nanoseconds on a processor, summed over the threads.
fn processor() -> std::io::Result<Duration> {
    let mut nanos = 0;
    for thread in std::fs::read_dir("/proc/self/task")? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        let first = text.split(' ').next().and_then(|number| number.parse::<u64>().ok());
        nanos += first.ok_or_else(|| std::io::Error::other("no number in schedstat"))?;
    }
    Ok(Duration::from_nanos(nanos))
}
