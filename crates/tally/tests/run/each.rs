//! `--each`: a command for every row of a list, with real processes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::tool::{Running, Said, directory, events, eventually, said, text};

fn tally(here: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command.arg("run").args(arguments).current_dir(here).stdin(Stdio::null());
    command
}

fn ends(here: &Path, arguments: &[&str]) -> Said {
    said(tally(here, arguments).output().unwrap())
}

fn fed(here: &Path, arguments: &[&str], input: &[u8]) -> Said {
    let mut command = tally(here, arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(&input).unwrap());
    let said = said(child.wait_with_output().unwrap());
    writer.join().unwrap();
    said
}

/// Writes its arguments, each with a zero behind it, to a file that is named after the index of the task.
const RECORD: &str = "printf '%s\\0' \"$@\" > \"$OUT/$TALLY_INDEX\"";

/// What each task got, by its index.
fn recorded(here: &Path) -> BTreeMap<usize, Vec<Vec<u8>>> {
    let files = fs::read_dir(here.join("out")).unwrap().map(|entry| entry.unwrap());
    let arguments = |path: &Path| {
        let mut arguments: Vec<Vec<u8>> =
            fs::read(path).unwrap().split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
        arguments.pop();
        arguments
    };
    files.map(|file| (file.file_name().to_str().unwrap().parse().unwrap(), arguments(&file.path()))).collect()
}

/// Runs the flags with a command that records `words`, in a directory with these files. Returns what the tasks got.
fn run(here: &Path, flags: &[&str], words: &[&str], values: &[&str], input: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let out = here.join("out");
    let _ = fs::remove_dir_all(&out);
    fs::create_dir(&out).unwrap();
    let env = format!("OUT={}", text(&out));
    let arguments = [flags, &["--env", &env, "--", "sh", "-c", RECORD, "sh"], words, values].concat();
    let said = fed(here, &arguments, input);
    assert_eq!(said.code, Some(0), "{flags:?}: {}{}", said.out, said.err);
    let recorded = recorded(here);
    let tasks = recorded.len();
    let told = [&*said.out, &*said.err].concat();
    assert!(told.contains(&format!("; {tasks}/{tasks} succeeded")), "{flags:?}: {told}");
    assert_eq!(recorded.keys().copied().collect::<Vec<_>>(), (0..tasks).collect::<Vec<_>>());
    recorded.into_values().collect()
}

/// The first argument of each task.
fn firsts(tasks: Vec<Vec<Vec<u8>>>) -> Vec<String> {
    tasks.into_iter().map(|mut arguments| String::from_utf8(arguments.remove(0)).unwrap()).collect()
}

#[test]
fn every_line_is_an_argument_as_it_is() {
    let directory = directory();
    let here = directory.path();
    let lines = [
        "plain",
        "",
        " two  spaces ",
        "it's \"quoted\" `here` $(touch pwned) ${HOME} $HOME $$ $(HOME) $(JOB_COMPLETION_INDEX) \\ \\n \\\\ \\0101 %s",
        "*",
        "-rf",
        "{} {1} {x}",
        "a;b|c&d>e<f",
        "\u{e4} \u{20ac} \u{1f600}",
        "tab\tand return\r",
        "#",
        "~",
    ];
    let all = lines.join("\n");
    for end in ["\n", ""] {
        fs::write(here.join("list"), format!("{all}{end}")).unwrap();
        assert_eq!(firsts(run(here, &["--each", "list"], &["{}"], &[], b"")), lines, "the file ends with {end:?}");
    }
    assert_eq!(firsts(run(here, &["--each", "-"], &["{}"], &[], all.as_bytes())), lines);
    let parts = run(here, &["--each", "list"], &["<{}>{}", "{1}", "{x}", "no"], &[], b"");
    let expected = ["< two  spaces > two  spaces ", " two  spaces ", "{x}", "no"];
    assert_eq!(parts[2], expected.map(|word| word.as_bytes().to_vec()));
    assert!(!here.join("pwned").exists() && !here.join("out/pwned").exists(), "nothing of a line was executed");
}

