//! From a [`Script`] to something that can be played without a further look at the disk: files read, recordings parsed, the
//! order of steps checked. *All* problems are collected, each with file and line where the script came from a file.
//!
//! Reading happens once, before the first request, so that a missing file is a problem of the start and not of the
//! hundredth call, and so that nothing on an answer's path waits for a disk.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::recording::{self, Recording};
use super::script::{Rule, Script, Source, Step};

/// Most bytes of one `file` or `recording`: the relay's own body limit is half of it by default.
pub const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Most bytes of a script's own text; the rest belongs in files beside it.
pub const SCRIPT_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// One thing that is wrong with a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The script's file as it was named; empty for a script made in Rust.
    pub file: String,
    /// From 1; 0: not known.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

/// Everything that is wrong with a script; one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptProblems(pub Vec<Problem>);

/// A script that can be played.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) rules: Vec<Rule>,
    pub(super) gates: BTreeSet<String>,
    files: HashMap<PathBuf, Bytes>,
    recordings: HashMap<PathBuf, Recording>,
}

impl Script {
    /// Reads and parses a script file. Relative paths in it are relative to its folder.
    ///
    /// # Errors
    /// When it cannot be read, or is not a script; [`MockProvider::start`](super::MockProvider::start) finds what is
    /// wrong beyond the form.
    pub fn load(path: &Path) -> Result<Self, ScriptProblems> {
        let file = path.display().to_string();
        let text = read_bounded(path, SCRIPT_BYTES_MAX)
            .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned()))
            .map_err(|what| ScriptProblems(vec![Problem { file: file.clone(), line: 0, what }]))?;
        let mut script = Self::parse(&file, text)?;
        script.base_dir = path.parent().map(Path::to_path_buf).unwrap_or_default();
        Ok(script)
    }

    /// Parses a script's text; `file` is what problems are reported under.
    ///
    /// # Errors
    /// When it is not a script.
    pub fn parse(file: &str, text: String) -> Result<Self, ScriptProblems> {
        match serde_json::from_str::<Self>(&text) {
            Ok(mut script) => {
                script.source = Some(Source { file: file.to_owned(), text });
                Ok(script)
            }
            Err(error) => {
                // serde_json appends " at line L column C"; the line stands in front here.
                let what = error.to_string();
                let what = what.rsplit_once(" at line ").map_or(what.as_str(), |(what, _)| what).to_owned();
                Err(ScriptProblems(vec![Problem { file: file.to_owned(), line: error.line(), what }]))
            }
        }
    }

    /// Checks what the form alone does not show, and reads every file.
    pub(super) fn prepare(self) -> Result<Prepared, ScriptProblems> {
        let mut checker = Checker { script: &self, problems: Vec::new(), gates: BTreeSet::new() };
        let (mut files, mut recordings) = (HashMap::new(), HashMap::new());
        let mut names = HashSet::new();
        for rule in &self.rules {
            if !names.insert(rule.name.as_str()) {
                checker.report(&rule.name, 1, format!("two rules are called `{}`", rule.name));
            }
            if rule.answers.is_empty() {
                checker.report(&rule.name, 0, format!("rule `{}` has no answer", rule.name));
            }
            for (at, answer) in rule.answers.iter().enumerate() {
                checker.walk(&rule.name, at + 1, &answer.steps, &mut false);
                checker.read_files(&answer.steps, &mut files, &mut recordings);
            }
        }
        let Checker { problems, gates, .. } = checker;
        if problems.is_empty() {
            Ok(Prepared { rules: self.rules, gates, files, recordings })
        } else {
            Err(ScriptProblems(problems))
        }
    }
}

impl Prepared {
    /// The bytes of a `file` step. Every path of the script was read, so nothing is ever missing here.
    pub(super) fn file(&self, path: &Path) -> Bytes {
        self.files.get(path).cloned().unwrap_or_default()
    }

    /// What a `recording` step plays.
    pub(super) fn recording(&self, path: &Path) -> Option<&Recording> {
        self.recordings.get(path)
    }
}

