//! `tally bench run`: how long `tally run` takes for tasks that do nothing, beside other tools on the same machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use serde::Serialize;

use super::server::own_command;
use super::{disk, proc, say};
use crate::look::LookForm;

#[derive(ClapArgs)]
#[command(after_help = "Examples:
  tally bench run
  tally bench run --count 2000 --rounds 2 -o json

The tools take turns, so that other load on the machine affects all of them. Of the processor time, tally is that of tally
run itself, and shim that of its child, which starts the tasks; the tasks' own is not included. Both are read every 5 ms
while the tool runs, in steps of 10 ms. Tools that are not installed are named and left out; GNU parallel is optional.

Exit code 0: done; 2: bad usage, or a tool failed.")]
pub struct Args {
    /// Number of tasks
    #[arg(long, default_value_t = 4_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    count: u32,
    /// Tasks at a time
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    parallelism: u32,
    /// How often each tool runs
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Directory for the list of tasks and the data of tally run --data-dir; its disk is part of the measurement
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Output format; json has one object per line and tool
    #[arg(long, short = 'o', value_name = "FORM", value_enum, default_value_t)]
    output: LookForm,
}

/// How often a single task runs.
const ALONE: u32 = 20;
const SAMPLE_EVERY: Duration = Duration::from_millis(5);

const XARGS: &str = "xargs -P -I";
const XARGS_LINES: &str = "xargs -P -n 1";

/// A tool, how to run it once, and the program that has to be there. None: this one.
struct Tool {
    name: &'static str,
    program: Option<&'static str>,
    /// By the number of the round: data is kept in a new directory each time.
    command: fn(&Setup, u32) -> Result<Command>,
    tasks: fn(&Setup) -> u32,
    /// The task is `true LINE`, not `true`: with an argument the `true` of GNU reads the locale first, which takes as long as
    /// everything else that it does. A tool is compared with xargs doing the same.
    has_lines: bool,
}

struct Setup {
    count: u32,
    parallelism: String,
    directory: PathBuf,
}

impl Setup {
    fn list(&self) -> PathBuf {
        self.directory.join("list")
    }

    fn tally_run(&self) -> Result<Command> {
        let mut command = own_command()?;
        command.args(["run", "--quiet", "--parallelism", &self.parallelism]);
        Ok(command)
    }

    fn tally_run_all(&self) -> Result<Command> {
        let mut command = self.tally_run()?;
        command.args(["--completions", &self.count.to_string()]);
        Ok(command)
    }
}

const TOOLS: [Tool; 8] = [
    Tool {
        name: XARGS,
        program: Some("xargs"),
        command: |setup, _| {
            let mut command = Command::new("xargs");
            command.args(["-P", &setup.parallelism, "-I", "{}", "-a"]).arg(setup.list()).arg("true");
            Ok(command)
        },
        tasks: |setup| setup.count,
        has_lines: false,
    },
    Tool {
        name: XARGS_LINES,
        program: Some("xargs"),
        command: |setup, _| {
            let mut command = Command::new("xargs");
            command.args(["-P", &setup.parallelism, "-n", "1", "-a"]).arg(setup.list()).arg("true");
            Ok(command)
        },
        tasks: |setup| setup.count,
        has_lines: true,
    },
    Tool {
        name: "make -j",
        program: Some("make"),
        command: |setup, _| {
            let mut command = Command::new("make");
            command.args(["-s", "-j", &setup.parallelism, "-f"]).arg(setup.directory.join("makefile"));
            Ok(command)
        },
        tasks: |setup| setup.count,
        has_lines: false,
    },
    Tool {
        name: "GNU parallel",
        program: Some("parallel"),
        command: |setup, _| {
            let mut command = Command::new("parallel");
            command.args(["-j", &setup.parallelism, "true", "::::"]).arg(setup.list());
            Ok(command)
        },
        tasks: |setup| setup.count,
        has_lines: true,
    },
    Tool {
        name: "tally run",
        program: None,
        command: |setup, _| Ok(with_true(setup.tally_run_all()?)),
        tasks: |setup| setup.count,
        has_lines: false,
    },
    Tool {
        name: "tally run --each",
        program: None,
        command: |setup, _| {
            let mut command = setup.tally_run()?;
            command.arg("--each").arg(setup.list()).args(["--", "true", "{}"]);
            Ok(command)
        },
        tasks: |setup| setup.count,
        has_lines: true,
    },
    Tool {
        name: "tally run --data-dir",
        program: None,
        command: |setup, round| {
            let mut command = setup.tally_run_all()?;
            command.arg("--data-dir").arg(setup.directory.join(format!("data-{round}")));
            Ok(with_true(command))
        },
        tasks: |setup| setup.count,
        has_lines: false,
    },
    Tool {
        name: "tally run -- true",
        program: None,
        command: |setup, _| Ok(with_true(setup.tally_run()?)),
        tasks: |_| 1,
        has_lines: false,
    },
];

