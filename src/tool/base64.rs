//! Bytes as base64 (RFC 4648, section 4), for answers that are kept as evidence inside JSON.

const ALPHABET: [u8; 64] = *b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The text, padded.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let three = [chunk.first(), chunk.get(1), chunk.get(2)].map(|byte| u32::from(byte.copied().unwrap_or(0)));
        let [a, b, c] = three;
        let bits = a << 16 | b << 8 | c;
        for place in 0..4 {
            let sextet = usize::try_from(bits >> (18 - 6 * place) & 63).unwrap_or(0);
            let digit = ALPHABET.get(sextet).copied().unwrap_or(b'=');
            text.push(char::from(if place > chunk.len() { b'=' } else { digit }));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_vectors_of_rfc_4648() {
        let rows = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (bytes, text) in rows {
            assert_eq!(super::encode(bytes.as_bytes()), text);
        }
        assert_eq!(super::encode(&[0xff, 0xfe, 0xfd]), "//79");
    }
}
