//! JSON numbers by their exact decimal value.
//!
//! In: the bytes at a number. Out: [`Number`], the one text for that value, and how many bytes it took. No floating
//! point is involved anywhere, so no two values can meet by rounding, and no feature of any crate can change the result.
//!
//! The normal form. Write the value as `0.d1d2…dk × 10^n` with neither `d1` nor `dk` zero, and lay the digits out as
//! ECMA-262's `Number::toString` does with a double's shortest digits:
//!
//! | case | text | example |
//! | --- | --- | --- |
//! | zero, of either sign | `0` | `-0.00e7` → `0` |
//! | `k ≤ n ≤ 21` | the digits, then `n − k` zeros | `1e20` → `100000000000000000000` |
//! | `0 < n ≤ 21` | the digits, a point after the n-th | `4.50` → `4.5` |
//! | `−6 < n ≤ 0` | `0.`, `−n` zeros, the digits | `1E-6` → `0.000001` |
//! | otherwise | `d1`, a point and the rest if `k > 1`, `e`, the sign, `\|n − 1\|` | `1e-7`, `1.5e+30` |
//!
//! Digits and `n` can be read back from the text, so different values have different texts. Where the shortest text of
//! some double has exactly this value, the text is that one, hence RFC 8785's own (section 3.2.2.3); elsewhere RFC 8785
//! would round (`9007199254740993`, `333333333.33333329`, `1e400`) and this keeps the digits. The exponent is written,
//! never expanded, so the text is at most 22 bytes longer than the digits.

use crate::error::Refusal;

/// Most significant digits of a number. The longest exact expansion of any IEEE double takes 767; money and ids take
/// fewer than 40. More is refused ([`Refusal::NumberTooLong`]) rather than carried through every diff and page.
pub const MAX_DIGITS: usize = 1024;

/// Largest magnitude of a number's decimal exponent (of its leading digit). Contains every double (±324), IEEE binary128
/// (±4,966) and decimal128 (±6,176). Beyond it is [`Refusal::NumberOutOfRange`].
pub const MAX_EXPONENT: i64 = 9999;

/// Where ECMA-262 changes from plain digits to an exponent (`Number::toString`, steps 6 to 8).
const PLAIN_MAX: i64 = 21;
const PLAIN_MIN: i64 = -6;

/// Exponents are counted up to here and no further: far beyond any text's length, so that a saturated exponent can
/// never be brought back into range by digits.
const EXPONENT_CAP: i64 = 1 << 50;

/// A number, held as its canonical text. Equal values are equal texts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Number(Box<str>);

impl Number {
    /// The canonical text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What RFC 8259 section 6 lets a number consist of.
struct Literal<'a> {
    negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: i64,
    length_bytes: usize,
}

/// Reads the number that `input` begins with; what follows it is the caller's to judge. On a fault: the reason and how
/// many bytes in it was noticed.
pub(crate) fn read(input: &[u8]) -> Result<(Number, usize), (Refusal, usize)> {
    let literal = literal(input)?;
    let text = canonical(&literal).map_err(|refusal| (refusal, 0))?;
    Ok((Number(text.into()), literal.length_bytes))
}

fn literal(input: &[u8]) -> Result<Literal<'_>, (Refusal, usize)> {
    let mut at = 0;
    let negative = input.first() == Some(&b'-');
    at += usize::from(negative);
    let whole = digits(input, at)?;
    // A zero stands alone: in `012` the number ends at the zero and the caller trips over the rest.
    let whole = if whole.first() == Some(&b'0') { &whole[..1] } else { whole };
    at += whole.len();
    let mut fraction: &[u8] = &[];
    if input.get(at) == Some(&b'.') {
        fraction = digits(input, at + 1)?;
        at += 1 + fraction.len();
    }
    let mut exponent = 0;
    if matches!(input.get(at), Some(b'e' | b'E')) {
        at += 1;
        let sign = match input.get(at) {
            Some(b'-') => -1,
            _ => 1,
        };
        at += usize::from(matches!(input.get(at), Some(b'+' | b'-')));
        let written = digits(input, at)?;
        at += written.len();
        let magnitude = written.iter().fold(0_i64, |sum, digit| (sum * 10 + i64::from(digit - b'0')).min(EXPONENT_CAP));
        exponent = sign * magnitude;
    }
    Ok(Literal { negative, whole, fraction, exponent, length_bytes: at })
}

/// The run of at least one digit that begins at `at`.
fn digits(input: &[u8], at: usize) -> Result<&[u8], (Refusal, usize)> {
    let rest = input.get(at..).unwrap_or_default();
    let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    match (length, rest.is_empty()) {
        (0, true) => Err((Refusal::Truncated, at)),
        (0, false) => Err((Refusal::Syntax, at)),
        _ => Ok(&rest[..length]),
    }
}

