//! Sets of numbers as runs, as first and length.

const WORD: u64 = u64::BITS as u64;

/// Runs of the bits that are set in words that come in ascending order, each with its index.
pub fn bit_runs(words: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for (index, mut word) in words {
        while word != 0 {
            let start = u64::from(word.trailing_zeros());
            let length = u64::from((word >> start).trailing_ones());
            push(&mut runs, (index * WORD + start, length));
            word = match start + length {
                WORD => 0,
                end => word >> end << end,
            };
        }
    }
    runs
}

/// Appends a run that lies behind all others, to the last of them where they touch.
pub fn push(runs: &mut Vec<(u64, u64)>, (first, length): (u64, u64)) {
    match runs.last_mut() {
        Some((start, count)) if *start + *count == first => *count += length,
        _ => runs.push((first, length)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_go_on_across_words_and_end_at_gaps() {
        let words = [(0, 1 << 63 | 0b110), (1, u64::MAX), (2, 1), (5, 1 << 63)];
        assert_eq!(bit_runs(words.into_iter()), [(1, 2), (63, 66), (383, 1)]);
        assert!(bit_runs([(0, 0)].into_iter()).is_empty());
    }
}
