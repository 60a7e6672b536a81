//! A command with a row of a list: this node and the script that runs on any cluster make the same of it.

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use serde_json::{Value, json};
use tally_node::each::{self, EARLIER_SCRIPTS, ListRow, MOUNT, RUN, RowList, RowSource, SCRIPT};
use tally_node::env::{Environment, environment};
use tally_node::options::NodeOptions;
use tally_node::pod::Pod;
use tally_node::sources::Sources;

/// The first row of the Job in the whole list.
const FIRST: usize = 1000;

/// A list in two ConfigMaps, the second from `second`.
struct TestList {
    join: &'static str,
    names: Vec<String>,
    rows: Vec<Vec<Vec<u8>>>,
    second: usize,
    script: &'static str,
}

fn list(join: &'static str, names: &[&str], rows: &[&[&[u8]]]) -> TestList {
    let rows: Vec<Vec<Vec<u8>>> = rows.iter().map(|row| row.iter().map(|value| value.to_vec()).collect()).collect();
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    TestList { join, names, second: rows.len() / 2, rows, script: SCRIPT }
}

impl TestList {
    /// The text of each ConfigMap, with its key.
    fn files(&self) -> [(String, String); 2] {
        [(0, &self.rows[..self.second]), (self.second, &self.rows[self.second..])].map(|(first, rows)| {
            let mut text = String::new();
            rows.iter().for_each(|row| each::write_row(row.iter().map(Vec::as_slice), &mut text));
            (first.to_string(), text)
        })
    }

    fn maps(&self) -> [Value; 2] {
        let [(zero, first), (key, second)] = self.files();
        [
            json!({"immutable": true, "data": {zero: first, RUN: self.script}}),
            json!({"immutable": true, "data": {key: second}}),
        ]
    }

