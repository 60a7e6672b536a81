//! How what tasks print is shown: chosen from the flags and from the Jobs. Pure.

use clap::ValueEnum;

use super::turns::OutputOrder;
use crate::run::Form;
use crate::terminal::ControlSequences;

/// The values of `--logs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogsFlag {
    /// Each line with the Job and the index in front, or with the Pod
    Prefix,
    /// Nothing in front of the lines
    Raw,
    /// Not shown
    None,
}

/// The flags of `tally run` and `tally attach` about what tasks print.
#[derive(clap::Args)]
pub struct TaskOutputFlags {
    /// How to show what tasks print: prefix, raw or none [default: a single task is passed through unchanged, many have the
    /// Job and the index in front of each line]
    #[arg(long, short = 'l', value_name = "HOW", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "prefix", hide_possible_values = true)]
    pub logs: Option<LogsFlag>,
    /// Show what tasks print in the order of their indexes
    #[arg(long, short = 'k')]
    pub keep_order: bool,
    /// Show what a task prints in one piece, when it has ended
    #[arg(long)]
    pub group: bool,
    /// What to do on a terminal with control sequences in what tasks print, other than colours: remove or pass
    /// [default: what a single command of your own prints on this machine is passed through, everything else is
    /// cleaned]
    #[arg(long, value_name = "HOW", value_enum, hide_possible_values = true)]
    pub control_sequences: Option<ControlSequences>,
}

impl TaskOutputFlags {
    pub fn order(&self) -> OutputOrder {
        OutputOrder { by_index: self.keep_order, grouped: self.group }
    }
}

/// How what tasks print is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogStyle {
    #[default]
    Hidden,
    /// The bytes of the only task, as they come.
    PassThrough,
    /// Whole lines.
    Raw,
    /// Whole lines with the name of the task in front.
    Prefix,
}

impl LogStyle {
    pub fn is_shown(self) -> bool {
        self != Self::Hidden
    }
}

/// The flags about what tasks print.
#[derive(Clone, Copy, Debug, Default)]
pub struct DisplayFlags {
    pub logs: Option<LogsFlag>,
    pub sequences: Option<ControlSequences>,
    pub order: OutputOrder,
    pub json: bool,
    /// The nodes are hollow: their Pods run nothing and print nothing.
    pub hollow: bool,
}

impl DisplayFlags {
    pub fn new(flags: &TaskOutputFlags, form: Form, hollow: bool) -> Self {
        let TaskOutputFlags { logs, control_sequences: sequences, .. } = *flags;
        Self { logs, sequences, order: flags.order(), json: form == Form::Json, hollow }
    }

    /// Flags that contradict each other are refused.
    pub fn check(&self) -> Result<(), String> {
        let ordering = match self.order {
            OutputOrder { by_index: true, .. } => "--keep-order",
            _ => "--group",
        };
        match (self.logs, self.json) {
            (Some(LogsFlag::Raw), true) => {
                Err("--logs=raw cannot be combined with --output json, which has an object per line".to_owned())
            }
            (Some(LogsFlag::None), _) if self.order.waits() => {
                Err(format!("{ordering} cannot be combined with --logs=none, which shows nothing"))
            }
            (None, true) if self.order.waits() => {
                Err(format!("{ordering} needs --logs with --output json, which otherwise has no lines of tasks"))
            }
            _ => Ok(()),
        }
    }

    /// Whether the ends of logs are shown with failures: lines that have just been shown need not be repeated.
    pub fn shows_tails(&self, style: LogStyle) -> bool {
        !style.is_shown() || self.order.waits() || self.json
    }

    /// `single`: this is the only task of the run.
    pub fn style(&self, single: bool) -> LogStyle {
        match self.logs {
            Some(LogsFlag::Prefix) => LogStyle::Prefix,
            Some(LogsFlag::None) => LogStyle::Hidden,
            None if self.json || self.hollow => LogStyle::Hidden,
            Some(LogsFlag::Raw) | None if single => LogStyle::PassThrough,
            Some(LogsFlag::Raw) => LogStyle::Raw,
            None => LogStyle::Prefix,
        }
    }

    /// Whether a terminal gets the control sequences in what tasks print. `own`: the tasks are commands of the user on
    /// this machine.
    pub fn passes_sequences(&self, style: LogStyle, own: bool) -> bool {
        match self.sequences {
            Some(wanted) => wanted == ControlSequences::Pass,
            None => own && style == LogStyle::PassThrough,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_task_is_passed_through_and_many_have_their_names_in_front() {
        use LogStyle::{Hidden, PassThrough, Prefix, Raw};
        for (logs, json, hollow, [one, many]) in [
            (None, false, false, [PassThrough, Prefix]),
            (None, true, false, [Hidden, Hidden]),
            (None, false, true, [Hidden, Hidden]),
            (Some(LogsFlag::Prefix), false, false, [Prefix, Prefix]),
            (Some(LogsFlag::Prefix), true, true, [Prefix, Prefix]),
            (Some(LogsFlag::Raw), false, false, [PassThrough, Raw]),
            (Some(LogsFlag::None), false, false, [Hidden, Hidden]),
        ] {
            let flags = DisplayFlags { logs, json, hollow, ..DisplayFlags::default() };
            assert_eq!([flags.style(true), flags.style(false)], [one, many], "{flags:?}");
        }
    }

    #[test]
    fn only_a_single_command_of_ones_own_may_control_the_terminal() {
        use ControlSequences::{Pass, Remove};
        for (sequences, own, [passed_through, raw, prefixed]) in [
            (None, true, [true, false, false]),
            (None, false, [false; 3]),
            (Some(Pass), false, [true; 3]),
            (Some(Remove), true, [false; 3]),
        ] {
            let flags = DisplayFlags { sequences, ..DisplayFlags::default() };
            let passes = [LogStyle::PassThrough, LogStyle::Raw, LogStyle::Prefix]
                .map(|style| flags.passes_sequences(style, own));
            assert_eq!(passes, [passed_through, raw, prefixed], "{flags:?}");
        }
    }

    #[test]
    fn contradictions_are_refused() {
        let order = OutputOrder { by_index: false, grouped: true };
        for (logs, json, order, told) in [
            (Some(LogsFlag::Raw), true, OutputOrder::default(), "--logs=raw cannot"),
            (Some(LogsFlag::None), false, order, "--group cannot be combined with --logs=none"),
            (None, true, order, "--group needs --logs"),
            (Some(LogsFlag::Prefix), true, order, ""),
            (None, false, order, ""),
        ] {
            let checked = DisplayFlags { logs, json, order, ..DisplayFlags::default() }.check();
            assert_eq!(checked.is_ok(), told.is_empty(), "{told}");
            assert!(checked.err().unwrap_or_default().starts_with(told));
        }
    }
}
