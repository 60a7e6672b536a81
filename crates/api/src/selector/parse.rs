//! The grammar of label selectors in query parameters.
//!
//! ```text
//! selector    = [ requirement { "," requirement } ]
//! requirement = "!" key | key [ operator ]
//! operator    = ( "=" | "==" | "!=" | ">" | "<" ) [ value ] | ( "in" | "notin" ) "(" [ value ] { "," [ value ] } ")"
//! ```
//!
//! Where no operator is possible, `in` and `notin` are ordinary words.

use crate::field::At;
use crate::meta::qualified_name_problems;

use super::{Operator, Requirement};

/// The requirements, or the error message for the client.
pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, String> {
    let mut tokens = Tokens { rest: text };
    let mut requirements = Vec::new();
    loop {
        match tokens.peek() {
            (Token::End, _) => return Ok(requirements),
            (token, _) if token.starts_requirement() => {}
            (_, found) => return Err(format!("found '{found}', expected: !, identifier, or 'end of string'")),
        }
        let next = requirement(&mut tokens).map_err(|error| format!("unable to parse requirement: {error}"))?;
        requirements.push(next);
        match tokens.next() {
            (Token::End, _) => return Ok(requirements),
            (Token::Comma, _) => {
                let (token, found) = tokens.peek();
                if !token.starts_requirement() {
                    return Err(format!("found '{found}', expected: identifier after ','"));
                }
            }
            (_, found) => return Err(format!("found '{found}', expected: ',' or 'end of string'")),
        }
    }
}

fn requirement(tokens: &mut Tokens<'_>) -> Result<Requirement, String> {
    let (mut token, mut key) = tokens.next();
    let absent = token == Token::Not;
    if absent {
        (token, key) = tokens.next();
    }
    if !token.is_word() {
        return Err(format!("found '{key}', expected: identifier"));
    }
    let problems = qualified_name_problems(key);
    if !problems.is_empty() {
        return Err(At::rooted("<nil>", None).invalid_value(key, problems.join("; ")).to_string());
    }
    if absent {
        return Ok(Requirement::of(key, Operator::DoesNotExist, Vec::new()));
    }
    if matches!(tokens.peek().0, Token::End | Token::Comma) {
        return Ok(Requirement::of(key, Operator::Exists, Vec::new()));
    }
    let operator = match tokens.next() {
        (Token::Operator(operator), _) => operator,
        (_, found) => return Err(format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt")),
    };
    let values = match operator {
        Operator::In | Operator::NotIn => set(tokens)?,
        _ => vec![exact(tokens)?.to_owned()],
    };
    let requirement = Requirement::of(key, operator, values);
    let errors: Vec<String> = requirement.problems().iter().map(ToString::to_string).collect();
    match errors.as_slice() {
        [] => Ok(requirement),
        [one] => Err(one.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}

/// The value after an operator; "" if there is none.
fn exact<'a>(tokens: &mut Tokens<'a>) -> Result<&'a str, String> {
    if matches!(tokens.peek().0, Token::End | Token::Comma) {
        return Ok("");
    }
    match tokens.next() {
        (token, value) if token.is_word() => Ok(value),
        (_, found) => Err(format!("found '{found}', expected: identifier")),
    }
}

/// `(x,y)`; an omitted value is "".
fn set(tokens: &mut Tokens<'_>) -> Result<Vec<String>, String> {
    match tokens.next() {
        (Token::Open, _) => {}
        (_, found) => return Err(format!("found '{found}' expected: '('")),
    }
    match tokens.peek() {
        (Token::Close | Token::Comma, _) => {}
        (token, _) if token.is_word() => {}
        (_, found) => return Err(format!("found '{found}', expected: ',', ')' or identifier")),
    }
    let mut values = Vec::new();
    loop {
        let (token, value) = tokens.peek();
        if token.is_word() {
            values.push(value.to_owned());
            tokens.next();
        } else if matches!(token, Token::Close | Token::Comma) {
            values.push(String::new());
        } else {
            return Err(format!("found '{value}', expected: ',', or identifier"));
        }
        match tokens.next() {
            (Token::Comma, _) => {}
            (Token::Close, _) => return Ok(values),
            (_, found) => return Err(format!("found '{found}', expected: ',' or ')'")),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    End,
    Open,
    Close,
    Comma,
    Not,
    Operator(Operator),
    Word,
}

impl Token {
    fn is_word(self) -> bool {
        matches!(self, Self::Word | Self::Operator(Operator::In | Operator::NotIn))
    }

    fn starts_requirement(self) -> bool {
        self == Self::Not || self.is_word()
    }
}

#[derive(Clone)]
struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    fn peek(&self) -> (Token, &'a str) {
        self.clone().next()
    }

    fn next(&mut self) -> (Token, &'a str) {
        let text = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let sign = |character: char| matches!(character, '=' | '!' | '(' | ')' | ',' | '>' | '<');
        let length = match text.chars().next() {
            None => 0,
            Some(first) if sign(first) => {
                if text.starts_with("==") || text.starts_with("!=") {
                    2
                } else {
                    1
                }
            }
            Some(_) => {
                let end = |character: char| sign(character) || matches!(character, ' ' | '\t' | '\r' | '\n');
                text.find(end).unwrap_or(text.len())
            }
        };
        let (found, rest) = text.split_at(length);
        self.rest = rest;
        let token = match found {
            "" => Token::End,
            "(" => Token::Open,
            ")" => Token::Close,
            "," => Token::Comma,
            "!" => Token::Not,
            "=" => Token::Operator(Operator::Equals),
            "==" => Token::Operator(Operator::DoubleEquals),
            "!=" => Token::Operator(Operator::NotEquals),
            ">" => Token::Operator(Operator::GreaterThan),
            "<" => Token::Operator(Operator::LessThan),
            "in" => Token::Operator(Operator::In),
            "notin" => Token::Operator(Operator::NotIn),
            _ => Token::Word,
        };
        (token, found)
    }
}
