//! The behaviour that the annotations of a Pod define. They are read again at every change, so a test may also control
//! a Pod that runs already.

use compact_str::CompactString;
use tally_core::ids::CompletionIndex;
use tally_core::indexes;
use tally_core::schedule;
use tally_core::time::Span;

pub const PREFIX: &str = "hollow.tally.dev/";

/// The exit codes that a shell reports for a process ended by SIGTERM, and by SIGKILL.
pub const ASKED_TO_END: i32 = 143;
pub const KILLED: i32 = 137;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// None: it ends at once, or never with `restartPolicy: Always`.
    pub run_for: Option<Span>,
    exit_code: Option<i32>,
    fail_times: Option<u32>,
    pub terminate_after: Span,
    pub terminate_exit_code: i32,
    pub restart_delay: Option<Span>,
    pub hang: bool,
    pub pending: bool,
    disrupted: Option<CompactString>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            run_for: None,
            exit_code: None,
            fail_times: None,
            terminate_after: Span::ZERO,
            terminate_exit_code: ASKED_TO_END,
            restart_delay: None,
            hang: false,
            pending: false,
            disrupted: None,
        }
    }
}

impl Script {
    /// Reads the annotations of a Pod. An invalid one is an error: a test that is misunderstood should not pass.
    pub fn read<'a>(
        annotations: impl Iterator<Item = (&'a str, &'a str)>,
        index: Option<CompletionIndex>,
    ) -> Result<Self, String> {
        let mut script = Self::default();
        for (key, text) in annotations {
            let Some(name) = key.strip_prefix(PREFIX) else { continue };
            script.take(name, text, index).map_err(|problem| format!("{key}: {problem}"))?;
        }
        Ok(script)
    }

    fn take(&mut self, name: &str, text: &str, index: Option<CompletionIndex>) -> Result<(), String> {
        match name {
            "run-for" => self.run_for = Some(span(text)?),
            "exit-code" => self.exit_code = Some(exit_code(text, index)?),
            "fail-times" => self.fail_times = Some(number(text)?),
            "terminate-after" => self.terminate_after = span(text)?,
            "terminate-exit-code" => self.terminate_exit_code = code(text)?,
            "restart-delay" => self.restart_delay = Some(span(text)?),
            "hang" => self.hang = flag(text)?,
            "pending" => self.pending = flag(text)?,
            "disrupted" => self.disrupted = Some(text.into()),
            _ => return Err("hollow nodes do not know this annotation".to_owned()),
        }
        Ok(())
    }

    /// How the containers end by themselves, after this many earlier attempts.
    pub fn exit_code(&self, attempts: u32) -> i32 {
        if self.fail_times.is_some_and(|times| attempts >= times) {
            return 0;
        }
        self.exit_code.unwrap_or(match (&self.disrupted, self.fail_times) {
            (Some(_), _) => KILLED,
            (None, Some(_)) => 1,
            (None, None) => 0,
        })
    }

    /// Why it is disrupted, if it is at this attempt.
    pub fn disrupted(&self, attempts: u32) -> Option<&CompactString> {
        self.disrupted.as_ref().filter(|_| self.exit_code(attempts) != 0)
    }
}

fn span(text: &str) -> Result<Span, String> {
    let nanoseconds = schedule::duration(text)?;
    if nanoseconds < 0 {
        return Err(format!("{text:?} is before it begins"));
    }
    Ok(Span::from_millis(nanoseconds / 1_000_000))
}

fn flag(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| format!("{text:?} is neither true nor false"))
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number such as 2"))
}

fn code(text: &str) -> Result<i32, String> {
    match text.parse() {
        Ok(code @ 0..=255) => Ok(code),
        _ => Err(format!("{text:?} is not an exit code from 0 to 255")),
    }
}

/// `3` for all, or `0=1,3-5=42` by completion index; other indexes exit with 0.
fn exit_code(text: &str, index: Option<CompletionIndex>) -> Result<i32, String> {
    if !text.contains('=') {
        return code(text);
    }
    let mut found = 0;
    for part in text.split(',') {
        let (of, exit) = part.split_once('=').ok_or_else(|| format!("{part:?} is not INDEXES=CODE"))?;
        let (first, last) = indexes::interval(of, u32::MAX).map_err(|problem| problem.to_string())?;
        let exit = code(exit)?;
        if index.is_some_and(|index| (first..=last).contains(&index)) {
            found = exit;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(annotations: &[(&str, &str)], index: Option<u32>) -> Result<Script, String> {
        let annotations: Vec<_> =
            annotations.iter().map(|(name, text)| (format!("{PREFIX}{name}"), (*text).to_owned())).collect();
        Script::read(annotations.iter().map(|(key, text)| (key.as_str(), text.as_str())), index)
    }

    #[test]
    fn exit_codes_by_attempt_and_index() {
        let by_index: &[(&str, &str)] = &[("exit-code", "0=1,3-4=42")];
        let twice: &[(&str, &str)] = &[("fail-times", "2")];
        let twice_of_some: &[(&str, &str)] = &[("exit-code", "1=7"), ("fail-times", "2")];
        let once_disrupted: &[(&str, &str)] = &[("disrupted", "TerminationByKubelet"), ("fail-times", "1")];
        for (annotations, index, attempts, code) in [
            (&[][..], None, 0, 0),
            (&[("exit-code", "3")], None, 9, 3),
            (&[("exit-code", "255")], None, 0, 255),
            (by_index, None, 0, 0),
            (by_index, Some(0), 0, 1),
            (by_index, Some(1), 0, 0),
            (by_index, Some(4), 0, 42),
            (by_index, Some(5), 0, 0),
            (twice, None, 0, 1),
            (twice, None, 1, 1),
            (twice, None, 2, 0),
            (twice_of_some, Some(1), 1, 7),
            (twice_of_some, Some(1), 2, 0),
            (twice_of_some, Some(0), 0, 0),
            (once_disrupted, None, 0, 137),
            (once_disrupted, None, 1, 0),
        ] {
            let script = read(annotations, index).unwrap();
            assert_eq!(script.exit_code(attempts), code, "{annotations:?} {index:?} {attempts}");
            let disrupted = code != 0 && annotations.iter().any(|(name, _)| *name == "disrupted");
            assert_eq!(script.disrupted(attempts).is_some(), disrupted, "{annotations:?} {attempts}");
        }
    }

    #[test]
    fn what_is_not_understood_is_told() {
        for (name, text, told) in [
            ("run-for", "5", "missing unit"),
            ("run-for", "-5s", "before it begins"),
            ("run-fro", "5s", "do not know"),
            ("exit-code", "256", "from 0 to 255"),
            ("exit-code", "-1", "from 0 to 255"),
            ("exit-code", "1=2,3", "INDEXES=CODE"),
            ("exit-code", "x=2", "x"),
            ("fail-times", "-1", "not a number"),
            ("hang", "yes", "neither true nor false"),
            ("terminate-exit-code", "", "from 0 to 255"),
        ] {
            let problem = read(&[(name, text)], None).unwrap_err();
            assert!(problem.contains(told) && problem.contains(name), "{name}={text}: {problem}");
        }
        let script = read(&[("run-for", "1.5s"), ("terminate-after", "250ms"), ("restart-delay", "2m")], None).unwrap();
        assert_eq!(script.run_for, Some(Span::from_millis(1_500)));
        assert_eq!(script.terminate_after, Span::from_millis(250));
        assert_eq!(script.restart_delay, Some(Span::from_seconds(120)));
    }
}
