//! Shares of the processors where there are no cgroups: the scheduler's own priorities.

/// Each step of nice is a quarter more or less of the processors, see the kernel's `sched_prio_to_weight`.
const STEP: f64 = 1.25;
const USUAL_SHARE: f64 = 100.0;

/// The nice value whose weight is nearest to a share.
pub fn nice_of(share: u32) -> i32 {
    let steps = (f64::from(share.max(1)) / USUAL_SHARE).ln() / STEP.ln();
    (-steps.round()).clamp(-20.0, 19.0) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nice_of_shares_follows_the_kernels_weights() {
        for (share, nice) in [
            (100, 0),
            (125, -1),
            (80, 1),
            (1_000, -10),
            (10, 10),
            (10_000, -20),
            (1, 19),
            (0, 19),
        ] {
            assert_eq!(nice_of(share), nice, "{share}");
        }
    }
}