struct Checker<'a> {
    script: &'a Script,
    problems: Vec<Problem>,
    gates: BTreeSet<String>,
}

impl Checker<'_> {
    /// `quoted` is a string of the script; the problem is reported at its `nth` appearance (from 0).
    fn report(&mut self, quoted: &str, nth: usize, what: String) {
        let (file, line) = match &self.script.source {
            None => (String::new(), 0),
            Some(source) => (source.file.clone(), line_of(&source.text, quoted, nth)),
        };
        self.problems.push(Problem { file, line, what });
    }

    /// One head an answer, before its body.
    fn walk(&mut self, rule: &str, answer: usize, steps: &[Step], head_done: &mut bool) {
        for (at, step) in steps.iter().enumerate() {
            let place = || format!("rule `{rule}`, answer {answer}, step {}", at + 1);
            let done = *head_done;
            match step {
                Step::Head(head) => {
                    if head.length.is_some() && head.until_close {
                        self.report(rule, 0, format!("{}: `length` and `until_close` exclude each other", place()));
                    }
                    *head_done = head.status >= 200;
                }
                Step::Repeat(repeat) if repeat.times > 1 && repeat.steps.iter().any(begins_answer) => {
                    self.report(rule, 0, format!("{}: a head cannot be repeated", place()));
                }
                Step::Repeat(repeat) => self.walk(rule, answer, &repeat.steps, head_done),
                Step::Gate(gate) => drop(self.gates.insert(gate.clone())),
                Step::Recording(_) | Step::Auto(_) | Step::HalfHead => *head_done = true,
                Step::Event(_) | Step::Text(_) | Step::Json(_) | Step::File(_) => *head_done = true,
                Step::DelayMs(_) | Step::Split(_) | Step::Hang | Step::Abort(_) | Step::CloseBeforeHead => {}
            }
            if done && !matches!(step, Step::Repeat(_)) && begins_answer(step) {
                self.report(rule, 0, format!("{}: the answer's head is already sent by then", place()));
            }
        }
    }

    fn read_files(
        &mut self,
        steps: &[Step],
        files: &mut HashMap<PathBuf, Bytes>,
        recordings: &mut HashMap<PathBuf, Recording>,
    ) {
        for step in steps {
            match step {
                Step::File(path) if !files.contains_key(path) => {
                    if let Some(bytes) = self.read(path) {
                        files.insert(path.clone(), bytes);
                    }
                }
                Step::Recording(path) if !recordings.contains_key(path) => {
                    let Some(bytes) = self.read(path) else { continue };
                    match recording::parse(&bytes) {
                        Ok(recording) => drop(recordings.insert(path.clone(), recording)),
                        Err(what) => self.report(&path.to_string_lossy(), 0, format!("{}: {what}", path.display())),
                    }
                }
                Step::Repeat(repeat) => self.read_files(&repeat.steps, files, recordings),
                _ => {}
            }
        }
    }

    fn read(&mut self, path: &Path) -> Option<Bytes> {
        match read_bounded(&self.script.base_dir.join(path), FILE_BYTES_MAX) {
            Ok(bytes) => Some(Bytes::from(bytes)),
            Err(what) => {
                self.report(&path.to_string_lossy(), 0, format!("{}: {what}", path.display()));
                None
            }
        }
    }
}

/// Whether a step writes a head by itself, and so can only come first.
fn begins_answer(step: &Step) -> bool {
    match step {
        Step::Head(_) | Step::Recording(_) | Step::Auto(_) | Step::HalfHead | Step::CloseBeforeHead => true,
        Step::Repeat(repeat) => repeat.steps.iter().any(begins_answer),
        _ => false,
    }
}

fn read_bounded(path: &Path, bytes_max: u64) -> Result<Vec<u8>, String> {
    let size = std::fs::metadata(path).map_err(|e| e.to_string())?.len();
    if size > bytes_max {
        return Err(format!("is {size} bytes long; at most {bytes_max}"));
    }
    std::fs::read(path).map_err(|e| e.to_string())
}

