//! Metrics with labels.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Family;
use crate::text::Text;

/// The value of a label.
pub type Label = Cow<'static, str>;

/// A hash table, because every request is counted; [`Values::in_order`] sorts it for a scrape.
type ByLabels<const N: usize, T> = HashMap<[Label; N], T, foldhash::fast::FixedState>;

/// The values of a family, by the values of its labels.
struct Values<const N: usize, T> {
    labels: [&'static str; N],
    values: Mutex<ByLabels<N, T>>,
}

impl<const N: usize, T: Default> Values<N, T> {
    fn new(labels: [&'static str; N]) -> Arc<Self> {
        // Without labels there is one value, which is shown from the beginning.
        let only = (N == 0).then(|| (labels.map(Label::from), T::default()));
        Arc::new(Self { labels, values: Mutex::new(only.into_iter().collect()) })
    }

    fn lock(&self) -> MutexGuard<'_, ByLabels<N, T>> {
        // Numbers are consistent even if a thread panicked while it held the lock.
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By their labels, as they are shown.
    fn in_order(values: &ByLabels<N, T>) -> impl Iterator<Item = (&[Label; N], &T)> {
        let mut sorted: Vec<_> = values.iter().collect();
        sorted.sort_unstable_by_key(|(labels, _)| *labels);
        sorted.into_iter()
    }

    fn named<'l>(&self, labels: &'l [Label; N]) -> impl Iterator<Item = (&'static str, &'l Label)> + Clone {
        self.labels.into_iter().zip(labels)
    }
}

/// Numbers that only grow.
#[derive(Clone)]
pub struct Counters<const N: usize>(Arc<Values<N, u64>>);

impl<const N: usize> Counters<N> {
    pub(crate) fn new(labels: [&'static str; N]) -> Self {
        Self(Values::new(labels))
    }

    pub fn inc(&self, labels: [Label; N]) {
        self.add(labels, 1);
    }

    pub fn add(&self, labels: [Label; N], by: u64) {
        *self.0.lock().entry(labels).or_default() += by;
    }
}

impl<const N: usize> Family for Counters<N> {
    fn labels(&self) -> Vec<&'static str> {
        self.0.labels.to_vec()
    }

    fn write(&self, samples: &mut Text<'_>) {
        for (labels, value) in Values::in_order(&self.0.lock()) {
            samples.sample(self.0.named(labels), value);
        }
    }
}

/// Numbers that go up and down.
#[derive(Clone)]
pub struct Gauges<const N: usize>(Arc<Values<N, i64>>);

impl<const N: usize> Gauges<N> {
    pub(crate) fn new(labels: [&'static str; N]) -> Self {
        Self(Values::new(labels))
    }

    pub fn set(&self, labels: [Label; N], value: i64) {
        self.0.lock().insert(labels, value);
    }

    pub fn add(&self, labels: [Label; N], by: i64) {
        *self.0.lock().entry(labels).or_default() += by;
    }
}

impl<const N: usize> Family for Gauges<N> {
    fn labels(&self) -> Vec<&'static str> {
        self.0.labels.to_vec()
    }

    fn write(&self, samples: &mut Text<'_>) {
        for (labels, value) in Values::in_order(&self.0.lock()) {
            samples.sample(self.0.named(labels), value);
        }
    }
}

/// The upper bounds of the buckets of a histogram.
#[derive(Clone, Debug)]
pub struct Buckets {
    bounds: Vec<f64>,
    le_first: bool,
}

impl Buckets {
    pub fn at(bounds: &[f64]) -> Self {
        Self { bounds: bounds.to_vec(), le_first: false }
    }

    /// `count` bounds, each twice the one before.
    pub fn exponential(first: f64, count: usize) -> Self {
        let bounds = std::iter::successors(Some(first), |bound| Some(bound * 2.0));
        Self { bounds: bounds.take(count).collect(), le_first: false }
    }

    /// The label `le` is the first one, not the last. Scrapers do not distinguish the two; readers of the text do.
    pub fn le_first(self) -> Self {
        Self { le_first: true, ..self }
    }
}

#[derive(Clone)]
pub struct Histograms<const N: usize>(Arc<Values<N, Distribution>>, Arc<Buckets>);

#[derive(Default)]
struct Distribution {
    /// One more than there are bounds: the last bucket is for all larger values.
    buckets: Vec<u64>,
    sum: f64,
    count: u64,
}

impl<const N: usize> Histograms<N> {
    pub(crate) fn new(labels: [&'static str; N], buckets: Buckets) -> Self {
        Self(Values::new(labels), Arc::new(buckets))
    }

    pub fn observe(&self, labels: [Label; N], value: f64) {
        let bounds = &self.1.bounds;
        let bucket = bounds.iter().position(|bound| value <= *bound).unwrap_or(bounds.len());
        let mut values = self.0.lock();
        let distribution = values.entry(labels).or_default();
        distribution.buckets.resize(bounds.len() + 1, 0);
        if let Some(count) = distribution.buckets.get_mut(bucket) {
            *count += 1;
        }
        distribution.sum += value;
        distribution.count += 1;
    }
}

impl<const N: usize> Family for Histograms<N> {
    fn labels(&self) -> Vec<&'static str> {
        self.0.labels.to_vec()
    }

    fn write(&self, samples: &mut Text<'_>) {
        let Buckets { bounds, le_first } = &*self.1;
        for (labels, distribution) in Values::in_order(&self.0.lock()) {
            let labels = self.0.named(labels).map(|(name, value)| (name, value.as_ref()));
            let mut total = 0;
            for bucket in 0..=bounds.len() {
                total += distribution.buckets.get(bucket).copied().unwrap_or(0);
                let bound = bounds.get(bucket).map_or_else(|| "+Inf".to_owned(), f64::to_string);
                let mut with_bound: Vec<(&'static str, &str)> = Vec::with_capacity(N + 1);
                for (name, value) in labels.clone() {
                    with_bound.push((name, value));
                }
                with_bound.insert(if *le_first { 0 } else { N }, ("le", &bound));
                samples.suffixed("_bucket", with_bound.into_iter(), total);
            }
            samples.suffixed("_sum", labels.clone(), distribution.sum);
            samples.suffixed("_count", labels, distribution.count);
        }
    }
}

/// A value without labels that is read whenever the metrics are.
pub(crate) struct Read<F>(pub F);

impl<F: Fn() -> Option<f64> + Send + Sync> Family for Read<F> {
    fn labels(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn write(&self, samples: &mut Text<'_>) {
        if let Some(value) = (self.0)() {
            samples.sample(std::iter::empty(), value);
        }
    }
}

/// Values that are read, with one label.
pub(crate) struct ReadEach<F> {
    pub label: &'static str,
    pub values: F,
}

impl<F: Fn() -> Vec<(Label, f64)> + Send + Sync> Family for ReadEach<F> {
    fn labels(&self) -> Vec<&'static str> {
        vec![self.label]
    }

    fn write(&self, samples: &mut Text<'_>) {
        for (label, value) in (self.values)() {
            samples.sample([(self.label, &label)].into_iter(), value);
        }
    }
}