fn canonical(literal: &Literal<'_>) -> Result<String, Refusal> {
    let all = || literal.whole.iter().chain(literal.fraction);
    let Some(leading_zeros) = all().position(|&digit| digit != b'0') else {
        return Ok("0".to_owned());
    };
    let trailing_zeros = all().rev().take_while(|&&digit| digit == b'0').count();
    let count = literal.whole.len() + literal.fraction.len() - leading_zeros - trailing_zeros;
    if count > MAX_DIGITS {
        return Err(Refusal::NumberTooLong);
    }
    let n = signed(literal.whole.len()) - signed(leading_zeros) + literal.exponent;
    if (n - 1).abs() > MAX_EXPONENT {
        return Err(Refusal::NumberOutOfRange);
    }
    let digits: String = all().skip(leading_zeros).take(count).map(|&digit| char::from(digit)).collect();
    Ok(layout(literal.negative, &digits, n))
}

/// `0.digits × 10^n` as the table at the head of this file says; `digits` has no zero at either end, `n` is in bounds.
fn layout(negative: bool, digits: &str, n: i64) -> String {
    let sign = if negative { "-" } else { "" };
    let k = signed(digits.len());
    if (1..=PLAIN_MAX).contains(&n) {
        let point = usize::try_from(n).unwrap_or_default();
        if k <= n {
            return format!("{sign}{digits}{}", "0".repeat(point - digits.len()));
        }
        let (before, after) = digits.split_at(point);
        return format!("{sign}{before}.{after}");
    }
    if n > PLAIN_MIN && n <= 0 {
        return format!("{sign}0.{}{digits}", "0".repeat(usize::try_from(-n).unwrap_or_default()));
    }
    let (first, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    format!("{sign}{first}{point}{rest}e{:+}", n - 1)
}

/// A length as a signed number. Lengths are at most [`MAX_BYTES`](crate::MAX_BYTES), so the cap is never met.
fn signed(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(EXPONENT_CAP)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(literal: &str) -> Result<String, Refusal> {
        let (number, length) = read(literal.as_bytes()).map_err(|(refusal, _)| refusal)?;
        assert_eq!(length, literal.len(), "{literal} is read to its end");
        Ok(number.as_str().to_owned())
    }

    #[test]
    fn every_case_of_the_layout() {
        let rows = [
            ("0", "0"),
            ("-0", "0"),
            ("0.000", "0"),
            ("-0.0e-5", "0"),
            ("0e999999999999999999999999", "0"),
            ("1", "1"),
            ("1.0", "1"),
            ("1e0", "1"),
            ("10e-1", "1"),
            ("0.1E+1", "1"),
            ("-1.50", "-1.5"),
            ("123456789012345678901", "123456789012345678901"),
            ("1e20", "100000000000000000000"),
            ("1e21", "1e+21"),
            ("1234567890123456789012", "1.234567890123456789012e+21"),
            ("0.000001", "0.000001"),
            ("1e-6", "0.000001"),
            ("0.0000001", "1e-7"),
            ("123e-9", "1.23e-7"),
            ("1.23456789012345678901234567890", "1.2345678901234567890123456789"),
            ("9007199254740993", "9007199254740993"),
            ("18446744073709551615", "18446744073709551615"),
            ("-9223372036854775809", "-9223372036854775809"),
            ("333333333.33333329", "333333333.33333329"),
            ("1E400", "1e+400"),
            ("1e9999", "1e+9999"),
            ("9.9e-9999", "9.9e-9999"),
        ];
        for (literal, expected) in rows {
            assert_eq!(text(literal).as_deref(), Ok(expected), "{literal}");
        }
    }

    #[test]
    fn bounds_and_what_happens_at_them() {
        let digits = "7".repeat(MAX_DIGITS);
        assert!(text(&digits).is_ok());
        assert_eq!(text(&format!("{digits}7")), Err(Refusal::NumberTooLong));
        // Zeros at either end are no significant digits.
        assert_eq!(text(&format!("0.{}", "0".repeat(100_000))).as_deref(), Ok("0"));
        assert_eq!(text(&format!("1.{}", "0".repeat(100_000))).as_deref(), Ok("1"));
        assert_eq!(text(&format!("0.{}1e100001", "0".repeat(100_000))).as_deref(), Ok("1"));
        assert_eq!(text(&format!("1{}", "0".repeat(100_000))), Err(Refusal::NumberOutOfRange));
        for literal in ["1e10000", "1e-10000", "10e9999", "1e999999999", "-1e99999999999999999999999999999999"] {
            assert_eq!(text(literal), Err(Refusal::NumberOutOfRange), "{literal}");
        }
    }

    #[test]
    fn what_is_no_number() {
        let rows = [
            ("-", Refusal::Truncated),
            ("1.", Refusal::Truncated),
            ("1e", Refusal::Truncated),
            ("1e+", Refusal::Truncated),
            ("-x", Refusal::Syntax),
            ("-.5", Refusal::Syntax),
            ("1.e5", Refusal::Syntax),
            ("1e+-5", Refusal::Syntax),
            ("--1", Refusal::Syntax),
            ("-Infinity", Refusal::Syntax),
        ];
        for (literal, expected) in rows {
            assert_eq!(text(literal), Err(expected), "{literal}");
        }
    }

    #[test]
    fn a_leading_zero_ends_the_number() {
        assert_eq!(read(b"012").map(|(_, length)| length), Ok(1));
    }
}
