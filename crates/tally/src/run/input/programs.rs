//! Checks whether the programs of a Job exist on this machine. A missing program should be reported before the Job
//! attempts to run it seven times.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

/// The search path of processes if none is set.
pub const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Searches for the program where the process will search for it. The error says what is wrong.
pub fn find(program: &str, path: &str, workdir: &str) -> Result<(), String> {
    let is_file = |path: &Path| path.metadata().is_ok_and(|found| found.is_file());
    let runs =
        |path: &Path| path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    // Only the Pod knows its index, so a path that contains it cannot be checked here.
    if program.contains("$(") {
        return Ok(());
    }
    if program.contains('/') {
        let file = Path::new(workdir).join(program);
        return match (is_file(&file), runs(&file)) {
            (_, true) => Ok(()),
            (true, false) => Err(format!("{program} cannot be run: it is not executable; try `chmod +x {program}`")),
            (false, false) if program.starts_with('/') => Err(format!("{program}: no such program")),
            (false, false) => Err(format!("{program}: no such program in {workdir}")),
        };
    }
    let mut places = path.split(':').filter(|place| !place.is_empty());
    let found = places.any(|directory| runs(&Path::new(workdir).join(directory).join(program)));
    if found { Ok(()) } else { Err(format!("{program}: no such program in PATH ({path})")) }
}

/// Fields of a Job that name missing programs. `path` and `workdir` are those of this process. Only what can be known
/// beforehand is checked: the contents of a volume, and the files that an earlier container creates, are not known yet.
pub fn missing(job: &Value, path: &str, workdir: &str) -> Vec<(String, String)> {
    let spec = &job["spec"]["template"]["spec"];
    let lists =
        ["initContainers", "containers"].map(|list| (list, spec[list].as_array().map_or(&[][..], Vec::as_slice)));
    let (list, containers) = match lists {
        [(list, [first, ..]), _] => (list, std::slice::from_ref(first)),
        [_, main] => main,
    };
    let mut wrong = Vec::new();
    for (at, container) in containers.iter().enumerate() {
        let field = |name: &str| format!("spec.template.spec.{list}[{at}].{name}");
        let mounts = container["volumeMounts"].as_array().is_some_and(|mounts| !mounts.is_empty());
        let Some(program) = container["command"][0].as_str().filter(|program| !mounts && !program.contains('$')) else {
            continue;
        };
        let here = container["workingDir"].as_str().filter(|given| !given.is_empty());
        if let Some(given) = here.filter(|given| !Path::new(workdir).join(given).is_dir()) {
            wrong
                .push((field("workingDir"), format!("directory {given} does not exist; create it, or choose another")));
            continue;
        }
        let path = if program.contains('/') { Some("") } else { path_of(container, path) };
        if let Some(Err(why)) = path.map(|path| find(program, path, here.unwrap_or(workdir))) {
            let advice = "commands run on this machine and images are not used: install it, or correct the command";
            wrong.push((field("command[0]"), format!("{why}; {advice}")));
        }
    }
    wrong
}

/// The search path of a container. `None`: not known yet.
fn path_of<'a>(container: &'a Value, usual: &'a str) -> Option<&'a str> {
    let rows = container["env"].as_array().into_iter().flatten();
    match rows.rev().find(|row| row["name"] == "PATH") {
        Some(row) if !row["valueFrom"].is_null() => None,
        Some(row) => Some(row["value"].as_str().unwrap_or_default()).filter(|path| !path.contains('$')),
        None => Some(usual).filter(|_| container["envFrom"].as_array().is_none_or(Vec::is_empty)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn programs_are_looked_for_where_they_will_be() {
        for (program, path, good) in [
            ("sh", "/nowhere:/bin", true),
            ("sh", "/nowhere", false),
            ("sh", "/nowhere::", false),
            ("/bin/sh", "", true),
            ("./no-such-program", "/bin", false),
            ("/etc/passwd", "/bin", false),
            ("./$(JOB_COMPLETION_INDEX)", "/bin", true),
        ] {
            assert_eq!(find(program, path, "/").is_ok(), good, "{program} in {path}");
        }
        assert!(find("/etc/passwd", "", "/").unwrap_err().contains("chmod"));
    }

    #[test]
    fn a_job_is_refused_only_for_what_is_known_to_be_missing() {
        let main = |container: Value| json!({"containers": [container]});
        let with = |more: Value| {
            let mut container = json!({"command": ["absent"]});
            container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            main(container)
        };
        for (spec, wrong) in [
            (main(json!({"command": ["sh"]})), ""),
            (main(json!({"command": ["bin/sh"]})), ""),
            (main(json!({})), ""),
            (with(json!({})), "containers[0].command[0]"),
            (main(json!({"command": ["/no/such"]})), "containers[0].command[0]"),
            (main(json!({"command": ["sh"], "workingDir": "/no/such"})), "containers[0].workingDir"),
            (main(json!({"command": ["sh"], "env": [{"name": "PATH", "value": "/no"}]})), "containers[0].command[0]"),
            (with(json!({"env": [{"name": "PATH", "value": "$(X):/no"}]})), ""),
            (with(json!({"env": [{"name": "PATH", "valueFrom": {"fieldRef": {}}}]})), ""),
            (with(json!({"envFrom": [{}]})), ""),
            (with(json!({"volumeMounts": [{}]})), ""),
            (main(json!({"command": ["/opt/$(X)"]})), ""),
            // The first container may create the program.
            (json!({"initContainers": [{"command": ["sh"]}], "containers": [{"command": ["/no/such"]}]}), ""),
            (
                json!({"initContainers": [{"command": ["/no/such"]}], "containers": [{"command": ["sh"]}]}),
                "initContainers[0].command[0]",
            ),
        ] {
            let found = missing(&json!({"spec": {"template": {"spec": spec}}}), "/bin", "/");
            let fields: Vec<&str> =
                found.iter().filter_map(|(field, _)| field.strip_prefix("spec.template.spec.")).collect();
            assert_eq!(fields.join(" "), wrong, "{spec}");
        }
    }
}
