//! The first million numbers of the official ECMAScript number sequence (cyberphone/json-canonicalization,
//! `testdata/README.md`): whoever prints them right gets the published SHA-256 of the lines `bits,text`.
//!
//! The sequence is 168 chosen doubles, 2,000 that count up from the smallest normal one, and then the finite, non-zero
//! little-endian doubles of a SHA-256 chain that begins at 32 zero bytes. Generator and SHA-256 are our own; the chosen
//! values and the checksums are the published data. Each double goes in as `serde_json` prints it, which is the shortest
//! text in another layout (`1.5e30`), and comes out of [`Canonical`] in the published one. (Rust's own `{:e}` would not
//! do: where two shortest texts are equally near it takes the larger, ECMAScript the even one.)

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy exempts only the test functions themselves")]

use rubicon_ledger::Canonical;

/// Published: number of lines, SHA-256 over them. Sizes are left out; the hash covers them.
const CHECKPOINTS: [(usize, &str); 4] = [
    (1_000, "be18b62b6f69cdab33a7e0dae0d9cfa869fda80ddc712221570f9f40a5878687"),
    (10_000, "b9f7a8e75ef22a835685a52ccba7f7d6bdc99e34b010992cbc5864cd12be6892"),
    (100_000, "22776e6d4b49fa294a0d0f349268e5c28808fe7e0cb2bcbe28f63894e494d4c7"),
    (1_000_000, "49415fee2c56c77864931bd3624faad425c3c577d6d74e89a83bc725506dad16"),
];

#[test]
fn a_million_numbers_have_the_published_hash() {
    let mut numbers = Sequence::new();
    let mut hash = Sha256::new();
    let mut lines = 0;
    for (until, expected) in CHECKPOINTS {
        while lines < until {
            let bits = numbers.next_bits();
            let canonical = Canonical::parse(&serde_json::to_vec(&f64::from_bits(bits)).unwrap()).unwrap();
            hash.update(format!("{bits:x},{}\n", canonical.as_str()).as_bytes());
            lines += 1;
        }
        assert_eq!(hash.clone().finish_hex(), expected, "after {lines} lines");
    }
}

/// FIPS 180-4's own example, so that a wrong hash function is not mistaken for wrong numbers.
#[test]
fn sha256_is_sha256() {
    let mut hash = Sha256::new();
    hash.update(b"abc");
    assert_eq!(hash.finish_hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

struct Sequence {
    fixed: std::vec::IntoIter<u64>,
    block: [u8; 32],
    unread: Vec<u64>,
}

impl Sequence {
    fn new() -> Self {
        let zeros_and_smallest = [0, SIGN, 1, SIGN | 1];
        let thirds = THIRDS.iter().map(|bits| SIGN | bits).chain(THIRDS);
        let counted = (0..2000).map(|n| 0x0010_0000_0000_0000 + n);
        let fixed: Vec<u64> = zeros_and_smallest.into_iter().chain(thirds).chain(CHOSEN).chain(counted).collect();
        assert_eq!(fixed.len(), 2168);
        Self { fixed: fixed.into_iter(), block: [0; 32], unread: Vec::new() }
    }

    fn next_bits(&mut self) -> u64 {
        if let Some(bits) = self.fixed.next() {
            return bits;
        }
        loop {
            let Some(bits) = self.unread.pop() else {
                let mut hash = Sha256::new();
                hash.update(&self.block);
                self.block = hash.finish();
                let doubles = self.block.chunks_exact(8).rev();
                self.unread = doubles.map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap())).collect();
                continue;
            };
            let double = f64::from_bits(bits);
            if double.is_finite() && double != 0.0 {
                return bits;
            }
        }
    }
}

const SIGN: u64 = 1 << 63;

