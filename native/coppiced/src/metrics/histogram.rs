//! Durations, counted by size.

use std::time::Duration;

use crate::stats::Counter;

/// Upper bounds of the buckets, in microseconds: from a lease that found everything ready to a boot in an emulated host.
const BOUNDS_US: [u64; 13] = [
    1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

const US_PER_SECOND: f64 = 1e6;

#[derive(Debug, Default)]
pub struct Histogram {
    /// One a bound, and one for what is above the last.
    buckets: [Counter; BOUNDS_US.len() + 1],
    sum_us: Counter,
}

impl Histogram {
    pub fn observe(&self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.buckets[BOUNDS_US.partition_point(|bound| *bound < us)].increment();
        self.sum_us.add(us);
    }

    /// Each bound in seconds, the last of them `+Inf`, with how many durations were not above it.
    pub fn cumulative(&self) -> Vec<(String, u64)> {
        let bounds = BOUNDS_US.iter().map(|us| (*us as f64 / US_PER_SECOND).to_string());
        let mut sum = 0;
        bounds
            .chain(["+Inf".to_owned()])
            .zip(&self.buckets)
            .map(|(bound, bucket)| {
                sum += bucket.get();
                (bound, sum)
            })
            .collect()
    }

    pub fn sum_seconds(&self) -> f64 {
        self.sum_us.get() as f64 / US_PER_SECOND
    }

    pub fn count(&self) -> u64 {
        self.buckets.iter().map(Counter::get).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_at_a_bound_is_within_it_and_one_above_it_is_not() {
        let histogram = Histogram::default();
        histogram.observe(Duration::from_micros(1_000));
        histogram.observe(Duration::from_micros(1_001));
        let cumulative = histogram.cumulative();
        assert_eq!(cumulative[0], ("0.001".to_owned(), 1));
        assert_eq!(cumulative[1], ("0.0025".to_owned(), 2));
    }

    #[test]
    fn longest_duration_is_counted_above_all_bounds() {
        let histogram = Histogram::default();
        histogram.observe(Duration::MAX);
        assert_eq!(histogram.cumulative()[12], ("10".to_owned(), 0));
        assert_eq!((histogram.cumulative()[13].1, histogram.count()), (1, 1));
    }
}
