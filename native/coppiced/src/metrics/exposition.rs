//! The text exposition format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write};

use crate::metrics::histogram::Histogram;

#[derive(Debug, Clone, Copy)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

type Labels<'a> = &'a [(&'a str, &'a str)];

/// Families one after the other; all samples of a family follow its header.
#[derive(Default)]
pub struct Exposition(String);

impl Exposition {
    /// `help` is one line without backslashes.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {}", kind.name()));
    }

    pub fn sample(&mut self, name: &str, labels: Labels, value: impl Display) {
        self.line(format_args!("{name}{} {value}", label_set(labels)));
    }

    /// A family with one sample.
    pub fn single(&mut self, name: &str, kind: Kind, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    pub fn histogram(&mut self, name: &str, labels: Labels, histogram: &Histogram) {
        for (bound, count) in histogram.cumulative() {
            let mut labels = labels.to_vec();
            labels.push(("le", &bound));
            self.sample(&format!("{name}_bucket"), &labels, count);
        }
        self.sample(&format!("{name}_sum"), labels, histogram.sum_seconds());
        self.sample(&format!("{name}_count"), labels, histogram.count());
    }

    pub fn into_text(self) -> String {
        self.0
    }

    fn line(&mut self, line: std::fmt::Arguments) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "{line}");
    }
}

fn label_set(labels: Labels) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let pairs: Vec<String> = labels
        .iter()
        .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
        .collect();
    format!("{{{}}}", pairs.join(","))
}

fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn label_values_given_quotes_backslashes_and_line_breaks_are_escaped() {
        let mut exposition = Exposition::default();
        exposition.sample("x", &[("a", "1\\2"), ("b", "\"\n")], 3);
        assert_eq!(exposition.into_text(), "x{a=\"1\\\\2\",b=\"\\\"\\n\"} 3\n");
    }

    #[test]
    fn histogram_ends_with_infinity_sum_and_count() {
        let histogram = Histogram::default();
        histogram.observe(Duration::from_millis(3));
        histogram.observe(Duration::from_secs(11));
        let mut exposition = Exposition::default();
        exposition.histogram("d", &[("operation", "fork")], &histogram);
        let text = exposition.into_text();
        assert!(
            text.contains("d_bucket{operation=\"fork\",le=\"0.0025\"} 0\n"),
            "{text}"
        );
        assert!(text.contains("d_bucket{operation=\"fork\",le=\"0.005\"} 1\n"), "{text}");
        assert!(text.contains("d_bucket{operation=\"fork\",le=\"10\"} 1\n"), "{text}");
        let end = "d_bucket{operation=\"fork\",le=\"+Inf\"} 2\nd_sum{operation=\"fork\"} 11.003\n\
                   d_count{operation=\"fork\"} 2\n";
        assert!(text.ends_with(end), "{text}");
    }
}
