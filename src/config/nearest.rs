//! "Did you mean …": the known name that is nearest to a misspelt one.

/// Names longer than this are not compared: the table is quadratic, and a typo in a longer name is no typo.
const LENGTH_MAX: usize = 64;

/// The nearest of `known`, where at most a third of the letters (and at least one) differ.
pub(super) fn nearest<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    if name.len() > LENGTH_MAX {
        return None;
    }
    let allowed = (name.chars().count() / 3).max(1);
    let candidates = known.into_iter().filter(|known| known.len() <= LENGTH_MAX && *known != name);
    let scored = candidates.map(|known| (distance(name, known), known));
    scored.filter(|(distance, _)| *distance <= allowed).min().map(|(_, known)| known)
}

/// ` (did you mean …?)`, or nothing.
pub(super) fn hint<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    nearest(name, known).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
}

/// Letters to insert, delete, replace or swap with their neighbour (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let width = b.len() + 1;
    let mut table: Vec<usize> = vec![0; (a.len() + 1) * width];
    let get = |table: &[usize], i: usize, j: usize| table.get(i * width + j).copied().unwrap_or(0);
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            let best = if i == 0 || j == 0 {
                i + j
            } else {
                let same = a.get(i - 1) == b.get(j - 1);
                let replaced = get(&table, i - 1, j - 1) + usize::from(!same);
                let mut best = replaced.min(get(&table, i - 1, j) + 1).min(get(&table, i, j - 1) + 1);
                if i > 1 && j > 1 && a.get(i - 1) == b.get(j - 2) && a.get(i - 2) == b.get(j - 1) {
                    best = best.min(get(&table, i - 2, j - 2) + 1);
                }
                best
            };
            if let Some(cell) = table.get_mut(i * width + j) {
                *cell = best;
            }
        }
    }
    table.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_find_their_word() {
        let known = ["listen", "equivalents", "alternates", "api_key", "base_url"];
        for (typed, found) in [
            ("listne", Some("listen")),
            ("equivalent", Some("equivalents")),
            ("apikey", Some("api_key")),
            ("base-url", Some("base_url")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, known), found, "{typed}");
        }
        assert_eq!(nearest(&"x".repeat(1000), known), None);
    }
}
