//! The checked-in tables say what the suite is.

use std::collections::{BTreeMap, BTreeSet};

use conformance_tests::{cases, table_matches_registry};

#[test]
fn every_case_is_in_the_table_of_runs() {
    table_matches_registry().unwrap_or_else(|difference| panic!("{difference}"));
}

#[test]
fn case_names_are_unique() {
    let mut seen = BTreeSet::new();
    for case in cases::all() {
        assert!(seen.insert(case.name().to_owned()), "`{}` is there twice", case.name());
    }
}

/// Every known case of the field is in `CASES.md` once, and the tests that it names are there.
#[test]
fn every_known_case_has_its_test_or_its_reason() {
    let ids: Vec<&str> = include_str!("cases.txt").lines().collect();
    let mut rows: BTreeMap<&str, &str> = BTreeMap::new();
    for line in include_str!("../CASES.md").lines().filter(|line| line.starts_with("| ")) {
        let mut cells = line.trim_matches('|').splitn(2, '|').map(str::trim);
        let (Some(id), Some(held)) = (cells.next(), cells.next()) else { continue };
        if id != "id" && !id.starts_with("---") {
            assert!(rows.insert(id, held).is_none(), "{id} is there twice");
        }
    }
    let listed: BTreeSet<_> = ids.iter().copied().collect();
    let there: BTreeSet<_> = rows.keys().copied().collect();
    assert_eq!(ids.len(), listed.len(), "an id is listed twice");
    assert_eq!(listed, there, "`cases.txt` and `CASES.md` differ");
    let names: BTreeSet<String> =
        cases::all().iter().map(|case| stem(case.name()).to_owned()).collect();
    for (id, held) in rows {
        assert!(!held.is_empty(), "{id} has neither a test nor a reason");
        for name in held.split('`').skip(1).step_by(2) {
            let there = if name.contains("::") { names.contains(name) } else { is_beside(name) };
            assert!(there, "{id} names `{name}`, which is no test");
        }
    }
}

/// `path#name`, of a test of another crate of the workspace.
fn is_beside(test: &str) -> bool {
    let Some((path, name)) = test.split_once('#') else { return false };
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.contains(&format!("fn {name}("))
}

/// The name without the mode.
fn stem(name: &str) -> &str {
    name.split('/').next().unwrap_or(name)
}