/// A third of each power of ten from 10^22 down to 10^-27, with the rounding errors of the published list.
const THIRDS: [u64; 50] = [
    0x446696695dbd1cc3,
    0x443211ede4974a35,
    0x43fce97ca0f21056,
    0x43c7213080c1a6ac,
    0x439280f39a348556,
    0x435d9b1f5d20d557,
    0x4327af4c4a80aaac,
    0x42f2f2a36ecd5556,
    0x42be51057e155558,
    0x428840d131aaaaac,
    0x4253670dc1555557,
    0x421f0b4935555557,
    0x41e8d5d42aaaaaac,
    0x41b3de4355555556,
    0x417fca0555555556,
    0x41496e6aaaaaaaab,
    0x4114585555555555,
    0x40e046aaaaaaaaab,
    0x40aa0aaaaaaaaaaa,
    0x4074d55555555555,
    0x4040aaaaaaaaaaab,
    0x400aaaaaaaaaaaab,
    0x3fd5555555555555,
    0x3fa1111111111111,
    0x3f6b4e81b4e81b4f,
    0x3f35d867c3ece2a5,
    0x3f0179ec9cbd821e,
    0x3ecbf647612f3696,
    0x3e965e9f80f29212,
    0x3e61e54c672874db,
    0x3e2ca213d840baf8,
    0x3df6e80fe033c8c6,
    0x3dc2533fe68fd3d2,
    0x3d8d51ffd74c861c,
    0x3d5774ccac3d3817,
    0x3d22c3d6f030f9ac,
    0x3cee0624b3818f79,
    0x3cb804ea293472c7,
    0x3c833721ba905bd3,
    0x3c4ebe9c5db3c61e,
    0x3c18987d17c304e5,
    0x3be3ad30dfcf371d,
    0x3baf7b816618582f,
    0x3b792f9ab81379bf,
    0x3b442615600f9499,
    0x3b101e77800c76e1,
    0x3ad9ca58cce0be35,
    0x3aa4a1e0a3e6fe90,
    0x3a708180831f320d,
    0x3a3a68cd9e985016,
];

/// The rest of the published list: powers of ten by halves, values that close in on 0.000005, neighbours of one, of
/// 0.3, of the ends of the normal range, of 2^53, and of the places where the notation changes.
const CHOSEN: [u64; 64] = [
    0x4024000000000000,
    0x4014000000000000,
    0x3fe0000000000000,
    0x3fa999999999999a,
    0x3f747ae147ae147b,
    0x3f40624dd2f1a9fc,
    0x3f0a36e2eb1c432d,
    0x3ed4f8b588e368f1,
    0x3ea0c6f7a0b5ed8d,
    0x3e6ad7f29abcaf48,
    0x3e35798ee2308c3a,
    0x3ed539223589fa95,
    0x3ed4ff26cd5a7781,
    0x3ed4f95a762283ff,
    0x3ed4f8c60703520c,
    0x3ed4f8b72f19cd0d,
    0x3ed4f8b5b31c0c8d,
    0x3ed4f8b58d1c461a,
    0x3ed4f8b5894f7f0e,
    0x3ed4f8b588ee37f3,
    0x3ed4f8b588e47da4,
    0x3ed4f8b588e3849c,
    0x3ed4f8b588e36bb5,
    0x3ed4f8b588e36937,
    0x3ed4f8b588e368f8,
    0x3ed4f8b588e368f1,
    0x3ff0000000000000,
    0xbff0000000000000,
    0xbfeffffffffffffa,
    0xbfeffffffffffffb,
    0x3feffffffffffffa,
    0x3feffffffffffffb,
    0x3feffffffffffffc,
    0x3feffffffffffffe,
    0xbfefffffffffffff,
    0xbfefffffffffffff,
    0x3fefffffffffffff,
    0x3fefffffffffffff,
    0x3fd3333333333332,
    0x3fd3333333333333,
    0x3fd3333333333334,
    0x0010000000000000,
    0x000ffffffffffffd,
    0x000fffffffffffff,
    0x7fefffffffffffff,
    0xffefffffffffffff,
    0x4340000000000000,
    0xc340000000000000,
    0x4430000000000000,
    0x44b52d02c7e14af5,
    0x44b52d02c7e14af6,
    0x44b52d02c7e14af7,
    0x444b1ae4d6e2ef4e,
    0x444b1ae4d6e2ef4f,
    0x444b1ae4d6e2ef50,
    0x3eb0c6f7a0b5ed8c,
    0x3eb0c6f7a0b5ed8d,
    0x41b3de4355555553,
    0x41b3de4355555554,
    0x41b3de4355555555,
    0x41b3de4355555556,
    0x41b3de4355555557,
    0xbecbf647612f3696,
    0x43143ff3c1cb0959,
];