    fn pod(&self, index: usize, words: &[&str]) -> Pod {
        let source = |name: &str, keys: &[&str]| {
            let items: Vec<Value> = keys.iter().map(|key| json!({"key": key, "path": key})).collect();
            json!({"configMap": {"name": name, "items": items}})
        };
        let second = self.second.to_string();
        let sources = [source("one", &["0", RUN]), source("two", &[&second])];
        let annotations = json!({"batch.kubernetes.io/job-completion-index": index.to_string()});
        let field =
            json!({"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}});
        let pod = json!({
            "metadata": {"name": "p", "uid": "u", "resourceVersion": "1", "annotations": annotations},
            "spec": {
                "containers": [{
                    "name": "main", "command": each::command(FIRST, self.join, &self.names), "args": words,
                    "env": [{"name": "JOB_COMPLETION_INDEX", "valueFrom": field}, {"name": "MINE", "value": "my own"}],
                    "volumeMounts": [{"name": "v", "mountPath": MOUNT}],
                }],
                "volumes": [{"name": "v", "projected": {"sources": sources}}],
            },
        });
        Pod::read(&pod.to_string().into()).unwrap()
    }

    /// What this node would execute.
    fn native(&self, index: usize, words: &[&str]) -> (Vec<String>, Vec<(String, String)>) {
        let pod = self.pod(index, words);
        let source = RowSource::of(&pod).expect("a Pod with a row");
        assert_eq!(
            (source.script.as_str(), source.list.as_str()),
            ("one", if index < self.second { "one" } else { "two" })
        );
        let read = |map: &Value| Arc::new(RowList::read(map.to_string().as_bytes()).expect("a list"));
        let [one, two] = self.maps().each_ref().map(read);
        let row = ListRow::new(&source, &one, if index < self.second { one.clone() } else { two }).expect("a row");
        let mut env = env(&pod);
        let argv = row.run(&pod.spec.containers[0], &mut env);
        (argv, env.into_variables())
    }
}

fn env(pod: &Pod) -> Environment {
    environment(pod, &pod.spec.containers[0], &NodeOptions::new("n"), &Sources::default()).unwrap()
}

/// What a command gets: its arguments, and the variables whose names are interesting.
fn received(mut command: Command) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (arguments, variables) =
        output.stdout.split_at(output.stdout.windows(3).position(|at| at == b"\0=\0").unwrap());
    let split = |text: &[u8]| text.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect::<Vec<_>>();
    let mut variables = split(&variables[3..]);
    variables.retain(|text| [&b"TALLY_"[..], b"MINE=", b"JOB_", b"tally_"].iter().any(|name| text.starts_with(name)));
    variables.sort();
    (split(arguments), variables)
}

/// Prints its arguments, then its environment.
const PRINT: &str = "printf '%s\\0' \"$@\"; printf '=\\0'; exec env -0";

#[test]
fn the_node_does_what_the_script_does() {
    let paths: Vec<[&[u8]; 1]> = PATHS.iter().map(|[path, ..]| [path.as_bytes()]).collect();
    let lists = [
        list(" ", &[], &paths.iter().map(|row| &row[..]).collect::<Vec<_>>()),
        list(
            " ",
            &[],
            &[
                &[b"plain"],
                &[b""],
                &[b"  two  spaces  "],
                &[b"a 'single' \"double\" `tick` $(touch x) ${HOME} $HOME \\ \\\\ \\n \\0101 \\c rest"],
                &[b"*"],
                &[b"-n"],
                &[b"line one\nline two\n"],
                &[b"\n\n"],
                &[b"tab\there\r"],
                &[b"{} {1} {2} {name} {"],
                &["\u{e4}\u{20ac}\u{1f600}".as_bytes()],
                &[b"\x01\x1b[31m\x7f"],
                &[b"not \xff\xfe UTF-8 \xe2\x82"],
                &[b"\xe2\x82."],
                &[b"%s %d %%"],
                &[b"!"],
                &[b"("],
                &[b"a/b.c/d.tar.gz"],
                &[b"a.b/c"],
                &[b"dir/.x"],
                &[b"//a//b//"],
                &[b"///"],
                &[b"a/b\n"],
                &[b"a\n/b.c\n"],
                &[b"a/\xff.\xfe/"],
                &[b"\xff/\xe2\x82.\xff"],
                &[b"a&b|c\\/d\\.e"],
                &[b"[a-z]*/?.[!x]"],
            ],
        ),
        list(
            ",",
            &["name", "size", "2"],
            &[
                &[b"a", b"1", b"x"],
                &[b"", b"", b""],
                &[b"{size}", b"{name}", b"{}"],
                &[b"with\ttab", b"with\nbreak\n", b" "],
                &[b"\xff", b"1", b"\\"],
                &[b"a/b.c", b"d.e/", b".f"],
            ],
        ),
        list(" ", &["1", "2"], &[&[b"left", b"right"], &[b"", b"only"], &[b"a/b.c", b"/d.e"]]),
    ];
    let words = [
        "{}",
        "a{}b{}c",
        "{1}",
        "{2}",
        "{3}",
        "{4}",
        "{name}-{size}.txt",
        "{{}}",
        "}{",
        "{",
        "{print $1}",
        "{}{",
        "",
        "--x={}",
        "{0}",
        "{01}",
        "{!}",
        "{ }",
        "'\"$(x)\\",
        "{.}",
        "{/}",
        "{//}",
        "{/.}",
        "{#}",
        "<{.}|{/}|{//}|{/.}|{#}>",
        "{1.}",
        "{2/}",
        "{1//}",
        "{2/.}",
        "{name.}",
        "{name/}",
        "{name//}",
        "{size/.}",
        "{no.}",
        "{3.}",
        "{\\{}",
        "{\\{}1}{\\{}}",
        "{{\\{}.}}",
        "{\\}",
        "{..}",
        "{./}",
        "{///}",
        "{1//.}",
        "{##}",
        "{1#}",
        "{*}",
        "{?}",
        "{[1]}",
    ];
    let root = tempfile::tempdir().unwrap();
    for (number, list) in lists.iter().enumerate() {
        let dir = root.path().join(number.to_string());
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join(RUN), SCRIPT).unwrap();
        list.files().iter().for_each(|(key, text)| fs::write(dir.join(key), text).unwrap());
        let command: Vec<&str> = ["sh", "-c", PRINT, "sh"].into_iter().chain(words).collect();
        for index in 0..list.rows.len() {
            let (argv, variables) = list.native(index, &command);
            let mut native = Command::new(&argv[0]);
            native.args(&argv[1..]).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
            native.envs(variables);
            let native = received(native);
            let whole = list.rows[index].join(list.join.as_bytes());
            assert_eq!(native.0[0], whole, "the line itself");
            for (shell, locale) in [("dash", "C"), ("bash", "C"), ("bash", "C.UTF-8"), ("sh", "C.UTF-8")] {
                if !Path::new("/bin").join(shell).exists() {
                    continue;
                }
                let mut script = Command::new(shell);
                script.arg(dir.join(RUN)).args(&each::command(FIRST, list.join, &list.names)[2..]).args(&command);
                script.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("LC_ALL", locale);
                script.env("JOB_COMPLETION_INDEX", index.to_string()).env("MINE", "my own");
                let row: Vec<_> =
                    list.rows[index].iter().map(|value| std::ffi::OsString::from_vec(value.clone())).collect();
                assert_eq!(received(script), native, "row {row:?} in {shell} with {locale}");
            }
        }
    }
}

