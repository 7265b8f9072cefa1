//! Dot products of coded vectors and a query, in whole numbers: the same on every processor.
//!
//! A query is two signed bytes an element, the second 128 times as fine as the first. Neither
//! exceeds 64, so that two products with unsigned bytes fit into 16 bits (AVX2).

/// Vectors side by side.
pub const LANES: usize = 16;
/// Elements that one instruction multiplies and adds up.
pub const GROUP: usize = 4;
/// The first part of a query's element in units of the second.
pub const FINER: f32 = 128.0;
/// The largest of either part.
pub const LARGEST: f64 = 64.0;
/// Elements of a vector whose sums fit into 32 bits: a code is at most 255.
pub const MOST_ELEMENTS: usize = i32::MAX as usize / (255 * LARGEST as usize);

/// Some elements of `LANES` vectors, one after the other: each is its code and 128.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Line(pub [u8; LANES * GROUP]);

/// Vectors of zeros.
pub const ZERO: Line = Line([128; LANES * GROUP]);

/// The elements of a query by groups, and what to take off the sums because codes have 128 added.
pub struct Parts {
    pub first: Vec<[i8; GROUP]>,
    pub second: Vec<[i8; GROUP]>,
    offsets: [i32; 2],
}

impl Parts {
    pub fn new(first: Vec<[i8; GROUP]>, second: Vec<[i8; GROUP]>) -> Self {
        let sum = |parts: &[[i8; GROUP]]| -> i32 {
            128 * parts.iter().flatten().map(|&part| i32::from(part)).sum::<i32>()
        };
        let offsets = [sum(&first), sum(&second)];
        Self { first, second, offsets }
    }

    /// The product of two sums, in units of the second part.
    #[inline(always)]
    fn product(&self, first: i32, second: i32) -> f32 {
        (first - self.offsets[0]) as f32 * FINER + (second - self.offsets[1]) as f32
    }
}

/// Writes the products of a query and the vectors of some blocks.
pub type Multiply = fn(&[Line], &Parts, &mut [[f32; LANES]]);

/// The fastest that this processor has.
pub fn fastest() -> Multiply {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni") {
            // SAFETY: the processor has these instructions.
            return |lines, parts, found| unsafe { x86::with_vnni(lines, parts, found) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return |lines, parts, found| unsafe { x86::with_avx2(lines, parts, found) };
        }
    }
    plainly
}

/// On any processor.
pub fn plainly(lines: &[Line], parts: &Parts, found: &mut [[f32; LANES]]) {
    for (block, found) in lines.chunks_exact(parts.first.len()).zip(found) {
        let (mut first, mut second) = ([0_i32; LANES], [0_i32; LANES]);
        for ((line, one), two) in block.iter().zip(&parts.first).zip(&parts.second) {
            for (lane, codes) in line.0.chunks_exact(GROUP).enumerate() {
                for element in 0..GROUP {
                    let code = i32::from(codes[element]);
                    first[lane] += code * i32::from(one[element]);
                    second[lane] += code * i32::from(two[element]);
                }
            }
        }
        for (lane, found) in found.iter_mut().enumerate() {
            *found = parts.product(first[lane], second[lane]);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{GROUP, LANES, Line, Parts};

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub fn with_vnni(lines: &[Line], parts: &Parts, found: &mut [[f32; LANES]]) {
        for (block, found) in lines.chunks_exact(parts.first.len()).zip(found) {
            let mut sums = [_mm512_setzero_si512(); 2];
            for ((line, &one), &two) in block.iter().zip(&parts.first).zip(&parts.second) {
                // SAFETY: a line is 64 bytes, aligned to 64.
                let codes = unsafe { _mm512_load_si512(line.0.as_ptr().cast()) };
                sums[0] = _mm512_dpbusd_epi32(sums[0], codes, _mm512_set1_epi32(packed(one)));
                sums[1] = _mm512_dpbusd_epi32(sums[1], codes, _mm512_set1_epi32(packed(two)));
            }
            let mut stored = [[0_i32; LANES]; 2];
            for (sums, stored) in sums.into_iter().zip(&mut stored) {
                // SAFETY: there is room for 64 bytes.
                unsafe { _mm512_storeu_si512(stored.as_mut_ptr().cast(), sums) };
            }
            for (lane, found) in found.iter_mut().enumerate() {
                *found = parts.product(stored[0][lane], stored[1][lane]);
            }
        }
    }

    #[target_feature(enable = "avx2")]
    pub fn with_avx2(lines: &[Line], parts: &Parts, found: &mut [[f32; LANES]]) {
        const HALF: usize = LANES / 2;
        let ones = _mm256_set1_epi16(1);
        for (block, found) in lines.chunks_exact(parts.first.len()).zip(found) {
            let mut sums = [[_mm256_setzero_si256(); 2]; 2];
            for ((line, &one), &two) in block.iter().zip(&parts.first).zip(&parts.second) {
                let query = [_mm256_set1_epi32(packed(one)), _mm256_set1_epi32(packed(two))];
                for (half, codes) in line.0.chunks_exact(HALF * GROUP).enumerate() {
                    // SAFETY: half a line is 32 bytes, aligned to 32.
                    let codes = unsafe { _mm256_load_si256(codes.as_ptr().cast()) };
                    for (sums, query) in sums.iter_mut().zip(query) {
                        let pairs = _mm256_madd_epi16(_mm256_maddubs_epi16(codes, query), ones);
                        sums[half] = _mm256_add_epi32(sums[half], pairs);
                    }
                }
            }
            let mut stored = [[0_i32; LANES]; 2];
            for (sums, stored) in sums.into_iter().zip(&mut stored) {
                for (half, stored) in sums.into_iter().zip(stored.chunks_exact_mut(HALF)) {
                    // SAFETY: there is room for 32 bytes.
                    unsafe { _mm256_storeu_si256(stored.as_mut_ptr().cast(), half) };
                }
            }
            for (lane, found) in found.iter_mut().enumerate() {
                *found = parts.product(stored[0][lane], stored[1][lane]);
            }
        }
    }

    #[inline(always)]
    fn packed(parts: [i8; GROUP]) -> i32 {
        i32::from_ne_bytes(parts.map(|part| part as u8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random, the extremes among them.
    fn numbers(count: usize) -> impl Iterator<Item = u8> {
        let mut state = 1_u32;
        (0..count).map(move |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            match state >> 29 {
                0 => 0,
                1 => 255,
                _ => (state >> 16) as u8,
            }
        })
    }

    #[test]
    fn all_processors_give_the_same_products() {
        for groups in [1, 3, 16, 193] {
            let mut codes = numbers(5 * groups * LANES * GROUP);
            let lines: Vec<Line> = (0..5 * groups)
                .map(|_| Line(std::array::from_fn(|_| codes.next().unwrap_or(0))))
                .collect();
            let mut signed = numbers(2 * groups * GROUP).map(|n| (i32::from(n) - 128) / 2);
            let mut part = || -> Vec<[i8; GROUP]> {
                let mut one = || signed.next().unwrap_or(0) as i8;
                (0..groups).map(|_| std::array::from_fn(|_| one())).collect()
            };
            let parts = Parts::new(part(), part());
            let mut plain = vec![[0.0; LANES]; 5];
            plainly(&lines, &parts, &mut plain);
            let mut others: Vec<Multiply> = vec![fastest()];
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has these instructions.
                others.push(|l, p, f| unsafe { x86::with_avx2(l, p, f) });
            }
            for other in others {
                let mut found = vec![[0.0; LANES]; 5];
                other(&lines, &parts, &mut found);
                assert_eq!(plain, found);
            }
        }
    }
}
