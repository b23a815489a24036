//! Measuring backends against the bare commands of their stores.