/// What GNU parallel 20221122 makes of these: the value, then `{.}`, `{/}`, `{//}` and `{/.}`.
const PATHS: &[[&str; 5]] = &[
    ["a.txt", "a", "a.txt", ".", "a"],
    ["a", "a", "a", ".", "a"],
    ["", "", "", ".", ""],
    [".bashrc", "", ".bashrc", ".", ""],
    [".a.b", ".a", ".a.b", ".", ".a"],
    ["a.b/c", "a.b/c", "c", "a.b", "c"],
    ["dir/.x", "dir/", ".x", "dir", ""],
    ["dir/.x.y", "dir/.x", ".x.y", "dir", ".x"],
    ["a/b/c.tar.gz", "a/b/c.tar", "c.tar.gz", "a/b", "c.tar"],
    ["a.", "a", "a.", ".", "a"],
    ["a..b", "a.", "a..b", ".", "a."],
    ["a b.c d", "a b", "a b.c d", ".", "a b"],
    ["-x.y", "-x", "-x.y", ".", "-x"],
    [".", "", ".", ".", ""],
    ["..", ".", "..", ".", "."],
    ["../a", "../a", "a", "..", "a"],
    ["./a.b", "./a", "a.b", ".", "a"],
    ["a/..", "a/.", "..", "a", "."],
    ["/", "/", "", "/", ""],
    ["///", "///", "", "/", ""],
    ["/a.b", "/a", "a.b", "/", "a"],
    ["//a", "//a", "a", "/", "a"],
    ["//a/b", "//a/b", "b", "//a", "b"],
    ["a/", "a/", "", ".", ""],
    ["a.b/", "a.b/", "", ".", ""],
    ["/a/", "/a/", "", "/", ""],
    ["a/b//c/", "a/b//c/", "", "a/b", ""],
    ["a//b.c", "a//b", "b.c", "a", "b"],
    ["\u{e4}/\u{20ac}.\u{1f600}", "\u{e4}/\u{20ac}", "\u{20ac}.\u{1f600}", "\u{e4}", "\u{20ac}"],
];

#[test]
fn parts_of_paths_are_those_of_gnu_parallel() {
    let rows: Vec<[&[u8]; 1]> = PATHS.iter().map(|[path, ..]| [path.as_bytes()]).collect();
    let list = list(" ", &[], &rows.iter().map(|row| &row[..]).collect::<Vec<_>>());
    let words = ["{}", "{.}", "{/}", "{//}", "{/.}", "{#}"];
    for (index, expected) in PATHS.iter().enumerate() {
        let number = (FIRST + index + 1).to_string();
        let expected: Vec<&str> = expected.iter().copied().chain([number.as_str()]).collect();
        assert_eq!(list.native(index, &words).0, expected);
    }
    // Of several values each part, with what is between the values of a line.
    let several = self::list(",", &["x", "y"], &[&[b"a/b.c", b"d.e"], &[b"", b"/"]]);
    let words = ["{.}", "{/}", "{//}", "{/.}", "{x.}", "{2//}"];
    assert_eq!(several.native(0, &words).0, ["a/b,d", "b.c,d.e", "a,.", "b,d", "a/b", "."]);
    assert_eq!(several.native(1, &words).0, [",/", ",", ".,/", ",", "", "/"]);
}

