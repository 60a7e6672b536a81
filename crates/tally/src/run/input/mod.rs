//! What the user asks for: flags or files, as objects that are known to be valid.
//!
//! `flags` makes a Job of flags, `each` makes Jobs of flags and a list, `documents` reads files. `check` validates all objects before anything is created, with
//! `types` for the types of their fields and `programs` for whether their programs exist.

pub mod check;
pub mod documents;
pub mod each;
pub mod flags;
pub mod manifest;
pub mod order;
mod programs;
mod types;

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use serde_json::{Value, json};

use documents::{Document, Origin};
use flags::Caller;

use super::outcome::RunError;
use super::{Args, OutputForm, on_cluster};

/// The objects to create. Empty: resume what is in the data directory.
pub fn wanted(args: &Args) -> Result<Vec<Document>, RunError> {
    requested(args).map_err(RunError::Input)
}

fn requested(args: &Args) -> Result<Vec<Document>, String> {
    on_cluster::flags::check(args)?;
    let mut files = args.files.clone();
    match args.stdin.as_deref() {
        None => {}
        Some("-") => files.push("-".to_owned()),
        Some(other) => {
            return Err(format!(
                "unexpected argument {other:?}; put a command after --, as in `tally run -- {other}`, and a file \
                 after -f"
            ));
        }
    }
    let readers = files.iter().filter(|file| *file == "-").count();
    if readers + usize::from(args.each.reads_stdin()) + usize::from(args.pass_stdin) > 1 {
        return Err("standard input can be read only once; specify - once".to_owned());
    }
    if args.output == OutputForm::Yaml && !args.dry_run {
        return Err("--output yaml applies only to --dry-run".to_owned());
    }
    let flag = args.flags.first().or(args.each.first());
    let flag = flag.or(args.pass_stdin.then_some("--stdin")).or(args.image.as_ref().map(|_| "--image"));
    if let Some((which, _)) = args.again_in_part()
        && !(files.is_empty() && args.command.is_empty() && flag.is_none())
    {
        let other = flag.unwrap_or(if files.is_empty() { "a command" } else { "-f FILE" });
        return Err(format!("{} takes everything from the Job that has ended; remove {other}", which.flag()));
    }
    match (files.is_empty(), args.command.is_empty()) {
        (false, false) => Err("-f FILE cannot be combined with a command after --".to_owned()),
        (false, true) => match flag {
            Some(flag) => Err(format!("{flag} applies only to a command; with -f FILE, set it in the file")),
            None => documents::read(&files),
        },
        (true, false) => of_flags(args),
        (true, true) => match (&args.data_dir, flag) {
            (_, Some(flag)) => Err(format!("{flag} applies only to a command; put the command after --")),
            (Some(_), None) => Ok(Vec::new()),
            (None, None) if args.again_in_part().is_some() => Ok(Vec::new()),
            (None, None) => {
                Err("nothing to run: put a command after --, or specify a file with -f; see --help".to_owned())
            }
        },
    }
}

/// What `--stdin` passes on.
pub fn standard_input(args: &Args) -> Result<Option<OwnedFd>, RunError> {
    let stdin = args.pass_stdin.then(|| std::io::stdin().as_fd().try_clone_to_owned()).transpose();
    stdin.map_err(|error| RunError::Environment(format!("--stdin: standard input cannot be used: {error}")))
}

fn of_flags(args: &Args) -> Result<Vec<Document>, String> {
    let directory =
        std::env::current_dir().map_err(|error| format!("the current directory cannot be used: {error}"))?;
    let directory = directory.into_os_string().into_string();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let caller = Caller {
        directory: directory
            .map_err(|path| format!("the path of the current directory is not valid UTF-8: {path:?}"))?,
        env: std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect(),
        processors: i32::try_from(processors).unwrap_or(i32::MAX),
    };
    let words = each::words(&args.command);
    let mut flags = args.flags.clone();
    if args.cluster.is_given() && flags.name.is_none() {
        // On a cluster the same command is another Job: those of other people are there, too.
        flags.name = Some(flags::unique_name(words));
    }
    let Some(program) = words.first() else { return Err("there is no command before :::".to_owned()) };
    let each = args.each.is_given(&args.command);
    if args.flags.backoff_limit_per_index.is_some() && !each && !args.flags.indexed {
        return Err(
            "--backoff-limit-per-index counts the failures of an index; add --indexed, or --each FILE".to_owned()
        );
    }
    let mut documents = if each {
        each::documents(&args.each, &flags, &args.command, &caller)?
    } else {
        if let Some(flag) = args.each.first() {
            return Err(format!("{flag} applies to a list; give one with --each FILE, --each-glob PATTERN or :::"));
        }
        let resource = tally_api::catalog::find("batch", "v1", "jobs").ok_or("no Jobs are served")?;
        let object = flags.job(words, &caller, if args.pass_stdin { "stdin" } else { "" })?;
        vec![Document { origin: Origin::Flags, resource, object }]
    };
    if args.pass_stdin {
        if each {
            return Err("--stdin applies to a single task, not to a list".to_owned());
        }
        let spec = &mut documents[0].object["spec"];
        spec["backoffLimit"] = 0.into();
        let container = &mut spec["template"]["spec"]["containers"][0];
        (container["stdin"], container["stdinOnce"]) = (true.into(), true.into());
    }
    if let Some(image) = &args.image {
        let jobs = documents.iter_mut().filter(|document| document.is_job());
        jobs.for_each(|document| manifest::use_image(&mut document.object, image, &args.flags));
        return Ok(documents);
    }
    let Some(job) = documents.iter().find(|document| document.is_job()) else { return Ok(documents) };
    let container = &job.object["spec"]["template"]["spec"]["containers"][0];
    let workdir = container["workingDir"].as_str().unwrap_or_default();
    if !Path::new(workdir).is_dir() {
        return Err(format!("--workdir {workdir}: no such directory"));
    }
    let path = container["env"].as_array().into_iter().flatten().find(|row| row["name"] == "PATH");
    let of_shell = caller.env.get("PATH").filter(|_| !args.flags.clean_env).map(String::as_str);
    let path = path.and_then(|row| row["value"].as_str()).or(of_shell).unwrap_or(programs::USUAL_PATH);
    // Only the task knows its row, so a program that contains it cannot be checked here.
    if !(each && program.contains('{')) {
        programs::find(program, path, workdir)?;
    }
    if args.isolate
        && let Ok(dir) = Path::new(workdir).canonicalize()
    {
        if dir.starts_with("/dev") {
            return Err(format!("--isolate: every task has its own /dev, without {workdir}; choose another --workdir"));
        }
        let jobs = documents.iter_mut().filter(|document| document.is_job());
        jobs.for_each(|document| show_working_directory(&mut document.object, &dir));
    }
    Ok(documents)
}

/// An isolated task has a `/tmp` of its own. A working directory below the machine's is shown in it, and nothing else.
fn show_working_directory(job: &mut Value, dir: &Path) {
    if !dir.starts_with("/tmp") || dir == Path::new("/tmp") {
        return;
    }
    let pod = &mut job["spec"]["template"]["spec"];
    let name = "working-directory";
    let add = |list: &mut Value, row: Value| match list.as_array_mut() {
        Some(rows) => rows.push(row),
        None => *list = json!([row]),
    };
    add(&mut pod["volumes"], json!({"name": name, "hostPath": {"path": dir, "type": "Directory"}}));
    add(&mut pod["containers"][0]["volumeMounts"], json!({"name": name, "mountPath": dir}));
}
