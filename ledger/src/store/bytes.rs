//! The bytes of a stored row: our own, so that no database's idea of a type decides what old files mean.
//!
//! In: numbers and texts. Out: a version byte, the fields one after the other, and eight bytes of a hash over the row's place and all
//! before them. A row with another version, a wrong hash, a field that is cut or bytes left over is damaged, never guessed at. The hash
//! finds a flipped bit at the first read (a database's own checksums are looked at when it repairs, not when it reads) and
//! a row that stands in another's place; it proves nothing against somebody who can compute it: the journal's chain does.

use std::sync::Arc;

use super::StoreError;

/// Version of all rows.
const VERSION: u8 = 1;
/// Bytes of the hash at a row's end.
const SEAL_BYTES: usize = 8;

/// Writes a row.
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new(capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(capacity);
        bytes.push(VERSION);
        Self(bytes)
    }

    pub(super) fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    pub(super) fn bool(&mut self, value: bool) -> &mut Self {
        self.u8(u8::from(value))
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    /// Bytes of a length that the reader knows.
    pub(super) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Bytes after their length.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.u64(bytes.len() as u64).raw(bytes)
    }

    /// A short text (most are names): its length takes one byte where it is below 255.
    pub(super) fn str(&mut self, text: &str) -> &mut Self {
        match u8::try_from(text.len()) {
            Ok(short) if short < u8::MAX => self.u8(short).raw(text.as_bytes()),
            _ => self.u8(u8::MAX).bytes(text.as_bytes()),
        }
    }

    pub(super) fn maybe<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) -> &mut Self {
        self.bool(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
        self
    }

    pub(super) fn maybe_str(&mut self, text: Option<&str>) -> &mut Self {
        self.maybe(text, |to, text| {
            to.str(text);
        })
    }

    pub(super) fn maybe_u64(&mut self, number: Option<u64>) -> &mut Self {
        self.maybe(number, |to, number| {
            to.u64(number);
        })
    }

    /// The finished row, for this place.
    pub(super) fn sealed(mut self, table: &str, key: &[u8]) -> Vec<u8> {
        let seal = seal(table, key, &self.0);
        self.0.extend_from_slice(&seal);
        self.0
    }
}

fn seal(table: &str, key: &[u8], bytes: &[u8]) -> [u8; SEAL_BYTES] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(bytes).update(table.as_bytes()).update(key);
    let mut seal = [0; SEAL_BYTES];
    hasher.finalize_xof().fill(&mut seal);
    seal
}

/// Reads a row.
pub(super) struct Reader<'a> {
    table: &'static str,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Checks version and seal.
    pub(super) fn open(table: &'static str, key: &[u8], row: &'a [u8]) -> Result<Self, StoreError> {
        let damaged = |what| StoreError::Damaged(format!("a row of `{table}` {what}"));
        let (bytes, found) = row.split_last_chunk::<SEAL_BYTES>().ok_or_else(|| damaged("is cut short"))?;
        if bytes.first() != Some(&VERSION) {
            return Err(damaged("has a version that this build does not know"));
        }
        if *found != seal(table, key, bytes) {
            return Err(damaged("is not what was written"));
        }
        Ok(Self { table, rest: &bytes[1..] })
    }

    /// That something in the row makes no sense.
    pub(super) fn damaged(&self) -> StoreError {
        StoreError::Damaged(format!("a row of `{}` cannot be read", self.table))
    }

    pub(super) fn raw(&mut self, length: usize) -> Result<&'a [u8], StoreError> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or_else(|| self.damaged())?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], StoreError> {
        let (bytes, rest) = self.rest.split_first_chunk::<N>().ok_or_else(|| self.damaged())?;
        self.rest = rest;
        Ok(*bytes)
    }

    pub(super) fn u8(&mut self) -> Result<u8, StoreError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn bool(&mut self) -> Result<bool, StoreError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.damaged()),
        }
    }

    pub(super) fn u32(&mut self) -> Result<u32, StoreError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, StoreError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], StoreError> {
        let length = usize::try_from(self.u64()?).map_err(|_| self.damaged())?;
        self.raw(length)
    }

    pub(super) fn str(&mut self) -> Result<&'a str, StoreError> {
        let bytes = match self.u8()? {
            u8::MAX => self.bytes()?,
            short => self.raw(usize::from(short))?,
        };
        str::from_utf8(bytes).map_err(|_| self.damaged())
    }

    pub(super) fn text(&mut self) -> Result<Arc<str>, StoreError> {
        self.str().map(Arc::from)
    }

    pub(super) fn maybe<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        if self.bool()? { read(self).map(Some) } else { Ok(None) }
    }

    /// All must have been read.
    pub(super) fn end(self) -> Result<(), StoreError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.damaged()) }
    }
}
