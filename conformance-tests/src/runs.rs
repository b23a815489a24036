//! `RUNS.md`: which case runs on which backend. Checked in, and compared with what ran, so that
//! no case falls silent unnoticed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use crate::cases;
use crate::subject::Subject;

/// What stands in a cell when the case runs; else the reason why it does not.
pub(crate) const RUNS: &str = "runs";

const UPDATE: &str = "LOCKKIT_UPDATE_RUNS";

const HEAD: &str = "# What runs where

Written by the suite with `LOCKKIT_UPDATE_RUNS=1 cargo test -p conformance-tests`, and compared by
every whole run of it. A cell says `runs`, or which capability is missing.
";

#[derive(Debug, Default)]
struct Table {
    subjects: Vec<String>,
    /// Case, subject, cell.
    rows: BTreeMap<String, BTreeMap<String, String>>,
}

impl Table {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let mut lines = text.lines().filter_map(cells);
        let subjects: Vec<String> =
            lines.next().unwrap_or_default().into_iter().skip(1).map(str::to_owned).collect();
        let rows = lines.filter(|cells| !cells[0].starts_with("---")).map(|cells| {
            let (case, cells) = (cells[0].trim_matches('`').to_owned(), &cells[1..]);
            let row = subjects.iter().cloned().zip(cells.iter().map(ToString::to_string));
            (case, row.collect())
        });
        let rows = rows.collect();
        Self { subjects, rows }
    }

    fn column(&self, subject: &str) -> BTreeMap<&str, &str> {
        let full = self.rows.iter().map(|(case, row)| (case.as_str(), cell_of(row, subject)));
        full.filter(|(_, cell)| !cell.is_empty()).collect()
    }

    fn set_column(&mut self, subject: &str, ran: &BTreeMap<String, String>) {
        if !self.subjects.iter().any(|s| s == subject) {
            self.subjects.push(subject.to_owned());
        }
        self.rows.retain(|case, _| ran.contains_key(case));
        for (case, cell) in ran {
            self.rows.entry(case.clone()).or_default().insert(subject.to_owned(), cell.clone());
        }
    }

    fn text(&self) -> String {
        let mut text = HEAD.to_owned();
        let runs = |subject: &String| {
            self.rows.values().filter(|row| cell_of(row, subject) == RUNS).count()
        };
        let counts: Vec<_> = self.subjects.iter().map(|s| format!("{} on {s}", runs(s))).collect();
        let total: usize = self.subjects.iter().map(runs).sum();
        let _ =
            writeln!(text, "\n{} cases; {total} runs: {}.\n", self.rows.len(), counts.join(", "));
        let _ = writeln!(text, "| case | {} |", self.subjects.join(" | "));
        let _ = writeln!(text, "| --- |{}", " --- |".repeat(self.subjects.len()));
        for (case, row) in &self.rows {
            let cells: Vec<_> = self.subjects.iter().map(|s| cell_of(row, s)).collect();
            let _ = writeln!(text, "| `{case}` | {} |", cells.join(" | "));
        }
        text
    }
}

fn cell_of<'a>(row: &'a BTreeMap<String, String>, subject: &str) -> &'a str {
    row.get(subject).map_or("", String::as_str)
}

fn cells(line: &str) -> Option<Vec<&str>> {
    let line = line.strip_prefix('|')?.strip_suffix('|')?;
    Some(line.split('|').map(str::trim).collect())
}

/// Compares what ran with the table, or writes the table. `whole`: nothing was filtered out.
pub(crate) fn check(
    subject: &dyn Subject,
    ran: &BTreeMap<String, String>,
    whole: bool,
) -> Result<(), String> {
    let path = subject.runs_table();
    let mut table = Table::read(&path);
    if std::env::var_os(UPDATE).is_some() {
        if !whole {
            return Err(format!("{UPDATE} needs a run of the whole suite"));
        }
        table.set_column(subject.name(), ran);
        return std::fs::write(&path, table.text()).map_err(|e| e.to_string());
    }
    let column = table.column(subject.name());
    let mut differences: Vec<String> = ran
        .iter()
        .filter(|(case, did)| column.get(case.as_str()) != Some(&did.as_str()))
        .map(|(case, did)| {
            let says = column.get(case.as_str()).unwrap_or(&"nothing");
            format!("  {case}: the table says {says}, what happened is: {did}")
        })
        .collect();
    if whole {
        let gone = column.keys().filter(|case| !ran.contains_key(**case));
        differences
            .extend(gone.map(|case| format!("  {case}: in the table, but not in the suite")));
    }
    if differences.is_empty() {
        return Ok(());
    }
    Err(format!(
        "what ran on `{}` is not what {} says:\n{}\n\
         If that is meant, run the whole suite with {UPDATE}=1 and check the table in.",
        subject.name(),
        path.display(),
        differences.join("\n")
    ))
}

/// Compares the rows of the checked-in table with the registry.
///
/// # Errors
/// A text that names the cases which one of them lacks.
pub fn table_matches_registry() -> Result<(), String> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/RUNS.md"));
    let table = Table::read(path);
    let registry: Vec<String> = cases::all().iter().map(|case| case.name().to_owned()).collect();
    let missing = registry.iter().filter(|case| !table.rows.contains_key(*case));
    let gone = table.rows.keys().filter(|case| !registry.contains(*case));
    let wrong: Vec<_> = missing.chain(gone).cloned().collect();
    let text_is_generated = std::fs::read_to_string(path).is_ok_and(|text| text == table.text());
    if wrong.is_empty() && text_is_generated {
        return Ok(());
    }
    Err(format!("RUNS.md is out of date ({}); run the suite with {UPDATE}=1", wrong.join(", ")))
}
