//! One line for people: what a call would do, or did.
//!
//! In: a tool's `summary` template and `redact` pointers, canonical arguments. Out: a line of at most [`LINE_CHARS_MAX`] characters, in
//! which nothing can be mistaken for another line, for the template's own words turned round, or for something that is not there: control
//! and direction characters are written out. Whoever approves a payment by this line must see what the model wrote.

use rubicon_ledger::{Canonical, Pointer, Value};

use super::redact::{self, HIDDEN};
use crate::config::settings::{Part, Template, ToolSettings};

/// Characters of a line; over it the rest is `…`.
pub const LINE_CHARS_MAX: usize = 300;

/// Characters of one value in it; over it the rest is `…`.
pub const FIELD_CHARS_MAX: usize = 80;

/// What stands for a value that the arguments do not have.
const ABSENT: &str = "(absent)";

/// The line for stored arguments (canonical JSON; `None`: they were erased).
#[must_use]
pub fn line(tool: &ToolSettings, arguments: Option<&str>) -> String {
    let Some(arguments) = arguments else { return "(erased)".to_owned() };
    let Ok(arguments) = Canonical::parse(arguments.as_bytes()) else { return "(unreadable)".to_owned() };
    let template = tool.summary.as_deref().and_then(|text| Template::parse(text).ok());
    match template {
        Some(template) => render(&template, arguments.value(), &tool.redact),
        None => plain(&redact::value(arguments.value(), &tool.redact), LINE_CHARS_MAX),
    }
}

/// The line of a template.
#[must_use]
pub fn render(template: &Template, arguments: &Value, hidden: &[Pointer]) -> String {
    let mut line = String::new();
    for part in &template.parts {
        match part {
            Part::Text(text) => line.push_str(text),
            Part::Field(pointer) => line.push_str(&field(pointer, arguments, hidden)),
        }
    }
    plain(&line, LINE_CHARS_MAX)
}

fn field(pointer: &Pointer, arguments: &Value, hidden: &[Pointer]) -> String {
    if hidden.iter().any(|hide| hide.contains(pointer)) {
        return HIDDEN.to_owned();
    }
    let text = match pointer.find(arguments) {
        None => return ABSENT.to_owned(),
        Some(Value::String(text)) => text.to_string(),
        // With the pointers that lie in it, made to start there.
        Some(inner) => {
            let skip = pointer.tokens().len();
            let below = hidden.iter().filter(|hide| pointer.contains(hide)).filter_map(|hide| {
                let rest: String = hide.tokens().skip(skip).map(escaped).collect();
                rest.parse().ok()
            });
            redact::value(inner, &below.collect::<Vec<Pointer>>())
        }
    };
    plain(&text, FIELD_CHARS_MAX)
}

fn escaped(token: &str) -> String {
    format!("/{}", token.replace('~', "~0").replace('/', "~1"))
}

/// At most `max` characters of a text, on one line, with what cannot be seen written out.
#[must_use]
pub fn plain(text: &str, max: usize) -> String {
    let mut out = String::new();
    let mut count = 0;
    for c in text.chars() {
        let piece = if is_unseen(c) { c.escape_unicode().to_string() } else { c.to_string() };
        count += piece.chars().count();
        if count > max {
            out.push('…');
            return out;
        }
        out.push_str(&piece);
    }
    out
}

/// Control characters, line and paragraph separators, direction marks, and characters without width or ink.
fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
                | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(template: &str, arguments: &str, hidden: &[&str]) -> String {
        let arguments = Canonical::parse(arguments.as_bytes()).unwrap();
        let hidden: Vec<Pointer> = hidden.iter().map(|text| text.parse().unwrap()).collect();
        render(&Template::parse(template).unwrap(), arguments.value(), &hidden)
    }

    #[test]
    fn lines() {
        let arguments = r#"{"amount":12.50,"card":{"last4":"4242","number":"4111"},"note":"a\nb","to":"Ann"}"#;
        for (template, hidden, line) in [
            ("Charge {/amount} to {/to}", vec![], "Charge 12.5 to Ann"),
            ("Charge {/amount} to {/card/last4}", vec!["/card/number"], "Charge 12.5 to 4242"),
            ("{/card}", vec!["/card/number"], r#"{"last4":"4242","number":"…"}"#),
            ("{/card/number} {/card}", vec!["/card"], "… …"),
            ("{/iban}", vec![], "(absent)"),
            ("{/note}", vec![], "a\\u{a}b"),
            ("{{{/to}}}", vec![], "{Ann}"),
        ] {
            assert_eq!(rendered(template, arguments, &hidden), line, "{template}");
        }
    }

    #[test]
    fn nothing_unseen_and_nothing_endless() {
        let turned =
            rendered("to {/to}.", "{\"to\":\"\u{202e}nnA\u{200b}\u{0}\"}".replace('\u{0}', "\\u0000").as_str(), &[]);
        assert_eq!(turned, "to \\u{202e}nnA\\u{200b}\\u{0}.");
        let long = rendered("{/a}|{/b}", &format!("{{\"a\":\"{}\",\"b\":1}}", "x".repeat(5000)), &[]);
        assert_eq!(long, format!("{}…|1", "x".repeat(FIELD_CHARS_MAX)));
        let many = rendered(&"{/a} ".repeat(20), &format!("{{\"a\":\"{}\"}}", "é".repeat(70)), &[]);
        assert_eq!(many.chars().count(), LINE_CHARS_MAX + 1);
        assert!(many.ends_with('…'));
    }
}
