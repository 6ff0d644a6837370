//! `KEYS.md` out of `keys.rs` and the problem codes. The file is checked in, so that it can be read without building; the
//! test below fails when it is stale and rewrites it when `RUBICON_UPDATE_DOCS=1` is set.

use std::fmt::Write as _;

use super::keys::{KEYS, Key, Kind, State, Word};
use super::problem::Code;

const HEAD: &str = "# Configuration keys\n\n\
Made from `src/config/keys_table.rs`; do not edit (`RUBICON_UPDATE_DOCS=1 cargo test --lib config::keys_doc`).\n\n\
Secrets are `env:NAME` (read at start) or `file:PATH` (read at every load, one trailing line end removed); paths are\n\
relative to the config file. Keys not listed are refused (`unknown_key`), those marked *not built yet* too\n\
(`not_built_yet`); nothing is accepted in silence. *Note* keys are for people and change nothing. Names of providers,\n\
routes, workflows and clients are 1–64 of `A-Z a-z 0-9 _ - .`.\n\n\
| key | type | default | unit | meaning |\n| --- | --- | --- | --- | --- |\n";

/// The whole document: a table of all keys, and one of the problem codes.
pub fn render() -> String {
    let mut text = String::from(HEAD);
    for key in KEYS {
        let (default, mark) = match key.state {
            State::Acted => (key.default_text(), ""),
            State::NotBuilt => ("—".to_owned(), "***not built yet:*** "),
        };
        let meaning = format!("{mark}{}{}", key.meaning, unbuilt_words(key));
        let cells = [format!("`{}`", key.written()), key.type_text(), default, key.unit().to_owned(), meaning];
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text.push_str("\n## Problem codes\n\nThe closed list of `code` in `rubicon check --json`.\n\n| code | means |\n| --- | --- |\n");
    for code in Code::ALL {
        let _ = writeln!(text, "| `{}` | {} |", code.name(), code.meaning());
    }
    text
}

fn unbuilt_words(key: &Key) -> String {
    let (Kind::Choice(words) | Kind::Choices(words)) = key.kind else { return String::new() };
    let unbuilt: Vec<String> =
        words.iter().filter(|Word(_, built)| !built).map(|word| format!("`{}`", word.0)).collect();
    if unbuilt.is_empty() { String::new() } else { format!(" *Not built yet:* {}.", unbuilt.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::super::keys::Default;
    use super::*;

    #[test]
    fn keys_md_is_what_the_table_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/config/KEYS.md");
        let rendered = render();
        if std::env::var_os("RUBICON_UPDATE_DOCS").is_some_and(|value| value == "1") {
            std::fs::write(path, &rendered).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap();
        assert!(written == rendered, "KEYS.md is stale: run with RUBICON_UPDATE_DOCS=1");
    }

    #[test]
    fn every_key_has_a_row_of_five_cells() {
        let rendered = render();
        let rows: Vec<&str> = rendered.lines().filter(|line| line.starts_with("| `")).collect();
        assert_eq!(rows.len(), KEYS.len() + Code::ALL.len());
        for (row, key) in rows.iter().zip(KEYS) {
            assert!(row.starts_with(&format!("| `{}` |", key.written())), "{row}");
            assert_eq!(row.matches(" | ").count(), 4, "{row}");
            assert!(!key.meaning.is_empty() && !matches!(key.default, Default::Absent("")), "{}", key.path);
        }
    }
}