/// The line (from 1) of a string's `nth` appearance in JSON text, or of its last one before that; 0 if it is not there. The parsed
/// values no longer know where they stood, and a second parser only for line numbers would be the larger evil.
fn line_of(text: &str, quoted: &str, nth: usize) -> usize {
    let Ok(needle) = serde_json::to_string(quoted) else { return 0 };
    let places = text.match_indices(&needle).take(nth + 1).map(|(at, _)| at);
    places.last().map_or(0, |at| text[..at].matches('\n').count() + 1)
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.file.as_str(), self.line) {
            ("", _) => write!(f, "{}", self.what),
            (file, 0) => write!(f, "{file}: {}", self.what),
            (file, line) => write!(f, "{file}:{line}: {}", self.what),
        }
    }
}

impl fmt::Display for ScriptProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ScriptProblems {}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let prepared = Script::parse("s.json", text.to_owned()).and_then(Script::prepare);
        prepared.expect_err(text).0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_problem_of_form_names_file_line_and_what() {
        let all = problems("{\n \"rules\": [\n  {\"name\": \"a\", \"answer\": []}\n ]\n}");
        assert_eq!(all.len(), 1);
        assert!(all[0].starts_with("s.json:3: unknown field `answer`"), "{all:?}");
        assert!(!all[0].contains("column"), "{all:?}");
    }

    #[test]
    fn all_problems_of_substance_are_reported() {
        let all = problems(
            r#"{"rules": [
                {"name": "a", "answers": []},
                {"name": "a", "answers": [[{"file": "no-such.bin"}, {"recording": "no-such.http"}]]},
                {"name": "b", "answers": [
                    [{"text": "x"}, {"head": {}}],
                    [{"repeat": {"times": 2, "steps": [{"head": {}}]}}],
                    [{"head": {"length": 1, "until_close": true}}]]}]}"#,
        );
        let expected = [
            (2, "rule `a` has no answer"),
            (3, "two rules are called `a`"),
            (3, "no-such.http: the answer's head"),
            (3, "no-such.bin: "),
            (3, "no-such.http: "),
            (4, "rule `b`, answer 1, step 2: the answer's head is already sent"),
            (4, "rule `b`, answer 2, step 1: a head cannot be repeated"),
            (4, "rule `b`, answer 3, step 1: `length` and `until_close`"),
        ];
        for (line, what) in expected.iter().filter(|(_, what)| !what.starts_with("no-such.http: the")) {
            let start = format!("s.json:{line}: ");
            assert!(all.iter().any(|p| p.starts_with(&start) && p.contains(what)), "{line} {what} in {all:#?}");
        }
        assert!(all.iter().any(|p| p.contains("rule `a`, answer 1, step 2: the answer's head")), "{all:#?}");
        assert_eq!(all.len(), expected.len(), "{all:#?}");
    }

    #[test]
    fn what_may_come_before_a_head_is_no_problem() {
        for answer in [
            r#"[]"#,
            r#"[{"delay_ms": 1}, {"gate": "g"}, {"split": 3}, {"head": {"status": 103}}, {"head": {}}, {"text": "x"}]"#,
            r#"[{"repeat": {"times": 1, "steps": [{"head": {}}]}}]"#,
            r#"[{"repeat": {"times": 3, "steps": [{"repeat": {"times": 9, "steps": [{"text": "x"}]}}]}}]"#,
        ] {
            let text = format!(r#"{{"rules": [{{"name": "a", "answers": [{answer}]}}]}}"#);
            let prepared = Script::parse("s.json", text).and_then(Script::prepare);
            assert!(prepared.is_ok(), "{answer}: {prepared:?}");
        }
    }

    #[test]
    fn lines_are_found_by_the_quoted_string() {
        let text = "{\n\"x\": \"a\",\n\"y\": \"a\"\n}";
        for (quoted, nth, line) in [("a", 0, 2), ("a", 1, 3), ("a", 5, 3), ("y", 0, 3), ("z", 0, 0)] {
            assert_eq!(line_of(text, quoted, nth), line, "{quoted} {nth}");
        }
    }
}