/// A user who may not mount anything goes on with the list of an earlier version: its script is run with the row.
#[test]
fn the_script_of_an_earlier_version_needs_no_mount_and_means_what_it_meant() {
    let rows: &[&[&[u8]]] = &[&[b"a/b.c", b"two words"], &[b"it's {1}", b"not \xff UTF-8"], &[b"line\n", b""]];
    let command = ["sh", "-c", PRINT, "sh", "{} {1}", "-{2}-", "{x}{y}", "{.}", "{1/}", "{#}", "{3}", "{\\{}", "${x}"];
    for script in EARLIER_SCRIPTS {
        let list = TestList { script, ..list(",", &["x", "y"], rows) };
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(RUN), script).unwrap();
        list.files().iter().for_each(|(key, text)| fs::write(dir.path().join(key), text).unwrap());
        for index in 0..rows.len() {
            let (argv, variables) = list.native(index, &command);
            assert!(!argv.iter().any(|word| word.starts_with(MOUNT)), "{argv:?}");
            let mut native = Command::new(&argv[0]);
            native.args(&argv[1..]).env_clear().env("PATH", std::env::var_os("PATH").unwrap()).envs(variables);
            let mut mounted = Command::new("sh");
            mounted.arg(dir.path().join(RUN)).args(&each::command(FIRST, list.join, &list.names)[2..]).args(command);
            mounted.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
            mounted.env("JOB_COMPLETION_INDEX", index.to_string()).env("MINE", "my own");
            assert_eq!(received(native), received(mounted), "row {index}");
        }
        assert_eq!(received_words(&list, 0, &["{.}", "{1/}", "{#}", "{2}"]), ["{.}", "{1/}", "{#}", "two words"]);
    }
}

/// What a command gets of the row, as text.
fn received_words(list: &TestList, index: usize, words: &[&str]) -> Vec<String> {
    let command: Vec<&str> = ["sh", "-c", PRINT, "sh"].into_iter().chain(words.iter().copied()).collect();
    let (argv, variables) = list.native(index, &command);
    let mut native = Command::new(&argv[0]);
    native.args(&argv[1..]).env_clear().env("PATH", std::env::var_os("PATH").unwrap()).envs(variables);
    received(native).0.into_iter().map(|word| String::from_utf8(word).unwrap()).collect()
}

#[test]
fn a_row_that_does_not_exist_is_an_error() {
    let list = list(" ", &[], &[&[b"a"], &[b"b"]]);
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(RUN), SCRIPT).unwrap();
    list.files().iter().for_each(|(key, text)| fs::write(dir.path().join(key), text).unwrap());
    let mut script = Command::new("sh");
    script.arg(dir.path().join(RUN)).args(&each::command(0, " ", &[])[2..]).args(["echo", "{}"]);
    let output = script.env("JOB_COMPLETION_INDEX", "2").output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(125), &b""[..]));
    assert!(String::from_utf8_lossy(&output.stderr).contains("the list has no row 2"));
    let pod = list.pod(2, &["echo"]);
    let read = |map: &Value| Arc::new(RowList::read(map.to_string().as_bytes()).unwrap());
    let [one, two] = list.maps().each_ref().map(read);
    assert!(ListRow::new(&RowSource::of(&pod).unwrap(), &one, two).is_none());
}

#[test]
fn any_other_script_is_run_as_it_is_written() {
    let list = list(" ", &[], &[&[b"a"], &[b"b"]]);
    let pod = list.pod(0, &["echo"]);
    let source = RowSource::of(&pod).unwrap();
    let read = |map: &Value| RowList::read(map.to_string().as_bytes()).map(Arc::new);
    let [mut one, _] = list.maps();
    assert!(ListRow::new(&source, &read(&one).unwrap(), read(&one).unwrap()).is_some());
    one["data"][RUN] = format!("{SCRIPT}# edited\n").into();
    let edited = read(&one).unwrap();
    assert!(ListRow::new(&source, &edited, edited.clone()).is_none());
    one["immutable"] = false.into();
    assert!(read(&one).is_none(), "its rows may change");

    let changed = |change: &dyn Fn(&mut Pod)| {
        let mut pod = list.pod(0, &["echo"]);
        change(&mut pod);
        RowSource::of(&pod)
    };
    assert!(changed(&|_| {}).is_some());
    assert_eq!(changed(&|pod| pod.spec.containers[0].command[1] = "/other/run".to_owned()), None);
    assert_eq!(changed(&|pod| pod.spec.containers[0].command[0] = "bash".to_owned()), None);
    assert_eq!(changed(&|pod| pod.spec.init_containers = pod.spec.containers.clone()), None);
    assert_eq!(changed(&|pod| pod.metadata.annotations.clear()), None);
    assert_eq!(changed(&|pod| pod.spec.containers[0].volume_mounts.clear()), None);
}
