//! The part of CEL that the policies use: `has`, `==`, `in`, `!`, `&&`, `||` and parentheses, over strings. Any other text
//! is refused, so that what is accepted here means the same to an API server.

use serde_json::Value;

pub enum PolicyExpression {
    Has(FieldPath),
    Equals(FieldPath, String),
    In(FieldPath, Vec<String>),
    Not(Box<PolicyExpression>),
    All(Vec<PolicyExpression>),
    Any(Vec<PolicyExpression>),
}

pub struct FieldPath(Vec<String>);

impl FieldPath {
    /// The last field may be absent, those before it may not: an API server would refuse the write with an error.
    fn find<'a>(&self, variables: &'a Value) -> Option<&'a Value> {
        let (last, before) = self.0.split_last().unwrap();
        let object = before.iter().fold(variables, |value, field| {
            value.get(field).unwrap_or_else(|| panic!("there is no field {field} in {value}"))
        });
        object.get(last)
    }

    fn text<'a>(&self, variables: &'a Value) -> &'a str {
        self.find(variables).and_then(Value::as_str).unwrap_or_else(|| panic!("{} has no text", self.0.join(".")))
    }
}

impl PolicyExpression {
    pub fn read(text: &str) -> PolicyExpression {
        let mut reader = ExpressionReader { rest: text.trim() };
        let expression = reader.any();
        assert_eq!(reader.rest, "", "cannot read the end of {text}");
        expression
    }

    pub fn holds(&self, variables: &Value) -> bool {
        match self {
            Self::Has(path) => path.find(variables).is_some(),
            Self::Equals(path, text) => path.text(variables) == text,
            Self::In(path, texts) => texts.iter().any(|text| path.text(variables) == text),
            Self::Not(inner) => !inner.holds(variables),
            Self::All(parts) => parts.iter().all(|part| part.holds(variables)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(variables)),
        }
    }
}

struct ExpressionReader<'a> {
    rest: &'a str,
}

impl ExpressionReader<'_> {
    fn take(&mut self, token: &str) -> bool {
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest).trim_start();
        rest.is_some()
    }

    fn expect(&mut self, token: &str) {
        assert!(self.take(token), "expected {token} before {}", self.rest);
    }

    fn any(&mut self) -> PolicyExpression {
        let mut parts = vec![self.all()];
        while self.take("||") {
            parts.push(self.all());
        }
        PolicyExpression::Any(parts)
    }

    fn all(&mut self) -> PolicyExpression {
        let mut parts = vec![self.one()];
        while self.take("&&") {
            parts.push(self.one());
        }
        PolicyExpression::All(parts)
    }

    fn one(&mut self) -> PolicyExpression {
        if self.take("!") {
            return PolicyExpression::Not(Box::new(self.one()));
        }
        if self.take("(") {
            let inner = self.any();
            self.expect(")");
            return inner;
        }
        if self.take("has(") {
            let path = self.path();
            self.expect(")");
            return PolicyExpression::Has(path);
        }
        let path = self.path();
        if self.take("==") {
            return PolicyExpression::Equals(path, self.string());
        }
        self.expect("in ");
        self.expect("[");
        let mut texts = vec![self.string()];
        while self.take(",") {
            texts.push(self.string());
        }
        self.expect("]");
        PolicyExpression::In(path, texts)
    }

    /// `oldObject.spec.managedBy`.
    fn path(&mut self) -> FieldPath {
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(self.rest.len());
        let (path, rest) = self.rest.split_at(end);
        let fields: Vec<String> = path.split('.').map(str::to_owned).collect();
        assert!(fields.len() > 1 && !fields.contains(&String::new()), "expected a field before {}", self.rest);
        self.rest = rest.trim_start();
        FieldPath(fields)
    }

    fn string(&mut self) -> String {
        let text = self.rest.strip_prefix('\'').and_then(|rest| rest.split_once('\''));
        let (text, rest) = text.unwrap_or_else(|| panic!("expected a string before {}", self.rest));
        assert!(!text.contains('\\'), "escapes are not read: {text}");
        self.rest = rest.trim_start();
        text.to_owned()
    }
}

#[test]
fn expressions_mean_what_they_mean_to_an_api_server() {
    let variables = serde_json::json!({"a": {"b": "x"}});
    for (text, holds) in [
        ("has(a.b)", true),
        ("has(a.c)", false),
        ("!has(a.c) && a.b == 'x'", true),
        ("has(a.c) && a.c == 'x'", false),
        ("a.b == 'y' || a.b in ['z', 'x']", true),
        ("a.b in ['z']", false),
        // && binds more tightly than ||.
        ("a.b == 'x' || a.b == 'x' && a.b == 'y'", true),
        ("(a.b == 'x' || a.b == 'x') && a.b == 'y'", false),
    ] {
        assert_eq!(PolicyExpression::read(text).holds(&variables), holds, "{text}");
    }
    for text in ["", "a", "has(a", "a.b", "a.b == x", "a.b == 'x' a", "a.b in []", "a.b != 'x'", "a..b == 'x'"] {
        assert!(std::panic::catch_unwind(|| PolicyExpression::read(text)).is_err(), "{text}");
    }
}
