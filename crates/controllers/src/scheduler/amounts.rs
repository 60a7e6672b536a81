//! Amounts of resources by name, in whole units: thousandths for `cpu`, ones for everything else.

use std::collections::BTreeMap;

use compact_str::CompactString;
use serde_json::Value;
use tally_core::quantity::Quantity;

pub(super) const CPU: &str = "cpu";
pub(super) const MEMORY: &str = "memory";
/// How many Pods a node may have, counted like any other resource: every Pod takes one.
pub(super) const PODS: &str = "pods";

/// The amounts in an object, before they are parsed.
pub(super) type Written = BTreeMap<CompactString, Value>;

/// Sorted by name, without zeros. Limited to 64 bits: an amount at the limit counts as infinite.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Amounts(Vec<(CompactString, i64)>);

impl Amounts {
    /// A value that is not a quantity does not count; the API admits no such value.
    pub fn read(written: &Written) -> Self {
        let mut amounts = Self::default();
        for (name, quantity) in written {
            let quantity = match quantity {
                Value::String(text) => Quantity::parse(text).ok(),
                Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
                _ => None,
            };
            let unit = if name == CPU { Quantity::milli_value } else { Quantity::value };
            amounts.set(name, quantity.as_ref().map_or(0, unit));
        }
        amounts
    }

    pub fn get(&self, name: &str) -> i64 {
        self.0.binary_search_by(|(known, _)| known.as_str().cmp(name)).map_or(0, |at| self.0[at].1)
    }

    pub fn set(&mut self, name: &str, amount: i64) {
        match self.0.binary_search_by(|(known, _)| known.as_str().cmp(name)) {
            Ok(at) if amount == 0 => {
                self.0.remove(at);
            }
            Ok(at) => self.0[at].1 = amount,
            Err(_) if amount == 0 => {}
            Err(at) => self.0.insert(at, (name.into(), amount)),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    pub fn add(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            self.set(name, self.get(name).saturating_add(amount));
        }
    }

    pub fn subtract(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            self.set(name, self.get(name).saturating_sub(amount));
        }
    }

    /// The larger of both, for each resource.
    pub fn raise_to(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            self.set(name, self.get(name).max(amount));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
