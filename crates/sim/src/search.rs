//! A range of seeds, run in many worlds, in blocks that take turns. The progress can be stored in a file, so that a
//! search of hours can be interrupted and continues where it was.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::ops::Range;
use std::path::Path;

use crate::oracle::Violation;
use crate::run;
use crate::scenarios::Scenario;

/// Seeds of one world before the next world's turn.
const BLOCK: u64 = 100;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    pub schedules: u64,
    pub steps: u64,
}

pub struct Search<'a> {
    seeds: Range<u64>,
    scenarios: Vec<&'a Scenario>,
    done: BTreeMap<&'static str, Done>,
}

pub struct Found {
    pub scenario: &'static str,
    pub seed: u64,
    pub violation: Violation,
}

impl<'a> Search<'a> {
    pub fn new(seeds: Range<u64>, scenarios: Vec<&'a Scenario>) -> Self {
        Self { seeds, scenarios, done: BTreeMap::new() }
    }

    /// Continues an interrupted search of the same seeds, if the file exists.
    pub fn resume(&mut self, file: &Path) -> io::Result<()> {
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut lines = text.lines();
        if lines.next() != Some(&self.heading()) {
            let wrong = format!("{} is of other seeds; remove it to begin anew", file.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, wrong));
        }
        for line in lines {
            let mut words = line.split_whitespace();
            let (Some(name), Some(schedules), Some(steps)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let scenario = self.scenarios.iter().find(|scenario| scenario.name == name);
            if let (Some(scenario), Ok(schedules), Ok(steps)) = (scenario, schedules.parse(), steps.parse()) {
                self.done.insert(scenario.name, Done { schedules, steps });
            }
        }
        Ok(())
    }

    pub fn save(&self, file: &Path) -> io::Result<()> {
        let mut text = self.heading() + "\n";
        for (name, Done { schedules, steps }) in &self.done {
            let _ = writeln!(text, "{name} {schedules} {steps}");
        }
        let new = file.with_extension("new");
        std::fs::write(&new, text)?;
        std::fs::rename(new, file)
    }

    fn heading(&self) -> String {
        format!("seeds {}..{}", self.seeds.start, self.seeds.end)
    }

    pub fn done(&self) -> impl Iterator<Item = (&'static str, Done)> + '_ {
        self.done.iter().map(|(name, done)| (*name, *done))
    }

    pub fn total(&self) -> Done {
        self.done.values().fold(Done::default(), |sum, done| Done {
            schedules: sum.schedules + done.schedules,
            steps: sum.steps + done.steps,
        })
    }

    /// Runs the next block of the world that has made the least progress. None: everything is done. A seed that fails
    /// is run again when the search is resumed.
    pub fn next_block(&mut self) -> Option<Result<&'static str, Found>> {
        let behind = |scenario: &&&Scenario| self.done.get(scenario.name).map_or(0, |done| done.schedules);
        let scenario = *self.scenarios.iter().min_by_key(behind)?;
        let Done { schedules, steps } = self.done.get(scenario.name).copied().unwrap_or_default();
        let first = self.seeds.start + schedules;
        if first >= self.seeds.end {
            return None;
        }
        let block = run::seeds(first..self.seeds.end.min(first + BLOCK), None, scenario, |_| {});
        let passed = block.schedules - u64::from(block.failed.is_some());
        self.done.insert(scenario.name, Done { schedules: schedules + passed, steps: steps + block.steps });
        Some(match block.failed {
            None => Ok(scenario.name),
            Some((seed, violation)) => Err(Found { scenario: scenario.name, seed, violation }),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::scenarios;

    fn search(seeds: Range<u64>) -> Search<'static> {
        Search::new(seeds, vec![scenarios::find("calm").unwrap(), scenarios::find("crash").unwrap()])
    }

    #[test]
    fn a_search_that_was_interrupted_goes_on_where_it_was() {
        let file = std::env::temp_dir().join(format!("tally-search-{}", std::process::id()));
        let mut first = search(7..127);
        assert!(first.next_block().unwrap().is_ok() && first.next_block().unwrap().is_ok());
        first.save(&file).unwrap();
        let mut second = search(7..127);
        second.resume(&file).unwrap();
        assert_eq!(second.total(), first.total());
        assert_eq!(second.total().schedules, 2 * BLOCK);
        while second.next_block().is_some_and(|block| block.is_ok()) {}
        let mut whole = search(7..127);
        whole.resume(&file.with_extension("none")).unwrap();
        while whole.next_block().is_some_and(|block| block.is_ok()) {}
        assert_eq!(second.total(), whole.total());
        assert_eq!(whole.total().schedules, 240);
        let other = search(8..127).resume(&file).unwrap_err();
        assert!(other.to_string().contains("other seeds"), "{other}");
        std::fs::remove_file(file).unwrap();
    }
}
