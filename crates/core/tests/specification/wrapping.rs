//! The width of documents: prose is read in terminals and in diffs, so a paragraph with a line of more than 120 columns
//! is wrapped again. Tables, code, headings, HTML and link definitions stay as they are.

/// No line of a paragraph is wider, in characters.
const WIDEST: usize = 120;
/// What a paragraph is wrapped at, so that a word can be added to a line without a new break.
const FILLED: usize = 110;

/// A paragraph, or the first paragraph of an item of a list.
struct Paragraph<'a> {
    /// What its first line begins with: an indentation, or the marker of an item.
    first: &'a str,
    lines: Vec<&'a str>,
}

impl Paragraph<'_> {
    fn write(&self, text: &mut String) {
        // Two spaces or a backslash at the end of a line are a line break on the page.
        let is_kept = self.lines.iter().any(|line| line.ends_with("  ") || line.ends_with('\\'));
        if is_kept || self.lines.iter().all(|line| line.chars().count() <= WIDEST) {
            self.lines.iter().for_each(|line| *text += &format!("{line}\n"));
            return;
        }
        let joined = self.lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        let mut line = self.first.to_owned();
        let rest = " ".repeat(self.first.chars().count());
        let words = words(joined.strip_prefix(self.first.trim()).unwrap_or(&joined).trim_start());
        for (at, word) in words.iter().enumerate() {
            let space = usize::from(at > 0 && line != rest);
            if at > 0 && line.chars().count() + space + word.chars().count() > FILLED {
                *text += &format!("{line}\n");
                line.clone_from(&rest);
            } else if at > 0 {
                line.push(' ');
            }
            line += word;
        }
        *text += &format!("{line}\n");
    }
}

/// The page with every paragraph wrapped that has a line which is too wide.
pub fn wrapped(page: &str) -> String {
    let mut text = String::new();
    let mut paragraph: Option<Paragraph> = None;
    // Where the content of the items begins that a line can belong to.
    let mut items: Vec<usize> = Vec::new();
    let (mut fence, mut is_comment, mut is_code): (Option<&str>, bool, bool) = (None, false, false);
    for line in page.lines() {
        let content = line.trim_start();
        let indent = line.len() - content.len();
        let is_blank = content.is_empty();
        if is_blank || fence.is_some() || is_comment {
            paragraph.take().iter().for_each(|paragraph| paragraph.write(&mut text));
            text += &format!("{line}\n");
            if fence.is_some_and(|fence| content.starts_with(fence)) {
                fence = None;
            }
            is_comment &= !line.contains("-->");
            continue;
        }
        if paragraph.is_none() {
            items.retain(|begins| *begins <= indent);
            is_code = indent >= items.last().copied().unwrap_or(0) + 4;
        }
        let marker = marker(content).filter(|_| !is_code);
        let opens = ["```", "~~~"].into_iter().find(|fence| content.starts_with(fence));
        if is_code || marker.is_none() && (opens.is_some() || is_kept(content)) {
            paragraph.take().iter().for_each(|paragraph| paragraph.write(&mut text));
            text += &format!("{line}\n");
            fence = opens.filter(|_| !is_code);
            is_comment = content.starts_with("<!--") && !content.contains("-->");
        } else if let Some(marker) = marker {
            paragraph.take().iter().for_each(|paragraph| paragraph.write(&mut text));
            items.retain(|begins| *begins <= indent);
            items.push(indent + marker);
            paragraph = Some(Paragraph { first: &line[..indent + marker], lines: vec![line] });
        } else if let Some(open) = &mut paragraph {
            open.lines.push(line);
        } else {
            paragraph = Some(Paragraph { first: &line[..indent], lines: vec![line] });
        }
    }
    paragraph.take().iter().for_each(|paragraph| paragraph.write(&mut text));
    text
}

/// The length of the marker of an item with the spaces behind it: `- `, `12. `.
fn marker(content: &str) -> Option<usize> {
    let digits = content.bytes().take_while(u8::is_ascii_digit).count();
    let length = match content.as_bytes().get(digits)? {
        b'-' | b'*' | b'+' if digits == 0 => 1,
        b'.' | b')' if (1..=2).contains(&digits) => digits + 1,
        _ => return None,
    };
    let spaces = content[length..].bytes().take_while(|byte| *byte == b' ').count();
    (spaces > 0 && content.len() > length + spaces).then_some(length + spaces)
}

/// A line that is no part of a paragraph, and is not changed.
fn is_kept(content: &str) -> bool {
    let is_heading = content.trim_start_matches('#').starts_with(' ') && content.starts_with('#');
    let is_rule = content.len() > 2 && ["-", "=", "*", "_"].iter().any(|of| content.replace(of, "").trim().is_empty());
    let is_definition = content.starts_with('[') && content.contains("]: ");
    let is_html = content.starts_with('<') && !content.starts_with("<a id=");
    is_heading || is_rule || is_definition || is_html || content.starts_with(['|', '>'])
}

/// Stands for a space at which no line ends.
const TIED: &str = "\u{1}";

