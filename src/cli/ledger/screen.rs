//! What people see: lines no wider than their terminal, no control characters of whoever wrote a name or a reason, colour only where it
//! is wanted (a terminal, and no `NO_COLOR`).

use std::io::IsTerminal as _;

use super::super::operator::table;

/// Where it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Screen {
    /// Columns; none: it goes to a file or a pipe, and nothing is cut.
    width: Option<usize>,
    colour: bool,
}

/// A terminal that does not say how wide it is.
const WIDTH: usize = 100;

/// Narrower than this no table can be read; then lines are broken by the terminal.
const WIDTH_MIN: usize = 40;

impl Screen {
    /// This process's standard output.
    pub(super) fn of_stdout() -> Self {
        let out = std::io::stdout();
        if !out.is_terminal() {
            return Self { width: None, colour: false };
        }
        let told = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
        let asked = || rustix::termios::tcgetwinsize(&out).ok().map(|size| usize::from(size.ws_col));
        let width = told.or_else(asked).filter(|width| *width > 0).unwrap_or(WIDTH).max(WIDTH_MIN);
        // https://no-color.org: any value that is not empty.
        let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { width: Some(width), colour }
    }

    /// Columns side by side under a head. Rows with `stands_out` are in colour.
    pub(super) fn table(self, head: &[&str], rows: Vec<(Vec<String>, bool)>) -> String {
        let cells = |row: &[String]| row.iter().map(|cell| clean(cell)).collect::<Vec<_>>();
        let mut all = vec![head.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()];
        all.extend(rows.iter().map(|(row, _)| cells(row)));
        let mut text = String::new();
        for (at, line) in table(&all).lines().enumerate() {
            let stands_out = at.checked_sub(1).and_then(|at| rows.get(at)).is_some_and(|(_, stands_out)| *stands_out);
            let style = if at == 0 { "1" } else { "33" };
            text.push_str(&self.styled(&self.cut(line), (at == 0 || stands_out).then_some(style)));
            text.push('\n');
        }
        text
    }

    /// A name and what it is, one line.
    pub(super) fn field(self, name: &str, value: &str) -> String {
        if value.is_empty() {
            return String::new();
        }
        format!("{}\n", self.cut(&format!("{name:<16}{}", clean(value))))
    }

    /// A line above others.
    pub(super) fn heading(self, text: &str) -> String {
        format!("\n{}\n", self.styled(&clean(text), Some("1")))
    }

    /// A line as it is, whole.
    pub(super) fn line(self, text: &str) -> String {
        format!("{}\n", clean(text))
    }

    fn styled(self, text: &str, style: Option<&str>) -> String {
        match style.filter(|_| self.colour) {
            Some(style) => format!("\u{1b}[{style}m{text}\u{1b}[0m"),
            None => text.to_owned(),
        }
    }

    fn cut(self, line: &str) -> String {
        let Some(width) = self.width.filter(|width| line.chars().count() > *width) else { return line.to_owned() };
        let mut cut: String = line.chars().take(width.saturating_sub(1)).collect();
        cut.push('…');
        cut
    }
}

/// Text of others, fit for a terminal: what would move the cursor, change colours or turn the direction is shown as `\u{…}`.
pub(super) fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        let turns =
            matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if c.is_control() || turns {
            clean.extend(c.escape_unicode());
        } else {
            clean.push(c);
        }
    }
    clean
}

/// Milliseconds since 1970 as a date with its time, UTC.
pub(super) fn date(millis: u64) -> String {
    let seconds = i64::try_from(millis / 1000).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds).map(|at| at.to_string()).unwrap_or_default()
}

/// A time as people say it: `3d 4h`, `12m`, `7s`.
pub(super) fn age(millis: u64) -> String {
    let seconds = millis / 1000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m"),
        (0, hours, minutes) => format!("{hours}h {minutes}m"),
        (days, hours, _) => format!("{days}d {hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_others_reaches_the_terminal_as_a_command() {
        assert_eq!(clean("pay\u{1b}[2J\n\u{202e}x"), "pay\\u{1b}[2J\\u{a}\\u{202e}x");
        assert_eq!(clean("Größe €"), "Größe €");
    }

    #[test]
    fn lines_are_no_wider_than_the_terminal_and_whole_in_a_pipe() {
        let rows = || vec![(vec!["a".to_owned(), "x".repeat(80)], true)];
        let narrow = Screen { width: Some(50), colour: false }.table(&["KEY", "REASON"], rows());
        assert!(narrow.lines().all(|line| line.chars().count() <= 50) && narrow.contains('…'), "{narrow}");
        let piped = Screen { width: None, colour: false }.table(&["KEY", "REASON"], rows());
        assert!(piped.contains(&"x".repeat(80)) && !piped.contains('\u{1b}'), "{piped}");
        let coloured = Screen { width: Some(50), colour: true }.table(&["KEY", "REASON"], rows());
        assert!(coloured.contains("\u{1b}[33ma"), "{coloured:?}");
    }

    #[test]
    fn ages_are_short() {
        for (millis, text) in [(0, "0s"), (59_999, "59s"), (60_000, "1m"), (7_260_000, "2h 1m"), (90_000_000, "1d 1h")]
        {
            assert_eq!(age(millis), text);
        }
        assert_eq!(date(1_796_000_000_123), "2026-11-30T00:53:20Z");
    }
}
