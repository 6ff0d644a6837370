//! Rust source, read just well enough: comments and literals blanked, test items cut out, lines kept.
//!
//! In: the `*.rs` below a folder. Out: a [`Source`] each. Not a parser: it knows tokens that can hide text (comments, strings,
//! characters) and items marked `#[cfg(test)]`, and nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The mark of an item that is built for tests only.
const TEST_MARK: &str = "#[cfg(test)]";

/// One file.
pub(crate) struct Source {
    /// From the repository's root, with `/`.
    pub(crate) path: String,
    /// Code outside tests; comments, literals and test items are spaces. Empty for a file that is a test as a whole.
    pub(crate) code: String,
    /// Lines that are not in a test item, comments and empty ones included; 0 for a file that is a test as a whole.
    pub(crate) production_lines: usize,
}

/// The repository's root.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below `folder`, in order of its path.
pub(crate) fn sources(folder: &str) -> Vec<Source> {
    let mut paths = Vec::new();
    collect(&root().join(folder), &mut paths);
    paths.sort();
    assert!(!paths.is_empty(), "no Rust file below {folder}");
    let texts: Vec<(String, String)> = paths
        .iter()
        .map(|path| {
            let name = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
            (name, blanked(&fs::read_to_string(path).unwrap()))
        })
        .collect();
    let test_files: BTreeSet<String> = texts.iter().flat_map(|(path, code)| test_modules(path, code)).collect();
    let is_test = |path: &str| {
        test_files.iter().any(|module| path == format!("{module}.rs") || path.starts_with(&format!("{module}/")))
    };
    texts
        .into_iter()
        .map(|(path, code)| {
            let (code, test_lines) = if is_test(&path) { (String::new(), 0) } else { without_tests(&code) };
            Source { production_lines: code.lines().count() - test_lines, path, code }
        })
        .collect()
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// 1 for the first line.
pub(crate) fn line_at(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Where `word` stands by itself: no part of a longer name or of a longer path to the left.
pub(crate) fn words<'t>(text: &'t str, word: &'t str) -> impl Iterator<Item = usize> + 't {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        let starts = !word.starts_with(part) || !before.ends_with(part);
        let ends = !word.ends_with(part) || !after.starts_with(part);
        starts && ends
    })
}

/// The text with the insides of comments and literals as spaces. Line ends stay, bytes stay where they are.
fn blanked(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = at + hidden(text, at);
        if end == at {
            at += 1;
            continue;
        }
        out[at..end].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
        at = end;
    }
    // Only whole tokens were blanked, so what is left is whole characters.
    String::from_utf8(out).unwrap()
}

/// How many bytes from `at` on are one comment or literal; 0 if none begins here.
fn hidden(text: &str, at: usize) -> usize {
    if !text.is_char_boundary(at) {
        return 0;
    }
    let rest = &text[at..];
    let in_a_name = text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment(rest);
    }
    if rest.starts_with('"') {
        return quoted(rest);
    }
    let raw = rest.strip_prefix('r').or_else(|| rest.strip_prefix("br")).or_else(|| rest.strip_prefix("cr"));
    if let Some(raw) = raw.filter(|_| !in_a_name) {
        let marks = raw.len() - raw.trim_start_matches('#').len();
        if raw[marks..].starts_with('"') {
            let close = format!("\"{}", "#".repeat(marks));
            let body = &raw[marks + 1..];
            let length = body.find(&close).map_or(body.len(), |end| end + close.len());
            return rest.len() - body.len() + length;
        }
    }
    if rest.starts_with('\'') { character(rest) } else { 0 }
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn quoted(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// A character literal; 0 for a lifetime.
fn character(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => rest[3..].find('\'').map_or(rest.len(), |end| 3 + end + 1),
        Some(_) => chars.next().filter(|(_, c)| *c == '\'').map_or(0, |(at, _)| at + 1),
        None => 0,
    }
}