fn with_true(mut command: Command) -> Command {
    command.args(["--", "true"]);
    command
}

/// Processor time of `tally run` and of its children, in seconds.
#[derive(Clone, Copy, Default)]
struct Used {
    tally: f64,
    shim: f64,
}

/// What one tool has shown.
#[derive(Default)]
struct Shown {
    took: Vec<Duration>,
    used: Used,
}

/// One object of `-o json`.
#[derive(Serialize)]
struct Figures {
    tool: &'static str,
    tasks: u32,
    parallelism: u32,
    rounds: usize,
    best_seconds: f64,
    median_seconds: f64,
    tasks_per_second: f64,
    /// Of the best times; above 1 it is slower.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_to_xargs: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tally_us_per_task: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shim_us_per_task: Option<f64>,
    disk_sync_ms: f64,
}

pub fn run(args: &Args) -> Result<bool> {
    let parent = args.directory.clone().unwrap_or_else(std::env::temp_dir);
    let scratch = tempfile::Builder::new().prefix("tally-bench-").tempdir_in(&parent);
    let scratch = scratch.with_context(|| format!("cannot create a directory in {}", parent.display()))?;
    let setup =
        Setup { count: args.count, parallelism: args.parallelism.to_string(), directory: scratch.path().to_owned() };
    write_lists(&setup)?;
    let disk_sync_ms = disk::sync_time(scratch.path())?.as_secs_f64() * 1e3;
    if args.output == LookForm::Text {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        say(&format!(
            "{} times `true`, {} at a time, {} rounds, {processors} processors, fdatasync of 4 KiB in {}: {disk_sync_ms:.3} ms",
            args.count,
            args.parallelism,
            args.rounds,
            parent.display()
        ));
    }
    let (there, missing): (Vec<&Tool>, Vec<&Tool>) = TOOLS.iter().partition(|tool| is_there(tool));
    if !missing.is_empty() {
        let names: Vec<&str> = missing.iter().map(|tool| tool.name).collect();
        crate::terminal::tell(format_args!("not installed: {}", names.join(", ")));
    }
    let mut shown: BTreeMap<&str, Shown> = BTreeMap::new();
    for round in 0..args.rounds {
        for tool in &there {
            let times = if (tool.tasks)(&setup) == 1 { ALONE.div_ceil(args.rounds) } else { 1 };
            for _ in 0..times {
                let (took, used) = once(tool, (tool.command)(&setup, round)?)?;
                let shown = shown.entry(tool.name).or_default();
                shown.took.push(took);
                shown.used.tally += used.tally;
                shown.used.shim += used.shim;
            }
            let _ = fs::remove_dir_all(setup.directory.join(format!("data-{round}")));
        }
    }
    let best = |tool: &str| shown.get(tool).and_then(|shown| shown.took.iter().min()).copied();
    let (of_xargs, of_xargs_lines) = (best(XARGS), best(XARGS_LINES));
    for tool in there {
        let Some(Shown { took, used }) = shown.get_mut(tool.name) else { continue };
        let tasks = (tool.tasks)(&setup);
        let of_xargs = if tool.has_lines { of_xargs_lines } else { of_xargs };
        let figures = figures(tool, tasks, took, *used, of_xargs.filter(|_| tasks > 1));
        let figures = Figures { parallelism: args.parallelism, disk_sync_ms, ..figures };
        match args.output {
            LookForm::Text => say(&figures.line()),
            LookForm::Json => say(&serde_json::to_string(&figures)?),
        }
    }
    Ok(true)
}

fn figures(tool: &Tool, tasks: u32, took: &mut [Duration], used: Used, of_xargs: Option<Duration>) -> Figures {
    took.sort_unstable();
    let (best, median) =
        (took.first().copied().unwrap_or_default(), took.get(took.len() / 2).copied().unwrap_or_default());
    let each = |seconds: f64| seconds / f64::from(tasks) / took.len().max(1) as f64 * 1e6;
    let own = tool.program.is_none() && tasks > 1;
    Figures {
        tool: tool.name,
        tasks,
        parallelism: 0,
        rounds: took.len(),
        best_seconds: best.as_secs_f64(),
        median_seconds: median.as_secs_f64(),
        tasks_per_second: f64::from(tasks) / best.as_secs_f64().max(f64::EPSILON),
        ratio_to_xargs: of_xargs.map(|xargs| best.as_secs_f64() / xargs.as_secs_f64().max(f64::EPSILON)),
        tally_us_per_task: own.then(|| each(used.tally)),
        shim_us_per_task: own.then(|| each(used.shim)),
        disk_sync_ms: 0.0,
    }
}

