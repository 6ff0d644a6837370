//! Query strings: a few known names, each once; anything else is refused, so that a misspelt filter never shows too much.

use super::answer::Problem;

/// Entries of a list, where nobody asks for another number (SPEC Annex, Admin).
const PAGE: usize = 100;

/// Entries of a list at most.
const PAGE_MAX: usize = 1000;

/// The values of a query string.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads it; `known` are the names that mean something.
    pub(super) fn read(uri: &http::Uri, known: &[&str]) -> Result<Self, Problem> {
        Self::read_with(uri, known, &[])
    }

    /// The same with names that may stand in it several times.
    pub(super) fn read_with(uri: &http::Uri, known: &[&str], repeatable: &[&str]) -> Result<Self, Problem> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(name), Some(value)) = (decoded(name), decoded(value)) else {
                return Err(Problem::new(400, "invalid_query", "The query string is not percent-encoded UTF-8."));
            };
            let repeats = repeatable.contains(&name.as_str());
            if !repeats && !known.contains(&name.as_str()) {
                let known = [known, repeatable].concat();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err(Problem::new(400, "invalid_query", format!("Known query parameters here: {known}.")));
            }
            if !repeats && pairs.iter().any(|(before, _)| *before == name) {
                return Err(Problem::new(400, "invalid_query", format!("`{name}` stands in the query twice.")));
            }
            pairs.push((name, value));
        }
        Ok(Self(pairs))
    }

    /// A value; an empty one counts as absent.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, value)| known == name && !value.is_empty()).map(|(_, value)| value.as_str())
    }

    /// All values of a name that may be repeated.
    pub(super) fn all<'q>(&'q self, name: &'q str) -> impl Iterator<Item = &'q str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A number.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Problem> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let wrong = |_| Problem::new(400, "invalid_query", format!("`{name}` is a number."));
        text.parse().map(Some).map_err(wrong)
    }

    /// `limit`, within its bounds.
    pub(super) fn limit(&self) -> Result<usize, Problem> {
        let limit = self.number("limit")?.map_or(PAGE, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        if limit == 0 {
            return Err(Problem::new(400, "invalid_query", "`limit` is at least 1."));
        }
        Ok(limit.min(PAGE_MAX))
    }
}

/// `+` and `%41` decoded; `None`: no UTF-8, or a broken escape.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<Query, Problem> {
        Query::read(&format!("http://localhost/x?{query}").parse().expect("a uri"), &["a", "limit"])
    }

    #[test]
    fn values_are_decoded_and_strangers_refused() {
        for (query, value) in [("a=x", "x"), ("a=x%20y+z", "x y z"), ("a=%C3%A9", "é"), ("&a=1&&", "1")] {
            assert_eq!(read(query).expect(query).get("a"), Some(value), "{query}");
        }
        for query in ["b=1", "a=1&a=2", "a=%", "a=%g0", "a=%FF", "limit=0", "limit=x", "limit=-1"] {
            assert!(read(query).and_then(|query| query.limit()).is_err(), "{query}");
        }
        for (query, limit) in [("", 100), ("limit=5", 5), ("limit=99999999999", 1000), ("limit=", 100)] {
            assert_eq!(read(query).and_then(|query| query.limit()).expect(query), limit, "{query}");
        }
        assert_eq!(read("a=").expect("read").get("a"), None);
    }
}
