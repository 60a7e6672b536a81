//! What the user asks for: flags or files, as objects that are known to be valid.
//!
//! `flags` makes a Job of flags, `documents` reads files. `check` validates all objects before anything is created, and
//! `programs` whether their programs exist.

pub mod check;
pub mod documents;
pub mod flags;
mod programs;

use std::path::Path;

use documents::{Document, Origin};
use flags::Caller;

use super::Args;
use super::outcome::RunError;

/// The objects to create. Empty: resume what is in the data directory.
pub fn wanted(args: &Args) -> Result<Vec<Document>, RunError> {
    requested(args).map_err(RunError::Input)
}

fn requested(args: &Args) -> Result<Vec<Document>, String> {
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
    if files.iter().filter(|file| *file == "-").count() > 1 {
        return Err("standard input can be read only once; specify - once".to_owned());
    }
    match (files.is_empty(), args.command.is_empty()) {
        (false, false) => Err("-f FILE cannot be combined with a command after --".to_owned()),
        (false, true) => match args.flags.first() {
            Some(flag) => Err(format!("{flag} applies only to a command; with -f FILE, set it in the file")),
            None => documents::read(&files),
        },
        (true, false) => of_flags(args).map(|document| vec![document]),
        (true, true) => match (&args.data_dir, args.flags.first()) {
            (_, Some(flag)) => Err(format!("{flag} applies only to a command; put the command after --")),
            (Some(_), None) => Ok(Vec::new()),
            (None, None) => {
                Err("nothing to run: put a command after --, or specify a file with -f; see --help".to_owned())
            }
        },
    }
}

fn of_flags(args: &Args) -> Result<Document, String> {
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
    let object = args.flags.job(&args.command, &caller)?;
    let container = &object["spec"]["template"]["spec"]["containers"][0];
    let workdir = container["workingDir"].as_str().unwrap_or_default();
    if !Path::new(workdir).is_dir() {
        return Err(format!("--workdir {workdir}: no such directory"));
    }
    let path = container["env"].as_array().into_iter().flatten().find(|row| row["name"] == "PATH");
    let of_shell = caller.env.get("PATH").filter(|_| !args.flags.clean_env).map(String::as_str);
    let path = path.and_then(|row| row["value"].as_str()).or(of_shell).unwrap_or(programs::USUAL_PATH);
    programs::find(&args.command[0], path, workdir)?;
    let resource = tally_api::catalog::find("batch", "v1", "jobs").ok_or("no Jobs are served")?;
    Ok(Document { origin: Origin::Flags, resource, object })
}