/// Where each item marked for tests begins and ends.
fn test_items(code: &str) -> Vec<(usize, usize)> {
    let mut items: Vec<(usize, usize)> = Vec::new();
    for (start, _) in code.match_indices(TEST_MARK) {
        if items.last().is_some_and(|(_, end)| start < *end) {
            continue;
        }
        items.push((start, item_end(code, start + TEST_MARK.len())));
    }
    items
}

/// The end of the item that begins at `from`: its `;`, its closing brace, or for a member of a struct its `,`.
fn item_end(code: &str, from: usize) -> usize {
    let item = code[from..].trim_start();
    let import = item.starts_with("use ") || item.starts_with("pub use ");
    let name = item.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
    let member = name.starts_with(':') && !name.starts_with("::");
    let mut depth = 0_usize;
    for (at, c) in code[from..].char_indices() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' if depth > 0 => depth -= 1,
            // The closing brace of what the item is in.
            '}' => return from + at,
            _ => {}
        }
        let ends = match c {
            ';' => true,
            ',' => member,
            '}' => !import && !member,
            _ => false,
        };
        if ends && depth == 0 {
            return from + at + 1;
        }
    }
    code.len()
}

/// The code with its test items as spaces, and how many lines they take.
fn without_tests(code: &str) -> (String, usize) {
    let mut out = String::with_capacity(code.len());
    let (mut kept, mut lines) = (0, 0);
    for (start, end) in test_items(code) {
        out.push_str(&code[kept..start]);
        out.extend(code[start..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        lines += code[start..end].matches('\n').count() + 1;
        kept = end;
    }
    out.push_str(&code[kept..]);
    (out, lines)
}

/// The files, without `.rs`, of modules that the file declares for tests only.
fn test_modules(path: &str, code: &str) -> Vec<String> {
    let folder = match path.rsplit_once('/') {
        Some((folder, "mod.rs" | "lib.rs" | "main.rs")) => folder.to_owned(),
        _ => path.trim_end_matches(".rs").to_owned(),
    };
    let items = test_items(code).into_iter().map(|(start, end)| code[start + TEST_MARK.len()..end].trim());
    items
        .filter_map(|item| item.strip_prefix("mod ")?.strip_suffix(';'))
        .map(|name| format!("{folder}/{}", name.trim()))
        .collect()
}

#[test]
fn comments_literals_and_test_items_are_told_from_code() {
    for (given, code) in [
        ("a // tokio\nb", "a         \nb"),
        ("a /* x /* y */ z */ b", "a                   b"),
        (r#"a("x \" y") b"#, r"a(        ) b"),
        ("r#\"x \" y\"# b", "           b"),
        ("br\"x\" for r#type", "      for r#type"),
        (r"'\'' '\u{2028}' 'x' &'a b", "                    &'a b"),
        ("'ä' x", "     x"),
    ] {
        assert_eq!(blanked(given), code, "{given}");
    }
    for (given, kept, lines) in [
        ("a\n#[cfg(test)]\nmod t {\n f { }\n}\nb", "ab", 4),
        ("#[cfg(test)]\nmod t;\nb", "b", 2),
        ("#[cfg(test)]\nuse a::{b, c};\nfn d() {}", "fnd(){}", 2),
        ("struct A {\n#[cfg(test)]\nb: (u8, u8),\nc: u8 }", "structA{c:u8}", 2),
        ("struct A {\n#[cfg(test)]\nb: B }", "structA{}", 2),
    ] {
        let (left, cut) = without_tests(given);
        assert_eq!(left.split_whitespace().collect::<String>(), kept, "{given}");
        assert_eq!((left.len(), cut), (given.len(), lines), "{given}");
    }
    assert_eq!(test_modules("src/a/mod.rs", "#[cfg(test)]\nmod t;"), ["src/a/t"]);
    assert_eq!(test_modules("src/a/b.rs", "#[cfg(test)]\nmod t;"), ["src/a/b/t"]);
    assert_eq!(words("x tokio::y mytokio tokio_z tokio", "tokio").collect::<Vec<_>>(), [2, 27]);
}