impl Figures {
    fn line(&self) -> String {
        let mut text = format!(
            "{:<21} best {:>7.3} s  median {:>7.3} s  {:>6.0} a second",
            self.tool, self.best_seconds, self.median_seconds, self.tasks_per_second
        );
        if let Some(ratio) = self.ratio_to_xargs {
            text += &format!("  {ratio:>5.2} times xargs");
        }
        if let (Some(tally), Some(shim)) = (self.tally_us_per_task, self.shim_us_per_task) {
            text += &format!("  tally {tally:.0} us, shim {shim:.0} us a task");
        }
        text
    }
}

fn write_lists(setup: &Setup) -> Result<()> {
    let numbers: String = (1..=setup.count).map(|number| format!("{number}\n")).collect();
    fs::write(setup.list(), numbers)?;
    let targets: String = (1..=setup.count).map(|number| format!(" t{number}")).collect();
    let rules: String = (1..=setup.count).map(|number| format!("t{number}: ; @true\n")).collect();
    Ok(fs::write(setup.directory.join("makefile"), format!("all:{targets}\n{rules}"))?)
}

fn is_there(tool: &Tool) -> bool {
    let Some(program) = tool.program else { return true };
    let said = Command::new(program).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output();
    // moreutils installs another program named parallel.
    said.is_ok_and(|said| program != "parallel" || said.stdout.starts_with(b"GNU"))
}

/// Runs a command to its end.
fn once(tool: &Tool, mut command: Command) -> Result<(Duration, Used)> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let began = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot start {}", tool.name))?;
    let (id, ended) = (child.id(), AtomicBool::new(false));
    let (status, took, used) = std::thread::scope(|threads| {
        let sampler = threads.spawn(|| sample(id, &ended));
        let status = child.wait();
        let took = began.elapsed();
        ended.store(true, Ordering::Relaxed);
        (status, took, sampler.join().unwrap_or_default())
    });
    let status = status?;
    if !status.success() {
        bail!("{}: {status}", tool.name);
    }
    Ok((took, used))
}

/// Reads the processor time of a process and of its children until they are gone.
fn sample(id: u32, ended: &AtomicBool) -> Used {
    let (mut tally, mut children) = (0.0, BTreeMap::new());
    while !ended.load(Ordering::Relaxed) {
        for child in proc::children(id) {
            children.extend(proc::processor_seconds(child).map(|seconds| (child, seconds)));
        }
        tally = proc::processor_seconds(id).unwrap_or(tally);
        std::thread::sleep(SAMPLE_EVERY);
    }
    Used { tally, shim: children.values().sum() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_tool_come_from_all_its_rounds() {
        let mut took = [3, 1, 2].map(Duration::from_secs);
        let used = Used { tally: 3.0, shim: 1.5 };
        let xargs = Some(Duration::from_millis(500));
        let own = figures(&TOOLS[4], 1_000, &mut took, used, xargs);
        assert_eq!((own.best_seconds, own.median_seconds, own.tasks_per_second), (1.0, 2.0, 1000.0));
        assert_eq!(
            (own.ratio_to_xargs, own.tally_us_per_task, own.shim_us_per_task),
            (Some(2.0), Some(1000.0), Some(500.0))
        );
        let line = own.line();
        assert!(
            line.starts_with("tally run ") && line.contains("2.00 times xargs  tally 1000 us, shim 500 us"),
            "{line}"
        );
        let other = figures(&TOOLS[0], 1_000, &mut took, Used::default(), xargs);
        assert!(other.tally_us_per_task.is_none() && !other.line().contains("shim"));
    }

    #[test]
    fn the_lists_have_all_tasks() {
        let directory = tally_testing::scratch();
        let setup = Setup { count: 3, parallelism: "2".to_owned(), directory: directory.path().to_owned() };
        write_lists(&setup).unwrap();
        assert_eq!(fs::read_to_string(setup.list()).unwrap(), "1\n2\n3\n");
        let makefile = fs::read_to_string(directory.path().join("makefile")).unwrap();
        assert_eq!(makefile, "all: t1 t2 t3\nt1: ; @true\nt2: ; @true\nt3: ; @true\n");
    }
}
