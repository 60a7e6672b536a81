//! JSON as it was sent, including order, duplicates and the digits of numbers, with the error messages of
//! kube-apiserver.

use std::borrow::Cow;
use std::fmt;

use tally_value::{Map, Number, Value};

/// The deepest nesting of a document. No served object comes near, and every level costs stack.
pub const MAX_DEPTH: usize = 512;

/// The most lists and maps in a document, empty ones included. The text of one can be two characters, and the object
/// built from it a thousand times that: without a limit, a few bodies would use all memory. No real document comes
/// near.
pub const MAX_PARTS: usize = 100_000;

/// A parsed document.
#[derive(Debug, PartialEq)]
pub enum JsonNode<'t> {
    Null,
    Bool(bool),
    /// The literal.
    Number(Cow<'t, str>),
    Text(Cow<'t, str>),
    List(Vec<JsonNode<'t>>),
    /// In order, with duplicates.
    Map(Vec<(Cow<'t, str>, JsonNode<'t>)>),
}

/// The error in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyntaxError {
    End,
    Depth,
    Parts,
    /// An unexpected character, and its context.
    Character(u8, &'static str),
    /// A misspelt `true`, `false` or `null`: the character found, the word, and the expected character.
    Literal(u8, &'static str, char),
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::End => f.write_str("unexpected end of JSON input"),
            Self::Depth => f.write_str("exceeded max depth"),
            Self::Parts => write!(f, "more than {MAX_PARTS} objects and lists"),
            Self::Character(byte, place) => write!(f, "invalid character {} {place}", Quoted(*byte)),
            Self::Literal(byte, word, letter) => {
                write!(f, "invalid character {} in literal {word} (expecting '{letter}')", Quoted(*byte))
            }
        }
    }
}

struct Quoted(u8);

impl fmt::Display for Quoted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match char::from(self.0) {
            '\'' => f.write_str(r"'\''"),
            '\n' => f.write_str(r"'\n'"),
            '\r' => f.write_str(r"'\r'"),
            '\t' => f.write_str(r"'\t'"),
            '\\' => f.write_str(r"'\\'"),
            other if other.is_ascii_control() => write!(f, r"'\x{:02x}'", self.0),
            other if other.is_control() || other == '\u{a0}' => write!(f, r"'\u{:04x}'", self.0),
            other => write!(f, "'{other}'"),
        }
    }
}

pub fn parse(text: &[u8]) -> Result<JsonNode<'_>, SyntaxError> {
    let mut reader = Reader { text, at: 0, parts: 0 };
    let node = reader.value(0)?;
    match reader.skip_blank() {
        None => Ok(node),
        Some(byte) => Err(SyntaxError::Character(byte, "after top-level value")),
    }
}

struct Reader<'t> {
    text: &'t [u8],
    at: usize,
    /// The number of lists and maps so far.
    parts: usize,
}

