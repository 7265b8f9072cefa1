//! Tokens within an edit distance (Levenshtein's, over Unicode scalar values) of another one, as an
//! automaton: a map of tokens is walked only where tokens may still be near. Unlike that of `fst`,
//! which is made out beforehand, it has no limit of states, and so none of lengths and distances.

use fst::Automaton;

pub struct Near {
    token: Vec<char>,
    distance: usize,
    /// How many characters have to be the token's own.
    prefix: usize,
}

/// After some bytes of another token.
#[derive(Clone)]
pub struct State {
    /// By number of the token's characters: how far these are from the characters that were read.
    row: Vec<usize>,
    read: usize,
    /// The bits of a character that was not read to its end, and how many bytes it lacks.
    character: u32,
    lacking: u32,
}

impl Near {
    /// At most `distance` away, and with the same first `prefix` characters.
    pub fn new(token: &str, distance: usize, prefix: usize) -> Self {
        let token: Vec<char> = token.chars().collect();
        let prefix = prefix.min(token.len());
        Self { token, distance, prefix }
    }

    /// Whether another token of so many characters is near, by the same table in `row`: nothing is
    /// allocated.
    pub fn has(&self, other: &str, length: usize, row: &mut Vec<usize>) -> bool {
        if length < self.prefix || length.abs_diff(self.token.len()) > self.distance {
            return false;
        }
        row.clear();
        row.extend(0..=self.token.len());
        let mut characters = other.chars().enumerate();
        characters.all(|(read, character)| self.follow(row, read, character.into()))
            && row[self.token.len()] <= self.distance
    }

    /// Turn the row of the table after `read` characters into that after one more; whether tokens
    /// that go on so may be near. Only cells at most `distance` from the diagonal are looked at:
    /// the others, and so any with which the row began, are greater than that.
    #[inline]
    fn follow(&self, row: &mut [usize], read: usize, character: u32) -> bool {
        if read < self.prefix && u32::from(self.token[read]) != character {
            return false;
        }
        let start = read.saturating_sub(self.distance);
        let end = self.distance.saturating_add(read + 1).min(self.token.len());
        let mut diagonal = row[start];
        let mut last = read.min(self.distance) + 1;
        row[start] = last;
        let mut near = last <= self.distance;
        for (&own, cell) in self.token[start..end].iter().zip(&mut row[start + 1..]) {
            let changed = diagonal + usize::from(u32::from(own) != character);
            diagonal = *cell;
            last = changed.min(last + 1).min(diagonal + 1);
            *cell = last;
            near |= last <= self.distance;
        }
        near
    }
}

impl Automaton for Near {
    /// None where no token is near whatever comes.
    type State = Option<State>;

    fn start(&self) -> Option<State> {
        let row = (0..=self.token.len()).collect();
        Some(State { row, read: 0, character: 0, lacking: 0 })
    }

    fn is_match(&self, state: &Option<State>) -> bool {
        state.as_ref().is_some_and(|state| {
            let far = state.row.last().is_none_or(|&far| far > self.distance);
            !far && state.read >= self.prefix && state.lacking == 0
        })
    }

    fn can_match(&self, state: &Option<State>) -> bool {
        state.is_some()
    }

    fn accept(&self, state: &Option<State>, byte: u8) -> Option<State> {
        let state = state.as_ref()?;
        let (bits, lacking) = match byte {
            0..0x80 => (byte, 0),
            0x80..0xC0 => (byte & 0x3F, state.lacking.checked_sub(1)?),
            0xC0..0xE0 => (byte & 0x1F, 1),
            0xE0..0xF0 => (byte & 0x0F, 2),
            _ => (byte & 0x07, 3),
        };
        let character = (state.character << 6) | u32::from(bits);
        if lacking > 0 {
            return Some(State { character, lacking, ..state.clone() });
        }
        let mut row = state.row.clone();
        let near = self.follow(&mut row, state.read, character);
        near.then_some(State { row, read: state.read + 1, character: 0, lacking: 0 })
    }
}