/// FIPS 180-4, here so that no dependency is needed for one test.
#[derive(Clone)]
struct Sha256 {
    state: [u32; 8],
    pending: Vec<u8>,
    length_bytes: u64,
}

impl Sha256 {
    fn new() -> Self {
        // Fractional parts of the square roots of the first eight primes.
        let state = PRIMES_8.map(|prime| fraction_bits(f64::from(prime).sqrt()));
        Self { state, pending: Vec::new(), length_bytes: 0 }
    }

    fn update(&mut self, bytes: &[u8]) {
        self.length_bytes += bytes.len() as u64;
        self.pending.extend_from_slice(bytes);
        let whole = self.pending.len() / 64 * 64;
        for block in self.pending[..whole].chunks_exact(64) {
            compress(&mut self.state, block);
        }
        self.pending.drain(..whole);
    }

    fn finish(mut self) -> [u8; 32] {
        let length_bits = self.length_bytes * 8;
        self.update(&[0x80]);
        let zeros = (120 - self.pending.len()) % 64;
        self.update(&vec![0; zeros]);
        self.update(&length_bits.to_be_bytes());
        let mut digest = [0; 32];
        for (bytes, word) in digest.chunks_exact_mut(4).zip(self.state) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        digest
    }

    fn finish_hex(self) -> String {
        self.finish().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

const PRIMES_8: [u32; 8] = [2, 3, 5, 7, 11, 13, 17, 19];

/// The first 32 bits of a number's fractional part; a double of these roots is exact far beyond them.
fn fraction_bits(root: f64) -> u32 {
    (root.fract() * 4_294_967_296.0) as u32
}

/// Fractional parts of the cube roots of the first 64 primes.
fn round_constants() -> &'static [u32; 64] {
    static CONSTANTS: std::sync::OnceLock<[u32; 64]> = std::sync::OnceLock::new();
    CONSTANTS.get_or_init(|| {
        let mut primes = (2_u32..).filter(|n| (2..*n).all(|divisor| n % divisor != 0));
        std::array::from_fn(|_| fraction_bits(f64::from(primes.next().unwrap()).cbrt()))
    })
}

fn compress(state: &mut [u32; 8], block: &[u8]) {
    let mut schedule = [0_u32; 64];
    for (word, bytes) in schedule.iter_mut().zip(block.chunks_exact(4)) {
        *word = u32::from_be_bytes(bytes.try_into().unwrap());
    }
    for at in 16..64 {
        let (near, far) = (schedule[at - 2], schedule[at - 15]);
        let small_1 = near.rotate_right(17) ^ near.rotate_right(19) ^ (near >> 10);
        let small_0 = far.rotate_right(7) ^ far.rotate_right(18) ^ (far >> 3);
        schedule[at] = schedule[at - 16].wrapping_add(small_0).wrapping_add(schedule[at - 7]).wrapping_add(small_1);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (word, constant) in schedule.iter().zip(round_constants()) {
        let big_1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choice = (e & f) ^ (!e & g);
        let first = h.wrapping_add(big_1).wrapping_add(choice).wrapping_add(*constant).wrapping_add(*word);
        let big_0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let majority = (a & b) ^ (a & c) ^ (b & c);
        (h, g, f, e, d, c, b, a) =
            (g, f, e, d.wrapping_add(first), c, b, a, first.wrapping_add(big_0).wrapping_add(majority));
    }
    for (word, add) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *word = word.wrapping_add(add);
    }
}
