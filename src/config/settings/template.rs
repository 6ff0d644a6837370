//! `summary` of a tool: text with JSON Pointers in braces, `Charge {/amount} to {/card}`.
//!
//! In: the text. Out: its parts, or what is wrong with it and where. What is put in place of the pointers is the room `tool`'s
//! business (`summary.rs`); the grammar is here because a config with a bad one must not load.

use rubicon_ledger::Pointer;

/// Bytes of a template. A summary is one line on a screen.
pub const TEMPLATE_BYTES_MAX: usize = 1024;

/// Pointers in a template; each is looked up for every line of a list.
pub const TEMPLATE_FIELDS_MAX: usize = 32;

/// A template, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// In order; no two texts beside each other.
    pub parts: Vec<Part>,
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// As it is.
    Text(String),
    /// What the arguments have there.
    Field(Pointer),
}

/// What is wrong with a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadTemplate {
    /// The character, from 1, where it begins.
    pub column: usize,
    /// In words.
    pub why: &'static str,
}

impl Template {
    /// Reads a template. `{{` and `}}` are single braces.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn parse(text: &str) -> Result<Self, BadTemplate> {
        let bad = |column: usize, why: &'static str| Err(BadTemplate { column, why });
        if text.len() > TEMPLATE_BYTES_MAX {
            return bad(1, "is over 1024 bytes: it is one line for people");
        }
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut chars = text.chars().enumerate().peekable();
        while let Some((at, c)) = chars.next() {
            match c {
                '{' | '}' if chars.peek().is_some_and(|(_, next)| *next == c) => {
                    chars.next();
                    plain.push(c);
                }
                '{' => {
                    let mut inner = String::new();
                    loop {
                        match chars.next() {
                            Some((_, '}')) => break,
                            Some((_, c)) => inner.push(c),
                            None => return bad(at + 1, "opens a brace that nothing closes (`{{` is a brace itself)"),
                        }
                    }
                    let Ok(pointer) = inner.parse::<Pointer>() else {
                        return bad(at + 1, "has something else than a JSON Pointer, such as `{/amount}`, in braces");
                    };
                    if pointer.is_root() {
                        return bad(at + 1, "has empty braces; a JSON Pointer, such as `{/amount}`, belongs there");
                    }
                    if !plain.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut plain)));
                    }
                    parts.push(Part::Field(pointer));
                }
                '}' => return bad(at + 1, "closes a brace that nothing opened (`}}` is a brace itself)"),
                c if c.is_control() => return bad(at + 1, "has a control character"),
                c => plain.push(c),
            }
        }
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        if parts.iter().filter(|part| matches!(part, Part::Field(_))).count() > TEMPLATE_FIELDS_MAX {
            return bad(1, "has over 32 pointers");
        }
        Ok(Self { parts })
    }

    /// Its pointers, in order.
    pub fn fields(&self) -> impl Iterator<Item = &Pointer> {
        self.parts.iter().filter_map(|part| match part {
            Part::Field(pointer) => Some(pointer),
            Part::Text(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_come_apart() {
        let text = |text: &str| Part::Text(text.into());
        let field = |text: &str| Part::Field(text.parse().unwrap());
        for (template, parts) in [
            ("Charge {/amount} to {/card}", vec![text("Charge "), field("/amount"), text(" to "), field("/card")]),
            ("{/a}{/b~1c/0}", vec![field("/a"), field("/b~1c/0")]),
            ("{{{/a}}}", vec![text("{"), field("/a"), text("}")]),
            ("plain", vec![text("plain")]),
            ("", vec![]),
        ] {
            assert_eq!(Template::parse(template).map(|template| template.parts), Ok(parts), "{template}");
        }
    }

    #[test]
    fn bad_templates_say_where() {
        let long = "x".repeat(TEMPLATE_BYTES_MAX + 1);
        let many = "{/a}".repeat(TEMPLATE_FIELDS_MAX + 1);
        for (template, column) in [
            ("to {/card", 4),
            ("é {card}", 3),
            ("{}", 1),
            ("a}b", 2),
            ("a\nb", 2),
            ("{/~2}", 1),
            (&long, 1),
            (&many, 1),
        ] {
            assert_eq!(Template::parse(template).map_err(|bad| bad.column), Err(column), "{template}");
        }
    }
}
