//! The cases of `tally bench jobs`, as one table.

use std::fmt::Write as _;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Indexed,
    NonIndexed,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Mode::Indexed => "Indexed",
            Mode::NonIndexed => "NonIndexed",
        }
    }
}

/// Where the Job controller runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// In the process of the server.
    Embedded,
    /// `tally controller`, with this many requests a second; 0: without a limit.
    Own { qps: u32 },
}

/// What KEP-2307 and its announcements promise. A case that misses it makes the exit code 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    PodsAMinute(u32),
    /// From the first Pod that finished to the end: the Pods of the case exist before.
    CountedAMinute(u32),
    WithinSeconds(u32),
    ActiveAtATime(u32),
}

#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub name: &'static str,
    /// Jobs that are created together.
    pub jobs: u32,
    pub completions: u32,
    pub mode: Mode,
    pub parallelism: u32,
    /// The Pods of so many indexes fail once; the back-off is by index.
    pub failing: u32,
    /// How long a Pod runs. 0: it ends at once.
    pub run_for_seconds: u32,
    /// The Jobs finish without a TTL controller and have expired when the server starts again: that start is measured.
    pub expire: bool,
    /// The annotation tally.dev/delete-finished-pods.
    pub delete_finished_pods: Option<&'static str>,
    /// Jobs of one Pod that are created one after the other meanwhile. They are what is measured; the case ends with them.
    pub small: u32,
    pub controller: Controller,
    pub target: Option<Target>,
    /// Whether it runs by default.
    pub quick: bool,
}

const BASE: Case = Case {
    name: "",
    jobs: 1,
    completions: 1,
    mode: Mode::NonIndexed,
    parallelism: 500,
    failing: 0,
    run_for_seconds: 0,
    expire: false,
    delete_finished_pods: None,
    small: 0,
    controller: Controller::Embedded,
    target: None,
    quick: false,
};

const INDEXED: Case = Case { mode: Mode::Indexed, ..BASE };

/// So many small Jobs give a 99th percentile that is the second worst of them.
const SMALL: u32 = 40;
/// Long enough to be there until the small Jobs have ended.
const LARGE: u32 = 20_000;
const BESIDE: Case = Case { completions: LARGE, small: SMALL, ..INDEXED };

const ALPHA_TO_BETA: Option<Target> = Some(Target::PodsAMinute(5_000));
/// "10^5 completions per Job processed within an order of minutes".
const BETA_TO_GA: Option<Target> = Some(Target::WithinSeconds(600));

pub const CASES: [Case; 22] = [
    Case { name: "1x1", jobs: 0, small: SMALL, quick: true, ..BASE },
    Case { name: "1000x1", jobs: 1_000, target: ALPHA_TO_BETA, quick: true, ..BASE },
    Case { name: "100x100", jobs: 100, completions: 100, target: ALPHA_TO_BETA, quick: true, ..INDEXED },
    Case { name: "1x1000-indexed", completions: 1_000, quick: true, ..INDEXED },
    Case { name: "1x1000-nonindexed", completions: 1_000, quick: true, ..BASE },
    Case { name: "1x10000-indexed", completions: 10_000, target: ALPHA_TO_BETA, quick: true, ..INDEXED },
    Case { name: "1x10000-nonindexed", completions: 10_000, target: ALPHA_TO_BETA, quick: true, ..BASE },
    Case { name: "1x100000-indexed", completions: 100_000, target: BETA_TO_GA, ..INDEXED },
    Case { name: "1x100000-nonindexed", completions: 100_000, target: BETA_TO_GA, ..BASE },
    Case {
        name: "100000-at-a-time",
        completions: 100_000,
        parallelism: 100_000,
        // Longer than the creation of all of them takes.
        run_for_seconds: 120,
        target: Some(Target::ActiveAtATime(100_000)),
        ..INDEXED
    },
    Case { name: "failures", completions: 10_000, failing: 1_000, quick: true, ..INDEXED },
    Case { name: "deleted-200000", completions: 200_000, delete_finished_pods: Some("all"), ..BASE },
    Case { name: "expired-10000", jobs: 10_000, expire: true, ..BASE },
    Case { name: "expired-100000", jobs: 100_000, expire: true, ..BASE },
    Case { name: "controller-10000", completions: 10_000, controller: Controller::Own { qps: 0 }, ..INDEXED },
    Case { name: "controller-100000", completions: 100_000, controller: Controller::Own { qps: 0 }, ..INDEXED },
    Case {
        name: "qps-50",
        completions: 2_000,
        parallelism: 2_000,
        // 2,000 creations at 50 a second end before the first Pod does, so that only the counting is measured.
        run_for_seconds: 50,
        controller: Controller::Own { qps: 50 },
        target: Some(Target::CountedAMinute(2_000)),
        ..INDEXED
    },
    Case { name: "beside-1", quick: true, ..BESIDE },
    Case { name: "beside-10", jobs: 10, ..BESIDE },
    Case { name: "beside-1-qps-50", controller: Controller::Own { qps: 50 }, ..BESIDE },
    Case { name: "beside-10-qps-50", jobs: 10, controller: Controller::Own { qps: 50 }, ..BESIDE },
    Case { name: "controller-1x1", jobs: 0, small: SMALL, controller: Controller::Own { qps: 0 }, ..BASE },
];