/// The words of a paragraph. A piece of code, a tag, the text of a link and what would have a meaning at the beginning of
/// a line are not divided from what they follow.
fn words(text: &str) -> Vec<String> {
    let text = with_tied_links(text);
    let mut words: Vec<String> = Vec::new();
    let (mut ticks, mut is_tag) = (0, false);
    for piece in text.split(' ') {
        let goes_on = ticks > 0 || is_tag;
        match words.last_mut() {
            Some(word) if goes_on || begins_a_block(piece) => *word += &format!(" {piece}"),
            _ if piece.is_empty() => continue,
            _ => words.push(piece.to_owned()),
        }
        let mut rest = piece;
        while let Some(at) = rest.find(['`', '<', '>']) {
            let run = rest[at..].bytes().take_while(|byte| *byte == b'`').count();
            let then = rest[at..].chars().nth(1);
            match &rest[at..=at] {
                "`" if ticks == 0 => ticks = run,
                "`" if ticks == run => ticks = 0,
                "<" if ticks == 0 => is_tag = then.is_some_and(|then| then.is_ascii_alphabetic() || then == '/'),
                ">" if ticks == 0 => is_tag = false,
                _ => {}
            }
            rest = &rest[at + run.max(1)..];
        }
    }
    words.into_iter().map(|word| word.replace(TIED, " ")).collect()
}

/// Ties what stands between `[` and `](`.
fn with_tied_links(text: &str) -> String {
    let mut tied = String::new();
    for (at, part) in text.split('[').enumerate() {
        let link = part.split_once("](").filter(|(link, _)| at > 0 && !link.contains(']'));
        let bracket = if at > 0 { "[" } else { "" };
        match link {
            Some((link, rest)) => tied += &format!("[{}]({rest}", link.replace(' ', TIED)),
            None => tied += &format!("{bracket}{part}"),
        }
    }
    tied
}

fn begins_a_block(word: &str) -> bool {
    let is_number = word.trim_end_matches(['.', ')']).bytes().all(|byte| byte.is_ascii_digit());
    let is_item = ["-", "*", "+"].contains(&word) || word.ends_with(['.', ')']) && is_number;
    let is_html = word.starts_with('<') && !word.starts_with("<a");
    is_item || is_html || is_kept(word) || word.starts_with(['#', '|', '>', '=']) || word.starts_with("```")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_and_items_are_wrapped() {
        let word = "abcdefghi ";
        let long = word.repeat(13);
        let check = |page: &str, expected: &str| {
            let found = wrapped(page);
            assert_eq!(found, expected);
            assert_eq!(wrapped(&found), expected, "a second time");
        };
        let (eleven, two) = (word.repeat(11).trim_end().to_owned(), word.repeat(2).trim_end().to_owned());
        check(&format!("{}\n", long.trim_end()), &format!("{eleven}\n{two}\n"));
        check(&format!("a\n{}\nb\n\nc\n", long.trim_end()), &{
            let first = format!("a {}", word.repeat(10).trim_end());
            format!("{first}\n{} b\n\nc\n", word.repeat(3).trim_end())
        });
        // The text of an item is aligned with its beginning.
        let ten = word.repeat(10);
        for marker in ["- ", "  - ", "1. ", "12. "] {
            let rest = " ".repeat(marker.len());
            let expected = format!("{marker}{}\n{rest}{}\n- b\n", ten.trim_end(), word.repeat(3).trim_end());
            check(&format!("{marker}{}\n- b\n", long.trim_end()), &expected);
        }
        check(
            &format!("- a\n\n  {}\n", long.trim_end()),
            &format!("- a\n\n  {}\n  {}\n", ten.trim_end(), word.repeat(3).trim_end()),
        );
        // A paragraph without a wide line keeps its breaks.
        check("a\nb\n", "a\nb\n");
        check(&format!("{}\na\n", "x".repeat(120)), &format!("{}\na\n", "x".repeat(120)));
        check(
            &format!("{}\na\n", "ä".repeat(60) + &" ä".repeat(30)),
            &format!("{}\na\n", "ä".repeat(60) + &" ä".repeat(30)),
        );
    }

    #[test]
    fn everything_else_stays_as_it_is() {
        let long = "abcdefghi ".repeat(13);
        for line in ["| ", "# ", "## ", "    ", "<!-- ", "> ", "[a]: ", "<p>"] {
            let page = format!("a\n\n{line}{long}\n{}", if line == "<!-- " { "-->\n" } else { "" });
            assert_eq!(wrapped(&page), page);
        }
        for page in [
            format!("```\n{long}\n\n- {long}\n```\n"),
            format!("- a\n\n      {long}\n"),
            format!("{long} \nb\n"),
            format!("<!--\n{long}\n-->\n"),
        ] {
            assert_eq!(wrapped(&page), page);
        }
    }

    #[test]
    fn what_belongs_together_is_not_divided() {
        let check = |text: &str, expected: &[&str]| assert_eq!(words(text), expected, "{text}");
        check("a `b c`, d ``e ` f`` g", &["a", "`b c`,", "d", "``e ` f``", "g"]);
        check("<a id=\"X-1\"></a>**X-1** b < c", &["<a id=\"X-1\"></a>**X-1**", "b <", "c"]);
        check("see ([a b](c.md)) or [d e] f", &["see", "([a b](c.md))", "or", "[d", "e]", "f"]);
        check("a - b 2. c #1 | d > e", &["a -", "b 2.", "c #1 |", "d >", "e"]);
    }
}
