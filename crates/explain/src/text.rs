//! An explanation as text: one screen.

use std::fmt::Write as _;

use tally_core::time::{Span, Timestamp};

use crate::{Explanation, Reason, State};

/// `3 min 20 s`, `2 h 5 min`, `1 d 3 h`.
pub fn duration(span: Span) -> String {
    let seconds = span.millis().abs() / 1_000;
    let parts = [(seconds / 86_400, "d"), (seconds / 3_600 % 24, "h"), (seconds / 60 % 60, "min"), (seconds % 60, "s")];
    let from = parts.iter().position(|(number, _)| *number > 0).unwrap_or(parts.len() - 1);
    let shown: Vec<String> = parts[from..]
        .iter()
        .take(2)
        .filter(|(number, _)| *number > 0 || from == parts.len() - 1)
        .map(|(number, unit)| format!("{number} {unit}"))
        .collect();
    shown.join(" ")
}

/// A time, absolute and relative: `14:02:11 UTC, 3 min 20 s ago`. The date is there unless it is today's.
pub fn moment(at: Timestamp, now: Timestamp) -> String {
    let text = at.to_string();
    let today = at.seconds().div_euclid(86_400) == now.seconds().div_euclid(86_400);
    let clock = match text.split_once('T') {
        Some((_, clock)) if today => format!("{} UTC", clock.trim_end_matches('Z')),
        _ => text,
    };
    match now - at {
        ago if ago > Span::ZERO => format!("{clock}, {} ago", duration(ago)),
        left if left < Span::ZERO => format!("{clock}, in {}", duration(left)),
        _ => format!("{clock}, now"),
    }
}

impl Explanation {
    /// As `tally explain` prints it.
    pub fn text(&self, now: Timestamp) -> String {
        let mut text = String::new();
        let kind = self.kind.to_lowercase();
        let place = if self.namespace.is_empty() { String::new() } else { format!(" in namespace {}", self.namespace) };
        let _ = writeln!(text, "{kind}/{}{place}: {}. {}", self.name, self.state.name(), self.summary);
        if let Some((first, others)) = self.reasons.split_first() {
            let _ = writeln!(text);
            line(&mut text, "Waits for", &format!("{} [{}]", first.cause.sentence(), first.cause.name()));
            line(&mut text, "Since", &since(first, now));
            line(&mut text, "Change", &first.cause.change());
            for other in others {
                line(&mut text, "Also", &format!("{} [{}]", other.cause.sentence(), other.cause.name()));
                line(&mut text, "  since", &since(other, now));
                line(&mut text, "  change", &other.cause.change());
            }
        } else if self.failures.is_empty() && self.state != State::Failed {
            let _ = writeln!(text, "Nothing is wrong.");
        } else {
            let _ = writeln!(text);
        }
        for failure in &self.failures {
            line(&mut text, "Failed", &failure.sentence());
            failure.at.into_iter().for_each(|at| line(&mut text, "  at", &moment(at, now)));
            for (at, printed) in failure.log.iter().enumerate() {
                let label = if at == 0 { "  log:" } else { "" };
                let _ = writeln!(text, "{label:<11}{printed}");
            }
        }
        if self.more_failures > 0 {
            line(&mut text, "", &format!("{} more Pods have failed.", self.more_failures));
        }
        for step in &self.next {
            line(&mut text, "Next", &format!("{}: {}.", moment(step.at, now), step.what));
        }
        if !self.evidence.is_empty() {
            let _ = writeln!(text, "\nEvidence:");
            self.evidence.iter().for_each(|seen| {
                let _ = writeln!(text, "  {seen}");
            });
        }
        if !self.unread.is_empty() {
            let _ = writeln!(text, "\nNot read, so reasons may be missing: {}", self.unread.join("; "));
        }
        text
    }
}

fn since(reason: &Reason, now: Timestamp) -> String {
    reason.since.map_or_else(|| "not known".to_owned(), |at| moment(at, now))
}

fn line(text: &mut String, label: &str, value: &str) {
    let label = if label.is_empty() { String::new() } else { format!("{label}:") };
    let _ = writeln!(text, "{label:<11}{value}");
}