impl Case {
    /// The Pods that are counted, and to which costs are related.
    pub fn pods(&self) -> u32 {
        if self.small > 0 { self.small } else { self.jobs * self.completions }
    }

    /// The curve that it is a point of: Jobs of one size each, that differ in nothing else.
    pub fn series(&self) -> Option<&'static str> {
        self.name.starts_with("1x").then(|| self.mode.name()).filter(|_| self.small == 0)
    }

    /// Whether it needs processes that are started in its way.
    pub fn needs_own_server(&self) -> bool {
        self.expire || self.controller != Controller::Embedded
    }

    pub fn describe(&self) -> String {
        let mut text = String::new();
        let Case { jobs, completions, parallelism, small, .. } = *self;
        let pods = |count: u32| if count == 1 { "1 Pod".to_owned() } else { format!("{} Pods", grouped(count)) };
        let number = |count: u32| if count == 1 { "1 Job".to_owned() } else { format!("{} Jobs", grouped(count)) };
        let large = format!("{} of {}, {}", number(jobs), pods(completions), self.mode.name());
        // Writing to a String cannot fail.
        let _ = match (small, jobs) {
            (0, _) => write!(text, "{large}"),
            (small, 0) => write!(text, "{} of 1 Pod, one after the other", number(small)),
            (small, _) => write!(text, "{} of 1 Pod, one after the other, beside {large}", number(small)),
        };
        if completions > 1 {
            let _ = write!(text, ", {} at a time", grouped(parallelism.min(completions)));
        }
        if self.failing > 0 {
            let _ = write!(text, "; the Pods of {} indexes fail once, with back-off by index", grouped(self.failing));
        }
        if self.run_for_seconds > 0 {
            let _ = write!(text, ", each for {} s", self.run_for_seconds);
        }
        if let Some(which) = self.delete_finished_pods {
            let _ = write!(text, "; of counted Pods, {which} are deleted");
        }
        if self.expire {
            text += "; all have expired when the server starts";
        }
        match self.controller {
            Controller::Embedded => {}
            Controller::Own { qps: 0 } => text += "; tally controller",
            Controller::Own { qps } => {
                let _ = write!(text, "; tally controller --qps {qps}");
            }
        }
        if let Some(target) = self.target {
            let _ = write!(text, ". Target: {}", target.describe());
        }
        text
    }
}

impl Target {
    pub fn describe(self) -> String {
        match self {
            Target::PodsAMinute(count) => format!("{} Pods a minute", grouped(count)),
            Target::CountedAMinute(count) => format!("{} finished Pods counted a minute", grouped(count)),
            Target::WithinSeconds(seconds) => format!("within {seconds} s"),
            Target::ActiveAtATime(count) => format!("{} Pods active at a time", grouped(count)),
        }
    }
}

/// `100,000`.
pub fn grouped(number: u32) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own_and_can_be_run() {
        let names: BTreeSet<&str> = CASES.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), CASES.len());
        for case in &CASES {
            let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            assert!(!case.name.is_empty() && case.name.bytes().all(is_plain), "{}", case.name);
            assert!(case.pods() > 0 && case.completions > 0 && case.parallelism > 0, "{}", case.name);
            assert!(case.failing <= case.completions && (case.failing == 0 || case.mode == Mode::Indexed));
            assert!(case.completions <= 100_000 || case.mode == Mode::NonIndexed, "the API has a limit: {}", case.name);
            // The case ends with the small Jobs.
            assert!(case.small == 0 || case.target.is_none() && !case.expire, "{}", case.name);
            let about = case.describe();
            assert!(about.contains("Job") && !about.contains("1 Jobs") && !about.contains("  "), "{about}");
        }
    }

    #[test]
    fn the_table_has_what_was_promised() {
        for name in ["1x1", "1000x1", "100x100", "1x1000-indexed", "1x10000-nonindexed", "1x100000-indexed"] {
            assert!(CASES.iter().any(|case| case.name == name), "{name}");
        }
        let targets: Vec<Target> = CASES.iter().filter_map(|case| case.target).collect();
        for wanted in [
            Target::PodsAMinute(5_000),
            Target::WithinSeconds(600),
            Target::ActiveAtATime(100_000),
            Target::CountedAMinute(2_000),
        ] {
            assert!(targets.contains(&wanted), "{wanted:?}");
        }
        let points = |mode: &str| CASES.iter().filter(|case| case.series() == Some(mode)).count();
        assert_eq!((points("Indexed"), points("NonIndexed")), (3, 3));
    }

    #[test]
    fn a_case_is_described_in_a_line() {
        let about = |name: &str| CASES.iter().find(|case| case.name == name).map(Case::describe).unwrap_or_default();
        for (name, line) in [
            ("1x1", "40 Jobs of 1 Pod, one after the other"),
            ("1000x1", "1,000 Jobs of 1 Pod, NonIndexed. Target: 5,000 Pods a minute"),
            ("beside-1", "40 Jobs of 1 Pod, one after the other, beside 1 Job of 20,000 Pods, Indexed, 500 at a time"),
            (
                "qps-50",
                "1 Job of 2,000 Pods, Indexed, 2,000 at a time, each for 50 s; tally controller --qps 50. Target: 2,000 \
                 finished Pods counted a minute",
            ),
        ] {
            assert_eq!(about(name), line);
        }
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (12_345, "12,345"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
