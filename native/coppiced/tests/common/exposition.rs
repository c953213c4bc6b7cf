//! A strict reader of the text exposition format: whatever a scraper could stumble over is a failure.

#![allow(dead_code, clippy::unwrap_used)]

use std::collections::{BTreeMap, HashSet};

pub type Labels = BTreeMap<String, String>;

#[derive(Debug)]
pub struct Sample {
    pub name: String,
    pub labels: Labels,
    pub value: f64,
}

#[derive(Debug)]
pub struct Family {
    pub name: String,
    pub kind: String,
    pub samples: Vec<Sample>,
}

pub struct Metrics(pub Vec<Family>);

impl Metrics {
    /// The one sample with that name and these labels among others.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |sample: &&Sample| {
            sample.name == name
                && labels
                    .iter()
                    .all(|(label, value)| sample.labels.get(*label).is_some_and(|given| given == value))
        };
        let samples: Vec<&Sample> = self.0.iter().flat_map(|family| &family.samples).filter(has).collect();
        assert_eq!(samples.len(), 1, "{name} {labels:?}: {samples:?}");
        samples[0].value
    }
}

pub fn parse(text: &str) -> Metrics {
    assert!(text.ends_with('\n'), "the last line has no end");
    let mut families: Vec<Family> = Vec::new();
    let mut names = HashSet::new();
    let mut helped: Option<String> = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(!help.is_empty() && !help.contains('\\'), "{line}");
            assert!(helped.replace(name.to_owned()).is_none(), "{line}: two in a row");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(
                helped.take().as_deref(),
                Some(name),
                "{line}: its help is not before it"
            );
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(names.insert(name.to_owned()), "{name} is there twice");
            let (name, kind) = (name.to_owned(), kind.to_owned());
            families.push(Family {
                name,
                kind,
                samples: Vec::new(),
            });
        } else {
            let sample = parse_sample(line);
            let family = families.last_mut().expect("a sample before all families");
            let suffix = sample.name.strip_prefix(&family.name).expect(line);
            let allowed: &[&str] = match family.kind.as_str() {
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            assert!(allowed.contains(&suffix), "{line}: not of {}", family.name);
            family.samples.push(sample);
        }
    }
    assert!(helped.is_none());
    for family in &families {
        check(family);
    }
    Metrics(families)
}

fn parse_sample(line: &str) -> Sample {
    let is_name = |text: &str| {
        !text.is_empty()
            && !text.starts_with(|first: char| first.is_ascii_digit())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let (series, value) = line.rsplit_once(' ').expect(line);
    let (name, mut rest) = match series.split_once('{') {
        Some((name, labels)) => (name, labels.strip_suffix('}').expect(line)),
        None => (series, ""),
    };
    assert!(is_name(name), "{line}");
    let mut labels = Labels::new();
    while !rest.is_empty() {
        let (label, after) = rest.split_once("=\"").expect(line);
        assert!(is_name(label), "{line}");
        let mut text = String::new();
        let mut characters = after.char_indices();
        let end = loop {
            match characters.next().expect(line) {
                (at, '"') => break at + 1,
                (_, '\\') => text.push(match characters.next().expect(line).1 {
                    'n' => '\n',
                    escaped @ ('\\' | '"') => escaped,
                    other => panic!("{line}: \\{other}"),
                }),
                (_, character) => text.push(character),
            }
        };
        assert!(labels.insert(label.to_owned(), text).is_none(), "{line}: label twice");
        rest = after[end..].strip_prefix(',').unwrap_or(&after[end..]);
    }
    Sample {
        name: name.to_owned(),
        labels,
        value: value.parse().unwrap_or_else(|_| panic!("{line}: no number")),
    }
}

fn check(family: &Family) {
    assert!(!family.samples.is_empty(), "{} has no samples", family.name);
    let mut series = HashSet::new();
    for sample in &family.samples {
        assert!(
            series.insert(format!("{}{:?}", sample.name, sample.labels)),
            "{sample:?} twice"
        );
        assert!(sample.value.is_finite() && sample.value >= 0.0, "{sample:?}");
    }
    if family.kind == "histogram" {
        check_histogram(family);
    }
}

fn check_histogram(family: &Family) {
    let mut groups: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
    for sample in family.samples.iter().filter(|sample| sample.name.ends_with("_bucket")) {
        let mut labels = sample.labels.clone();
        let bound = labels.remove("le").expect("a bucket without a bound");
        let bound = bound.parse().unwrap();
        groups.entry(labels).or_default().push((bound, sample.value));
    }
    for (labels, buckets) in groups {
        assert!(
            buckets.is_sorted_by(|left, right| left.0 < right.0 && left.1 <= right.1),
            "{buckets:?}"
        );
        let of = |suffix: &str| {
            let name = format!("{}{suffix}", family.name);
            let found = family
                .samples
                .iter()
                .find(|sample| sample.name == name && sample.labels == labels);
            found.unwrap_or_else(|| panic!("no {name}")).value
        };
        assert_eq!(buckets.last().copied(), Some((f64::INFINITY, of("_count"))));
        assert!(of("_sum") <= 0.0 || of("_count") > 0.0, "{labels:?}");
    }
}
