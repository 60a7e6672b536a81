//! Label selectors, field selectors, and how stored objects are matched with them.
//!
//! A [`Filter`] is parsed once for a request. It is then matched with [`Facets`], the few values of an object that
//! selectors can refer to, which are read from its stored text without building a tree: a list with a selector examines
//! every object of its kind, a watch every event.

use std::borrow::Cow;
use std::fmt;

use tally_value::{Map, Value};

use crate::field::{At, FieldError};
use crate::kinds::Resource;
use crate::meta::{label_value_problems, qualified_name_problems, validate_labels};
use crate::status_error::StatusError;

mod facets;
mod fields;
mod parse;

pub use facets::Facets;
pub use fields::FieldSelector;

/// The selectors of a list, watch or deletecollection.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub labels: LabelSelector,
    pub fields: FieldSelector,
}

impl Filter {
    /// From the two query parameters; empty texts select everything.
    pub fn parse(resource: &Resource, labels: &str, fields: &str) -> Result<Self, StatusError> {
        let labels = LabelSelector::parse(labels)?;
        Ok(Self { labels, fields: FieldSelector::parse(resource, fields)? })
    }

    /// Whether there are no conditions: objects need not be examined.
    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    pub fn matches(&self, facets: &Facets<'_>) -> bool {
        self.fields.matches(facets) && self.labels.matches_by(|key| facets.label(key))
    }

    /// Matches a stored object, reading no more of it than needed. Text that is not an object does not match.
    pub fn matches_stored(&self, resource: &Resource, stored: &[u8]) -> bool {
        self.is_everything() || Facets::read_for(self, resource, stored).is_some_and(|facets| self.matches(&facets))
    }

    /// Matches an object in memory.
    pub fn matches_object(&self, resource: &Resource, object: &Value) -> bool {
        let labels = || object.get("metadata")?.get("labels")?.as_object();
        self.fields.matches_object(resource, object) && (self.labels.is_everything() || self.labels.matches(labels()))
    }

    /// The only name that can match, if there is only one: then no other object need be examined.
    pub fn exact_name(&self) -> Option<&str> {
        self.fields.exact("metadata.name")
    }

    pub fn exact_namespace(&self) -> Option<&str> {
        self.fields.exact("metadata.namespace")
    }
}

/// Requirements on labels, all of which must hold. The default selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    /// In order of their keys.
    requirements: Vec<Requirement>,
    /// Matches nothing, whatever the requirements: for an object without a selector.
    nothing: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    /// Sorted, without duplicates. Exactly one for all operators but `In` and `NotIn`, none for the existence of a key.
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equals,
    DoubleEquals,
    NotEquals,
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// The operator of a requirement that no version of the API knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a valid label selector operator")]
pub struct UnknownOperator(String);

impl LabelSelector {
    /// From a query parameter such as `app=x,tier in (a,b),!old`.
    pub fn parse(text: &str) -> Result<Self, StatusError> {
        let requirements = parse::requirements(text).map_err(StatusError::bad_request)?;
        Ok(Self::of(requirements))
    }

    /// From a LabelSelector object: `{}` selects everything, an absent selector nothing.
    pub fn from_json(selector: Option<&Value>) -> Result<Self, UnknownOperator> {
        let Some(selector) = selector.filter(|selector| !selector.is_null()) else {
            return Ok(Self { nothing: true, ..Self::default() });
        };
        let at = At::root(selector);
        let mut requirements = equalities(at.at("matchLabels").map());
        for expression in at.at("matchExpressions").items() {
            let operator = match expression.at("operator").text_or_empty() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(UnknownOperator(other.to_owned())),
            };
            let values = expression.at("values");
            let values = values.list().iter().filter_map(Value::as_str).map(str::to_owned).collect();
            requirements.push(Requirement::of(expression.at("key").text_or_empty(), operator, values));
        }
        Ok(Self::of(requirements))
    }

    /// From a plain map, as in Services and ReplicationControllers: each label must be present with its value.
    pub fn from_map(labels: Option<&Map>) -> Self {
        Self::of(equalities(labels))
    }

    fn of(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { requirements, nothing: false }
    }

    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    pub fn matches(&self, labels: Option<&Map>) -> bool {
        self.matches_by(|key| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str))
    }

    /// `label` returns the value of a key.
    pub fn matches_by<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing && self.requirements.iter().all(|requirement| requirement.holds(label(&requirement.key)))
    }
}