impl<'t> Reader<'t> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Skips blanks. The next character, which is not consumed.
    fn skip_blank(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
        self.peek()
    }

    fn value(&mut self, depth: usize) -> Result<JsonNode<'t>, SyntaxError> {
        match self.skip_blank().ok_or(SyntaxError::End)? {
            b'{' | b'[' if depth >= MAX_DEPTH => Err(SyntaxError::Depth),
            b'{' | b'[' if self.parts >= MAX_PARTS => Err(SyntaxError::Parts),
            b'{' => self.map(depth + 1),
            b'[' => self.list(depth + 1),
            b'"' => self.string().map(JsonNode::Text),
            b'-' | b'0'..=b'9' => self.number().map(JsonNode::Number),
            b't' => self.literal("true").map(|()| JsonNode::Bool(true)),
            b'f' => self.literal("false").map(|()| JsonNode::Bool(false)),
            b'n' => self.literal("null").map(|()| JsonNode::Null),
            other => Err(SyntaxError::Character(other, "looking for beginning of value")),
        }
    }

    fn map(&mut self, depth: usize) -> Result<JsonNode<'t>, SyntaxError> {
        self.at += 1;
        self.parts += 1;
        let mut entries = Vec::new();
        if self.skip_blank() == Some(b'}') {
            self.at += 1;
            return Ok(JsonNode::Map(entries));
        }
        loop {
            match self.skip_blank().ok_or(SyntaxError::End)? {
                b'"' => {}
                other => return Err(SyntaxError::Character(other, "looking for beginning of object key string")),
            }
            let key = self.string()?;
            match self.skip_blank().ok_or(SyntaxError::End)? {
                b':' => self.at += 1,
                other => return Err(SyntaxError::Character(other, "after object key")),
            }
            entries.push((key, self.value(depth)?));
            match self.skip_blank().ok_or(SyntaxError::End)? {
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    return Ok(JsonNode::Map(entries));
                }
                other => return Err(SyntaxError::Character(other, "after object key:value pair")),
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<JsonNode<'t>, SyntaxError> {
        self.at += 1;
        self.parts += 1;
        let mut items = Vec::new();
        if self.skip_blank() == Some(b']') {
            self.at += 1;
            return Ok(JsonNode::List(items));
        }
        loop {
            items.push(self.value(depth)?);
            match self.skip_blank().ok_or(SyntaxError::End)? {
                b',' => self.at += 1,
                b']' => {
                    self.at += 1;
                    return Ok(JsonNode::List(items));
                }
                other => return Err(SyntaxError::Character(other, "after array element")),
            }
        }
    }

    fn literal(&mut self, word: &'static str) -> Result<(), SyntaxError> {
        for letter in word.chars() {
            match self.peek().ok_or(SyntaxError::End)? {
                byte if char::from(byte) == letter => self.at += 1,
                other => return Err(SyntaxError::Literal(other, word, letter)),
            }
        }
        Ok(())
    }

    fn number(&mut self) -> Result<Cow<'t, str>, SyntaxError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits("in numeric literal")?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits("after decimal point in numeric literal")?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits("in exponent of numeric literal")?;
        }
        Ok(String::from_utf8_lossy(&self.text[start..self.at]))
    }

    /// At least one digit.
    fn digits(&mut self, place: &'static str) -> Result<(), SyntaxError> {
        match self.peek().ok_or(SyntaxError::End)? {
            b'0'..=b'9' => {}
            other => return Err(SyntaxError::Character(other, place)),
        }
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        Ok(())
    }

    /// The string whose opening quote is next. Borrowed unless it has escapes; invalid UTF-8 becomes U+FFFD.
    fn string(&mut self) -> Result<Cow<'t, str>, SyntaxError> {
        self.at += 1;
        let start = self.at;
        loop {
            match self.peek().ok_or(SyntaxError::End)? {
                b'"' => {
                    let plain = String::from_utf8_lossy(&self.text[start..self.at]);
                    self.at += 1;
                    return Ok(plain);
                }
                b'\\' => break,
                byte if byte < 0x20 => return Err(SyntaxError::Character(byte, "in string literal")),
                _ => self.at += 1,
            }
        }
        let mut bytes = self.text[start..self.at].to_vec();
        loop {
            match self.peek().ok_or(SyntaxError::End)? {
                b'"' => {
                    self.at += 1;
                    return Ok(Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()));
                }
                b'\\' => {
                    self.at += 1;
                    let letter = self.escape()?;
                    bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                }
                byte if byte < 0x20 => return Err(SyntaxError::Character(byte, "in string literal")),
                byte => {
                    self.at += 1;
                    bytes.push(byte);
                }
            }
        }
    }

    /// The character that an escape stands for, after its backslash.
    fn escape(&mut self) -> Result<char, SyntaxError> {
        let byte = self.peek().ok_or(SyntaxError::End)?;
        self.at += 1;
        Ok(match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.hex()?;
                // A surrogate without its other half becomes U+FFFD.
                match first {
                    0xd800..=0xdbff if self.text[self.at..].starts_with(b"\\u") => {
                        let back = self.at;
                        self.at += 2;
                        match self.hex()? {
                            second @ 0xdc00..=0xdfff => {
                                let joined = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                                char::from_u32(joined).unwrap_or(char::REPLACEMENT_CHARACTER)
                            }
                            _ => {
                                self.at = back;
                                char::REPLACEMENT_CHARACTER
                            }
                        }
                    }
                    other => char::from_u32(other).unwrap_or(char::REPLACEMENT_CHARACTER),
                }
            }
            other => return Err(SyntaxError::Character(other, "in string escape code")),
        })
    }

    fn hex(&mut self) -> Result<u32, SyntaxError> {
        let mut number = 0;
        for _ in 0..4 {
            let byte = self.peek().ok_or(SyntaxError::End)?;
            let digit = char::from(byte).to_digit(16);
            let digit = digit.ok_or(SyntaxError::Character(byte, "in \\u hexadecimal character escape"))?;
            number = number * 16 + digit;
            self.at += 1;
        }
        Ok(number)
    }
}

impl JsonNode<'_> {
    /// The name of the type in type errors.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Number(_) => "number",
            Self::Text(_) => "string",
            Self::List(_) => "array",
            Self::Map(_) => "object",
        }
    }

    /// The nesting depth of lists and maps.
    pub fn depth(&self) -> usize {
        match self {
            Self::List(items) => 1 + items.iter().map(JsonNode::depth).max().unwrap_or(0),
            Self::Map(entries) => 1 + entries.iter().map(|(_, node)| node.depth()).max().unwrap_or(0),
            _ => 0,
        }
    }

    /// As a plain value; the last of duplicate keys wins.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(truth) => (*truth).into(),
            Self::Number(literal) => number(literal),
            Self::Text(text) => text.as_ref().into(),
            Self::List(items) => items.iter().map(JsonNode::to_value).collect(),
            Self::Map(entries) => {
                let entries = entries.iter().map(|(key, node)| (key.as_ref(), node.to_value()));
                Value::Object(entries.collect::<Map>())
            }
        }
    }
}

/// The tree of a value, which borrows its text.
impl<'v> From<&'v Value> for JsonNode<'v> {
    fn from(value: &'v Value) -> Self {
        match value {
            Value::Null => JsonNode::Null,
            Value::Bool(truth) => JsonNode::Bool(*truth),
            Value::Number(number) => JsonNode::Number(number.to_string().into()),
            Value::String(text) => JsonNode::Text(text.as_str().into()),
            Value::Array(items) => JsonNode::List(items.iter().map(JsonNode::from).collect()),
            Value::Object(map) => {
                JsonNode::Map(map.iter().map(|(key, value)| (key.as_str().into(), value.into())).collect())
            }
        }
    }
}

/// An integer if it is one that fits, else the nearest floating-point number.
pub fn number(literal: &str) -> Value {
    if let Ok(whole) = literal.parse::<i64>() {
        return whole.into();
    }
    literal.parse::<f64>().ok().and_then(Number::from_f64).map_or(Value::Null, Value::Number)
}