#[test]
fn the_line_and_its_index_are_in_the_environment() {
    let directory = directory();
    let here = directory.path();
    fs::write(here.join("list"), "a 'b'\n\n").unwrap();
    let script = "printf '%s|%s|%s\\n' \"$TALLY_INDEX\" \"$JOB_COMPLETION_INDEX\" \"$TALLY_LINE\" >> all";
    let said = ends(here, &["--each", "list", "-p", "1", "--", "sh", "-c", script]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(fs::read_to_string(here.join("all")).unwrap(), "0|0|a 'b'\n1|1|\n");
    assert!(!said.err.contains("has no {}"), "the command uses the variable: {}", said.err);
    let said = ends(here, &["--each", "list", "--", "true"]);
    assert!(said.err.contains("the command has no {}"), "{}", said.err);
    for (word, used) in [("{#}", true), ("{/.}", true), ("${1}", false), ("{{.}}", false), ("{x}", false)] {
        let said = ends(here, &["--each", "list", "--", "true", word]);
        assert_eq!((said.code, !said.err.contains("the command has no {}")), (Some(0), used), "{word}: {}", said.err);
    }
}

#[test]
fn files_are_renamed_without_their_extension() {
    let directory = directory();
    let here = directory.path();
    for name in ["a.txt", "b.tar.txt", "c d.txt"] {
        fs::write(here.join(name), name).unwrap();
    }
    let said = ends(here, &["--each-glob", "*.txt", "--", "mv", "{}", "{.}.old"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    for (old, new) in [("a.txt", "a.old"), ("b.tar.txt", "b.tar.old"), ("c d.txt", "c d.old")] {
        assert_eq!(fs::read_to_string(here.join(new)).unwrap(), old);
        assert!(!here.join(old).exists(), "{old}");
    }
}

#[test]
fn a_task_gets_parts_of_paths_and_its_number() {
    let directory = directory();
    let here = directory.path();
    let words = ["{.}|{/}|{//}|{/.}|{#}", "{1.}|{2/}|{1//}|{2/.}"];
    let tasks = run(here, &[], &words, &[":::", "a/b.c", "d.e", ":::", "/x.y/z"], b"");
    let expected = [
        ["a/b /x.y/z|b.c z|a /x.y|b z|1", "a/b|z|a|z"].map(|word| word.as_bytes().to_vec()),
        ["d /x.y/z|d.e z|. /x.y|d z|2", "d|z|.|z"].map(|word| word.as_bytes().to_vec()),
    ];
    assert_eq!(tasks, expected);
    let tsv = "in file\tn\na b/c.d\t1.5\n\t/\n";
    let words = ["{in file.}|{in file/}|{in file//}|{in_file/.}|{n.}|{.}"];
    assert_eq!(
        firsts(run(here, &["--each", "-", "--columns"], &words, &[], tsv.as_bytes())),
        ["a b/c|c.d|a b|c|1|a b/c\t1", "||.||/|\t/"]
    );
    let values: [&[u8]; 2] = [b"\xff/\xfe.\xfd", b"ends\n.x\n"];
    let tasks = run(here, &["--each", "-", "--null"], &["{.}", "{/}", "{//}", "{/.}"], &[], &values.join(&0));
    let expected: [[&[u8]; 4]; 2] =
        [[b"\xff/\xfe", b"\xfe.\xfd", b"\xff", b"\xfe"], [b"ends\n", b"ends\n.x\n", b".", b"ends\n"]];
    assert_eq!(tasks, expected.map(|words| words.map(<[u8]>::to_vec)));
}

#[test]
fn what_looks_like_a_placeholder_is_refused_before_anything_runs() {
    let directory = directory();
    let here = directory.path();
    fs::write(here.join("list.csv"), "name,size\na,1\n").unwrap();
    fs::write(here.join("pipes.csv"), "name|size\na|1\n").unwrap();
    let columns = ["--each", "list.csv", "--columns"];
    for (flags, word, told) in [
        (&[][..], "x{2}", "tally: {2} in the command: there is no such value; there is only {1}; "),
        (&[], "{%}", "tally: {%} in the command: tally run does not have this string of GNU parallel; "),
        (&columns, "{nmae}.txt", "tally: {nmae} in the command: there is no such column; perhaps {name} is meant; "),
        (&columns, "{4}", "; there are {name}, {size}, {3}; "),
        (&["--each", "pipes.csv", "--columns"], "{name}", "; there are {name|size}, {2}; "),
        (&["--literal", "{9}"], "{}", "tally: --literal '{9}': the command does not contain it"),
    ] {
        for dry_run in [&[][..], &["--dry-run"]] {
            let said = ends(here, &[flags, dry_run, &["--", "touch", "ran", word, ":::", "value"]].concat());
            assert_eq!((said.code, &*said.out), (Some(2), ""), "{flags:?} {word}: {}", said.err);
            assert!(said.err.contains(told), "{flags:?} {word}: {}", said.err);
            assert!(!here.join("ran").exists(), "{flags:?} {word}");
        }
    }
    let said = ends(here, &["--literal", "", "--", "true", ":::", "value"]);
    assert_eq!(said.code, Some(2), "{}", said.err);
    let said = ends(here, &["--literal", "{4}", "--", "true"]);
    assert!(said.code == Some(2) && said.err.contains("--literal applies to a list"), "{}", said.err);
    // As the message says, and `{}` can be text, too.
    let flags = ["--literal", "{2}", "--literal", "{}", "--literal", "{.}"];
    let words = ["x{2}", "{}", "{1}", "<{.}{#}>", "{print $1}", "${1}", "{{.}}"];
    let tasks = run(here, &flags, &words, &[":::", "value", "{2}"], b"");
    for (task, value, number) in [(&tasks[0], "value", "<{.}1>"), (&tasks[1], "{2}", "<{.}2>")] {
        let expected = ["x{2}", "{}", value, number, "{print $1}", "${1}", "{{.}}"];
        assert_eq!(*task, expected.map(|word| word.as_bytes().to_vec()));
    }
}

/// Spreadsheets write semicolons where numbers have a decimal comma.
#[test]
fn columns_may_be_separated_by_semicolons() {
    let directory = directory();
    let here = directory.path();
    let words = ["{name}|{size}|{}"];
    for (text, expected) in [
        ("name;size\r\n\"a;b\";1,5\r\nc,d;2\r\n", &["a;b|1,5|a;b;1,5", "c,d|2|c,d;2"][..]),
        ("\"name\";\"size\"\nx;y\n;\n", &["x|y|x;y", "||;"]),
        ("name,size,\"a;b\"\nx;y,z,1\n,,\n", &["x;y|z|x;y,z,1", "||,,"]),
    ] {
        fs::write(here.join("list.csv"), text).unwrap();
        assert_eq!(firsts(run(here, &["--each", "list.csv", "--columns"], &words, &[], b"")), expected, "{text:?}");
        assert_eq!(
            firsts(run(here, &["--each", "-", "--columns"], &words, &[], text.as_bytes())),
            expected,
            "{text:?}"
        );
    }
    fs::write(here.join("list.csv"), "name;size, in cm\na;1\n").unwrap();
    let said = ends(here, &["--each", "list.csv", "--columns", "--", "echo", "{name}"]);
    assert!(said.code == Some(2) && said.err.contains("there are {name;size}, {in cm}; "), "{}", said.err);
    let tsv = "a;b\tc\n1;2\t3\n4\t;\n";
    assert_eq!(firsts(run(here, &["--each", "-", "--columns"], &["{a;b}|{c}"], &[], tsv.as_bytes())), ["1;2|3", "4|;"]);
}

/// The name of a ConfigMap says which script it must have, because one that exists is kept: an earlier version may have made
/// it, with a script that does not know parts of paths. What that script does know has the names of that version.
#[test]
fn lists_of_earlier_versions_go_on_and_are_not_used_for_new_placeholders() {
    let directory = directory();
    let here = directory.path();
    fs::write(here.join("list"), "a\nb\n").unwrap();
    let names = |word: &str, literal: &[&str]| -> [String; 2] {
        let objects = manifest(here, &[&["--name", "x", "--each", "list"], literal, &["--", "echo", word]].concat());
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
        [name(&objects[0]), name(&objects[1])]
    };
    for word in ["{}", "{1}", "{{}}", "{print $1}", "${HOME}"] {
        assert_eq!(names(word, &[]), ["x-nj42w8vh-0", "x"], "{word}");
    }
    for (word, literal) in [("{.}", &[][..]), ("{1/}", &[]), ("{#}", &[]), ("${1}", &[]), ("{}", &["--literal", "{}"])]
    {
        assert_ne!(names(word, literal)[0], "x-nj42w8vh-0", "{word}");
    }
}

#[test]
fn values_that_end_with_zeros_may_contain_anything_else() {
    let directory = directory();
    let here = directory.path();
    let values: [&[u8]; 6] =
        [b"line one\nline two", b"\n", b"", b"ends with breaks\n\n", b"not \xff\xfe UTF-8\n", b"last"];
    let input = values.join(&0);
    let tasks = run(here, &["--each", "-", "--null"], &["{}", "x{}"], &[], &input);
    let expected: Vec<Vec<Vec<u8>>> =
        values.iter().map(|value| vec![value.to_vec(), [&b"x"[..], value].concat()]).collect();
    assert_eq!(tasks, expected);
}

#[test]
fn files_and_values_are_lists_too() {
    let directory = directory();
    let here = directory.path();
    for name in ["b 2.csv", "a.csv", "c.txt"] {
        fs::write(here.join(name), "").unwrap();
    }
    assert_eq!(firsts(run(here, &["--each-glob", "*.csv"], &["{}"], &[], b"")), ["a.csv", "b 2.csv"]);
    assert_eq!(firsts(run(here, &[], &["{}"], &[":::", "x", "", "y z"], b"")), ["x", "", "y z"]);
    let both = firsts(run(here, &[], &["{1}-{2} ({})"], &[":::", "a", "b", ":::", "1", "2"], b""));
    assert_eq!(both, ["a-1 (a 1)", "a-2 (a 2)", "b-1 (b 1)", "b-2 (b 2)"]);
    fs::write(here.join("list"), "p\nq\n").unwrap();
    let mixed = firsts(run(here, &["--each", "list", "--each-glob", "*.csv"], &["{1} {2} {3}"], &[":::", "z"], b""));
    assert_eq!(mixed, ["p a.csv z", "p b 2.csv z", "q a.csv z", "q b 2.csv z"]);
    let zipped = firsts(run(here, &["--zip", "--each", "list", "--each-glob", "*.csv"], &["{1} {2}"], &[], b""));
    assert_eq!(zipped, ["p a.csv", "q b 2.csv"]);
}

#[test]
fn columns_have_their_names() {
    let directory = directory();
    let here = directory.path();
    let csv = "\u{feff}file name,size,note\r\na.txt,1,\"one, two\"\r\n\"b \"\"2\"\".txt\",,\"line\r\nbreak\"\r\n\r\nlast,3,{size}";
    let expected = [
        ["a.txt", "1", "one, two", "a.txt,1,one, two", "1"],
        ["b \"2\".txt", "", "line\r\nbreak", "b \"2\".txt,,line\r\nbreak", ""],
        ["last", "3", "{size}", "last,3,{size}", "3"],
    ];
    let words = ["{file name}", "{size}", "{note}", "{}", "{2}"];
    let own = |tasks: Vec<Vec<Vec<u8>>>| -> Vec<Vec<String>> {
        let text = |value: Vec<u8>| String::from_utf8(value).unwrap();
        tasks.into_iter().map(|arguments| arguments.into_iter().map(text).collect()).collect()
    };
    fs::write(here.join("list.csv"), csv).unwrap();
    assert_eq!(own(run(here, &["--each", "list.csv", "--columns"], &words, &[], b"")), expected);
    assert_eq!(own(run(here, &["--each", "-", "--columns"], &words, &[], csv.as_bytes())), expected);
    let tsv = "name\tsize\nsays \"hi\"\t1\n\t\n";
    let tasks = run(here, &["--each", "-", "--columns"], &["{name}", "{size}"], &[], tsv.as_bytes());
    assert_eq!(own(tasks), [["says \"hi\"", "1"], ["", ""]]);
    let script = "echo \"$TALLY_COLUMN_file_name|$TALLY_COLUMN_size|$TALLY_COLUMN_2\" >> all";
    let said = ends(here, &["--each", "list.csv", "--columns", "-p", "1", "--", "sh", "-c", script, "sh", ":::", "x"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let all = fs::read_to_string(here.join("all")).unwrap();
    assert_eq!(all, "a.txt|1|\nb \"2\".txt||\nlast|3|\n", "the value after the columns is the fourth");
}

#[test]
fn a_list_without_lines_is_complete_at_once() {
    let directory = directory();
    for (flags, input) in [(&["--each", "-"][..], ""), (&["--each", "-", "--columns"], "a,b\n")] {
        let arguments = [flags, &["--name", "none", "--", "false", "{}"]].concat();
        let said = fed(directory.path(), &arguments, input.as_bytes());
        assert_eq!(said.code, Some(0), "{}", said.err);
        assert!(said.err.ends_with("; 0/0 succeeded\n"), "{}{}", said.out, said.err);
    }
}

#[test]
fn lists_that_cannot_be_used_are_explained() {
    let directory = directory();
    let here = directory.path();
    fs::write(here.join("uneven.csv"), "a,b\n1,2\n3\n").unwrap();
    fs::write(here.join("twice.csv"), "a b,a-b\n").unwrap();
    fs::write(here.join("zero"), b"a\0b\n").unwrap();
    fs::write(here.join("one"), "1\n").unwrap();
    fs::write(here.join("two"), "1\n2\n").unwrap();
    fs::write(here.join("long"), "x".repeat(200_000)).unwrap();
    fs::write(here.join("empty.csv"), "").unwrap();
    for (arguments, told) in [
        (&["--each", "no-such-file", "--", "true"][..], "--each no-such-file: No such file or directory"),
        (&["--each", ".", "--", "true"], "--each .: is a directory; --each takes a file"),
        (&["--each-glob", "*.none", "--", "true"], "--each-glob *.none: no file matches; put the pattern in quotes"),
        (&["--each-glob", "[", "--", "true"], "--each-glob [: "),
        (&["--each", "uneven.csv", "--columns", "--", "true"], "uneven.csv:3: 1 values, and the header has 2"),
        (
            &["--each", "twice.csv", "--columns", "--", "true"],
            "twice.csv:1: the columns \"a b\" and \"a-b\" both become",
        ),
        (&["--each", "empty.csv", "--columns", "--", "true"], "empty.csv is empty; with --columns"),
        (&["--each", "zero", "--", "true"], "zero:1: a value cannot contain a NUL byte; if the values end with NUL"),
        (&["--each", "long", "--", "true"], "line 1 of the list has 200001 bytes; a command takes at most"),
        (&["--zip", "--each", "one", "--each", "two", "--", "true"], "one has 1 and another has more"),
        (&["--zip", "--each", "one", "--", "true"], "--zip applies to several lists"),
        (&["--zip", "--", "true"], "--zip applies to a list"),
        (&["--each", "-", "--each", "-", "--", "true"], "standard input can be read only once"),
        (&["--each", "-", "--stdin", "--", "true"], "--stdin"),
        (&["--stdin", "--", "cat", ":::", "a"], "--stdin applies to a single task"),
        (&["--stdin", "--backoff-limit", "3", "--", "cat"], "cannot be used with"),
        (&["-n", "3", "--each", "one", "--", "true"], "--completions cannot be combined with --each"),
        (&["--each", "one"], "--each applies only to a command; put the command after --"),
        (&["--each", "one", "-f", "x.yaml"], "--each applies only to a command; with -f FILE"),
        (&["--columns", "--", "true"], "--each"),
        (&["--null", "--columns", "--each", "one", "--", "true"], "cannot be used with"),
        (&["--", ":::", "a"], "there is no command before :::"),
        (&["--each", "one", "--", "no-such-program-here"], "no-such-program-here: no such program in PATH"),
        (&["--output", "yaml", "--", "true"], "--output yaml applies only to --dry-run"),
        (&["--image", "x", "--", "true"], "--dry-run"),
    ] {
        let said = ends(here, arguments);
        assert_eq!(said.code, Some(2), "{arguments:?}: {}{}", said.out, said.err);
        assert!(said.err.contains(told), "{arguments:?}: {:?} is not in {}", told, said.err);
    }
}

fn manifest(here: &Path, arguments: &[&str]) -> Vec<Value> {
    let said = ends(here, &[&["--dry-run", "-o", "json"][..], arguments].concat());
    assert_eq!(said.code, Some(0), "{}", said.err);
    let mut list: Value = serde_json::from_str(&said.out).unwrap();
    match list["items"].take() {
        Value::Array(items) => items,
        _ => vec![list],
    }
}

/// The manifest is what would have been run: the same tasks get the same words, also if the script is not the one that
/// the node knows, and has to be run.
#[test]
fn the_manifest_runs_as_the_command_does() {
    let directory = directory();
    let here = directory.path();
    fs::create_dir(here.join("out")).unwrap();
    let env = format!("OUT={}", text(&here.join("out")));
    fs::write(here.join("list.csv"), "a,b\n1,\"$(x) 'y' \\\"\n{a},\u{e4}\n").unwrap();
    let command = [
        "--name",
        "m",
        "--env",
        &env,
        "--each",
        "list.csv",
        "--columns",
        "--",
        "sh",
        "-c",
        RECORD,
        "sh",
        "{a}|{b}",
        "{b/.} {#} ${1} {{.}} {a//}",
    ];
    assert_eq!(ends(here, &command).code, Some(0));
    let expected = recorded(here);
    assert_eq!(expected.len(), 2);
    let yaml = ends(here, &[&["--dry-run"][..], &command].concat());
    assert_eq!(yaml.code, Some(0), "{}", yaml.err);
    assert!(yaml.out.contains("\nkind: ConfigMap\n") && yaml.out.contains("\n---\n"), "{}", yaml.out);
    for edited in [false, true] {
        fs::remove_dir_all(here.join("out")).unwrap();
        fs::create_dir(here.join("out")).unwrap();
        let manifest = match edited {
            true => yaml.out.replace("    exec \"$@\"\n", "    echo mine > \"$OUT\"/../edited; exec \"$@\"\n"),
            false => yaml.out.clone(),
        };
        assert_eq!(manifest != yaml.out, edited);
        let said = fed(here, &["-"], manifest.as_bytes());
        assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
        assert_eq!(recorded(here), expected, "edited: {edited}");
        assert_eq!(here.join("edited").exists(), edited, "a script that was edited is run");
    }
}

#[test]
fn a_manifest_for_a_cluster_has_nothing_of_this_machine() {
    let directory = directory();
    let here = directory.path();
    fs::write(here.join("list"), "a\n").unwrap();
    let objects = manifest(here, &["--each", "list", "--image", "busybox", "--env", "A=b", "--", "not-here", "{}"]);
    let container = &objects[1]["spec"]["template"]["spec"]["containers"][0];
    assert_eq!((&objects[0]["kind"], &objects[0]["immutable"]), (&"ConfigMap".into(), &true.into()));
    assert_eq!((&container["image"], &container["workingDir"]), (&"busybox".into(), &Value::Null));
    assert_eq!(container["env"], serde_json::json!([{"name": "A", "value": "b"}]));
    let plain = manifest(here, &["--name", "x", "--", "true"]);
    assert_eq!((plain.len(), &plain[0]["metadata"]["name"]), (1, &"x".into()));
}

#[test]
fn a_million_lines_are_divided() {
    let directory = directory();
    let here = directory.path();
    let lines: String = (0..1_000_000).map(|line| format!("input/file-{line:07}.dat\n")).collect();
    fs::write(here.join("list"), &lines).unwrap();
    let objects = manifest(here, &["--each", "list", "--name", "big", "--", "true", "{}"]);
    let (mut jobs, mut all) = (0, String::new());
    for object in &objects {
        if object["kind"] == "ConfigMap" {
            let data = object["data"].as_object().unwrap();
            let bytes: usize = data.values().map(|value| value.as_str().unwrap().len()).sum();
            assert!(bytes <= 1024 * 1024, "the API's limit for a ConfigMap");
            data.iter().filter(|(key, _)| *key != "run").for_each(|(_, text)| all += text.as_str().unwrap());
            continue;
        }
        assert_eq!(object["metadata"]["name"], format!("big-{jobs}"));
        assert_eq!(object["metadata"]["annotations"]["tally.dev/part-of"], "big");
        let first = (jobs * 100_000).to_string();
        assert_eq!(object["spec"]["template"]["metadata"]["annotations"]["tally.dev/first-index"], first.as_str());
        assert_eq!(object["spec"]["completions"], 100_000);
        jobs += 1;
    }
    assert_eq!(jobs, 10);
    assert!(all == lines, "every line, in order");
}

/// Long lines, so that few of them need several Jobs: 8 MiB fit into one.
const LONG: usize = 100_000;
const LINES: usize = 90;

fn long_list(here: &Path) {
    let lines: String = (0..LINES).map(|line| format!("{line:02}{}\n", "x".repeat(LONG))).collect();
    fs::write(here.join("list"), lines).unwrap();
}

#[test]
fn a_list_of_several_jobs_is_shown_as_one() {
    let directory = directory();
    let here = directory.path();
    long_list(here);
    let script = "[ \"$TALLY_INDEX\" = \"$((1${TALLY_LINE%%x*} - 100))\" ] || exit 9; echo $TALLY_INDEX >> done; \
                  [ $TALLY_INDEX != 3 ] && [ $TALLY_INDEX != 87 ]";
    let command = ["--each", "list", "--name", "long", "-p", "4", "--", "sh", "-c", script];
    let plain = ends(here, &command);
    assert_eq!(plain.code, Some(1), "{}{}", plain.out, plain.err);
    let line = |index: u32| format!("long: failed index {index}: {index:02}{}~\n", "x".repeat(97));
    let counts = format!("{}/{LINES} succeeded, 2 failed\nlong: failed indexes 3,87\n", LINES - 2);
    let expected = format!("{counts}{}{}", line(3), line(87));
    assert!(plain.err.contains("\nlong: Failed in ") && plain.err.ends_with(&expected), "{}", plain.err);
    assert!(plain.err.contains("long: index 87: exit code 1, Pod long-1-"), "{}", plain.err);
    let mut done: Vec<usize> =
        fs::read_to_string(here.join("done")).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    done.sort_unstable();
    assert_eq!(done, (0..LINES).collect::<Vec<_>>());
    let json = ends(here, &[&["--output", "json"][..], &command].concat());
    let summaries: Vec<Value> = events(&json.out).into_iter().filter(|event| event["event"] == "summary").collect();
    assert_eq!(summaries.len(), 1, "{}", json.out);
    assert_eq!((&summaries[0]["job"], &summaries[0]["failedIndexes"]), (&"long".into(), &"3,87".into()));
}

/// RETRY-5.
#[test]
fn what_is_left_of_a_list_of_several_jobs_is_run_as_one() {
    let directory = directory();
    let here = directory.path();
    long_list(here);
    let data = here.join("data");
    // The first Job of the list halts, and the others are not run.
    let script = "if [ $TALLY_INDEX = 3 ] && [ ! -e good ]; then exit 1; fi; echo $TALLY_INDEX >> done; \
                  [ $TALLY_INDEX != 87 ] || [ -e better ]";
    let flags = ["--data-dir", text(&data), "--each", "list", "--name", "long", "-p", "1", "--halt", "now,fail=1"];
    let halted = ends(here, &[&flags[..], &["--", "sh", "-c", script]].concat());
    assert_eq!(halted.code, Some(1), "{}{}", halted.out, halted.err);
    let not_run = format!("long: not run to the end: {} of {LINES}, indexes 4-{}\n", LINES - 4, LINES - 1);
    assert!(halted.err.contains(&not_run), "{}", halted.err);
    assert!(halted.err.contains("--resume long` runs all of them"), "{}", halted.err);
    fs::write(here.join("good"), "").unwrap();
    let resume = ["--data-dir", text(&data), "--resume"];
    let second = ends(here, &resume);
    assert_eq!(second.code, Some(1), "{}{}", second.out, second.err);
    let told =
        format!("Job \"long-retry-1\" runs the indexes of Job \"long\" that have not succeeded: 3-{}", LINES - 1);
    assert!(second.err.contains(&told), "{}", second.err);
    assert!(second.err.contains("\nlong-retry-1: failed indexes 87\n"), "{}", second.err);
    assert!(second.err.contains("long-retry-1: failed index 87: 87xxx"), "{}", second.err);
    fs::write(here.join("better"), "").unwrap();
    // Where 87 ended its Job before the last lines, they are run as well.
    let third = ends(here, &resume);
    assert_eq!(third.code, Some(0), "{}{}", third.out, third.err);
    assert!(third.err.contains(&format!("all {LINES} indexes of Job \"long\" have succeeded")), "{}", third.err);
    let mut done: Vec<usize> =
        fs::read_to_string(here.join("done")).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    done.sort_unstable();
    let at = done.iter().position(|index| *index == 87).unwrap();
    assert_eq!(done.remove(at), done[at], "87 failed once");
    assert_eq!(done, (0..LINES).collect::<Vec<_>>());
    let left = ends(here, &resume);
    assert!(left.code == Some(0) && left.err.contains("nothing is left to run"), "{}", left.err);
}

#[test]
fn a_job_that_fails_ends_the_others_of_its_list() {
    let directory = directory();
    let here = directory.path();
    long_list(here);
    let data = here.join("data");
    let command = [
        "--data-dir",
        text(&data),
        "--each",
        "list",
        "--name",
        "long",
        "--backoff-limit",
        "0",
        "--",
        "sh",
        "-c",
        "false",
        "{}",
    ];
    let failed = ends(here, &command);
    assert_eq!(failed.code, Some(1), "{}{}", failed.out, failed.err);
    assert!(failed.err.contains("\nlong: Failed in ") && failed.err.contains("BackoffLimitExceeded"), "{}", failed.err);
    let again = ends(here, &command);
    assert_eq!(again.code, Some(1), "{}{}", again.out, again.err);
    assert!(again.err.contains("\nlong: had Failed before this run"), "{}", again.err);
    assert_eq!(again.err.matches("is already finished; use --again").count(), 1, "{}", again.err);
}

/// The record has every line exactly once, however often the run is killed.
#[test]
fn a_killed_run_goes_on_with_the_lines_that_are_left() {
    let directory = directory();
    let here = directory.path();
    long_list(here);
    let data = here.join("data");
    let script = "echo $TALLY_INDEX >> begun; sleep 0.05; echo $TALLY_INDEX >> done";
    let command = [
        "--output",
        "json",
        "--data-dir",
        text(&data),
        "--each",
        "list",
        "--name",
        "long",
        "-p",
        "4",
        "--",
        "sh",
        "-c",
        script,
        "sh",
        "{}",
    ];
    let count = |file: &str| fs::read_to_string(here.join(file)).unwrap_or_default().lines().count();
    for kill in 1..=3 {
        let out = File::create(here.join("out")).unwrap();
        let child = Running(tally(here, &command).stdout(out).stderr(Stdio::null()).spawn().unwrap());
        eventually("some are done", || count("done") >= 25 * kill);
        child.kill();
    }
    let last = ends(here, &command);
    assert_eq!(last.code, Some(0), "{}{}", last.out, last.err);
    assert_eq!(last.err.matches("resumes from the state in").count(), 1, "{}", last.err);
    let summary = events(&last.out).pop().unwrap();
    assert_eq!((&summary["succeeded"], &summary["completions"]), (&LINES.into(), &LINES.into()));
    let mut done: Vec<usize> =
        fs::read_to_string(here.join("done")).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    done.sort_unstable();
    let most = LINES + 3 * 4;
    assert!(done.len() <= most, "{} runs: at most those that were running at a kill are repeated", done.len());
    done.dedup();
    assert_eq!(done, (0..LINES).collect::<Vec<_>>());
    let finished = ends(here, &command);
    assert_eq!(events(&finished.out).pop().unwrap()["ranBefore"], true, "{}", finished.out);
    fs::write(here.join("list"), "another list\n").unwrap();
    let other = ends(here, &[&command[..6], &["--name", "long-0", "--", "true", "{}"]].concat());
    assert_eq!(other.code, Some(2), "{}", other.out);
    assert!(other.err.contains("already exists") && other.err.contains("differs"), "{}", other.err);
}

#[test]
fn one_task_can_read_standard_input() {
    let directory = directory();
    let here = directory.path();
    let input: Vec<u8> = (0..5_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let said = fed(here, &["--stdin", "--", "sh", "-c", "cat > copy"], &input);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(fs::read(here.join("copy")).unwrap() == input);
    // A file is read from where it stands.
    fs::write(here.join("lines"), "one\ntwo\n").unwrap();
    let shell = format!("read line; exec '{}' run --stdin -- sh -c 'cat > rest'", env!("CARGO_BIN_EXE_tally"));
    let file = File::open(here.join("lines")).unwrap();
    let status = Command::new("sh").args(["-c", &shell]).current_dir(here).stdin(file).output().unwrap().status;
    assert!(status.success());
    assert_eq!(fs::read_to_string(here.join("rest")).unwrap(), "two\n");
    let failed = fed(here, &["--stdin", "--", "sh", "-c", "cat; exit 3"], b"x");
    assert_eq!((failed.code, &*failed.out), (Some(1), "x"), "{}", failed.err);
    assert!(failed.err.contains("0/1 succeeded, 1 failed"), "{}", failed.err);
    let without = fed(here, &["--", "sh", "-c", "[ -z \"$(cat)\" ]"], b"x");
    assert_eq!(without.code, Some(0), "without --stdin it is empty: {}", without.err);
}