fn equalities(labels: Option<&Map>) -> Vec<Requirement> {
    let labels = labels.into_iter().flatten();
    labels
        .map(|(key, value)| Requirement::of(key, Operator::Equals, vec![value.as_str().unwrap_or_default().to_owned()]))
        .collect()
}

impl Requirement {
    fn of(key: &str, operator: Operator, mut values: Vec<String>) -> Self {
        values.sort();
        values.dedup();
        Self { key: key.to_owned(), operator, values }
    }

    fn holds(&self, value: Option<&str>) -> bool {
        let among = |value: &str| self.values.iter().any(|one| one == value);
        match self.operator {
            Operator::Equals | Operator::DoubleEquals | Operator::In => value.is_some_and(among),
            Operator::NotEquals | Operator::NotIn => !value.is_some_and(among),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => self.compare(value).is_some_and(|(value, bound)| value > bound),
            Operator::LessThan => self.compare(value).is_some_and(|(value, bound)| value < bound),
        }
    }

    /// The label and the bound as numbers, if they are numbers.
    fn compare(&self, value: Option<&str>) -> Option<(i64, i64)> {
        Some((value?.parse().ok()?, self.values.first()?.parse().ok()?))
    }

    /// The errors, with the messages of the parser of query parameters.
    fn problems(&self) -> Vec<FieldError> {
        let values = At::rooted("values", None);
        let mut errors = Vec::new();
        for (index, value) in self.values.iter().enumerate() {
            let at = values.index(index);
            let number = matches!(self.operator, Operator::GreaterThan | Operator::LessThan);
            if number && value.parse::<i64>().is_err() {
                errors.push(at.invalid_value(value, "for 'Gt', 'Lt' operators, the value must be an integer"));
            }
            let problems = label_value_problems(value);
            if !problems.is_empty() {
                errors.push(at.key(&self.key).invalid_value(value, problems.join("; ")));
            }
        }
        errors
    }
}

/// In the form that kubectl prints: `app=x,tier in (a,b),!old`.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, values) = (&self.key, Cow::from(self.values.join(",")));
        match self.operator {
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

/// A LabelSelector object as the SELECTOR column of a table shows it.
pub fn selector_column(selector: Option<&Value>) -> String {
    match LabelSelector::from_json(selector).map(|selector| selector.to_string()) {
        Err(_) => "<error>".to_owned(),
        Ok(text) if text.is_empty() => "<none>".to_owned(),
        Ok(text) => text,
    }
}

/// All errors of a LabelSelector object; none if it is absent.
pub fn validate_label_selector(selector: At<'_, '_>) -> Vec<FieldError> {
    let mut errors = validate_labels(selector.at("matchLabels"));
    for expression in selector.at("matchExpressions").items() {
        let (key, operator, values) = (expression.at("key"), expression.at("operator"), expression.at("values"));
        match operator.text_or_empty() {
            "In" | "NotIn" if values.is_empty() => {
                errors.push(values.required("must be specified when `operator` is 'In' or 'NotIn'"));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                errors.push(values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'"));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.push(operator.invalid_value(other, "not a valid selector operator")),
        }
        let name = key.text_or_empty();
        errors.extend(qualified_name_problems(name).into_iter().map(|problem| key.invalid_value(name, problem)));
        for value in values.items() {
            let problems = label_value_problems(value.text_or_empty());
            errors.extend(problems.into_iter().map(|problem| value.invalid(problem)));
        }
    }
    errors
}
