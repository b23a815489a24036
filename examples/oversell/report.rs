//! What the example says: the result on standard output, all else on standard error.

use std::io::{IsTerminal, Write};

use serde::Serialize;

use crate::Result;

/// The result.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) backend: String,
    pub(crate) rounds: Vec<Outcome>,
}

/// What came out of one round.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) name: &'static str,
    pub(crate) stock: i64,
    pub(crate) sold: i64,
    pub(crate) oversold: i64,
    pub(crate) refused: i64,
}

/// Prints the result: JSON for programs, a table for people.
pub(crate) fn result(summary: &Summary, json: bool) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string(summary)?)?;
        return Ok(());
    }
    writeln!(
        out,
        "{:<28} {:>7} {:>7} {:>9} {:>8}",
        "round", "stock", "sold", "oversold", "refused"
    )?;
    for Outcome { name, stock, sold, oversold, refused } in &summary.rounds {
        writeln!(out, "{name:<28} {stock:>7} {sold:>7} {oversold:>9} {refused:>8}")?;
    }
    writeln!(
        out,
        "\nlockkit rounds on backend `{}`. Oversold: sold more often than there were",
        summary.backend
    )?;
    writeln!(
        out,
        "pieces. Refused: late writes that the stock's books turned away by their fence."
    )?;
    Ok(())
}

/// A line for the parent.
pub(crate) fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// A line for people.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Replaces the line of progress.
pub(crate) fn progress(line: &str) {
    let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
}

/// Takes the line of progress away.
pub(crate) fn clear() {
    if std::io::stderr().is_terminal() {
        progress("\r");
    }
}
