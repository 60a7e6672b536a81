//! patch, label, annotate, edit, replace, apply: changes of existing objects.

use serde_json::json;

use super::JOB_YAML;
use super::tool::{Kubectl, with_each_kubectl};

fn create(kubectl: &Kubectl) -> String {
    let file = kubectl.file("job.yaml", JOB_YAML);
    kubectl.ok(&format!("create -f {file}"));
    file
}

#[tokio::test]
async fn patches_of_all_three_types_do_what_they_do() {
    with_each_kubectl(async |kubectl| {
        create(&kubectl);
        let patch = |kind: &str, patch: &str| {
            let said = kubectl.run(&["patch", "job", "pi", kind, "-p", patch]);
            assert_eq!(said.code, Some(0), "{patch}: {said:?}");
            said.out
        };
        assert_eq!(patch("--type=merge", r#"{"spec":{"parallelism":1}}"#), "job.batch/pi patched\n");
        assert_eq!(patch("--type=merge", r#"{"spec":{"parallelism":1}}"#), "job.batch/pi patched (no change)\n");
        assert_eq!(
            patch("--type=json", r#"[{"op":"replace","path":"/spec/parallelism","value":5}]"#),
            "job.batch/pi patched\n"
        );
        assert_eq!(kubectl.ok("get job pi -o jsonpath={.spec.parallelism}"), "5");
        // Strategic: a merged list keeps the items that the patch does not name, after those that it names.
        let owner = r#"{"metadata":{"finalizers":["x.io/a"],"labels":{"b":"2"}}}"#;
        assert_eq!(patch("--type=strategic", owner), "job.batch/pi patched\n");
        patch("--type=strategic", r#"{"metadata":{"finalizers":["x.io/b"]}}"#);
        assert_eq!(kubectl.json("get job pi -o json")["metadata"]["finalizers"], json!(["x.io/b", "x.io/a"]));
        patch("--type=merge", r#"{"metadata":{"finalizers":["x.io/b"]}}"#);
        assert_eq!(
            kubectl.json("get job pi -o json")["metadata"]["finalizers"],
            json!(["x.io/b"]),
            "a merge replaces lists"
        );
        patch("--type=merge", r#"{"metadata":{"finalizers":null,"labels":{"b":null}}}"#);
        assert_eq!(kubectl.json("get job pi -o json")["metadata"]["labels"]["app"], "pi");

        let refused = kubectl.run(&["patch", "job", "pi", "--type=merge", "-p", r#"{"spec":{"completions":9}}"#]);
        assert_eq!(refused.code, Some(1));
        assert_eq!(refused.err, "The Job \"pi\" is invalid: spec.completions: Invalid value: 9: field is immutable\n");
        let tested = kubectl.run(&[
            "patch",
            "job",
            "pi",
            "--type=json",
            "-p",
            r#"[{"op":"test","path":"/spec/parallelism","value":9}]"#,
        ]);
        assert_eq!(tested.code, Some(1), "{tested:?}");
    })
    .await;
}

#[tokio::test]
async fn status_is_patched_and_read_through_its_subresource() {
    with_each_kubectl(async |kubectl| {
        if kubectl.minor < 24 {
            return;
        }
        create(&kubectl);
        let status = r#"{"status":{"active":2,"startTime":"2026-01-01T00:00:00Z"}}"#;
        let said = kubectl.run(&["patch", "job", "pi", "--subresource=status", "--type=merge", "-p", status]);
        assert_eq!(said.out, "job.batch/pi patched\n", "{said:?}");
        assert_eq!(kubectl.ok("get job pi --subresource=status -o jsonpath={.status.active}"), "2");
        let ignored = kubectl.run(&["patch", "job", "pi", "--type=merge", "-p", r#"{"status":{"active":7}}"#]);
        assert_eq!(ignored.out, "job.batch/pi patched (no change)\n", "{ignored:?}");
        let refused = r#"{"status":{"active":-1}}"#;
        let refused = kubectl.run(&["patch", "job", "pi", "--subresource=status", "--type=merge", "-p", refused]);
        assert!(
            refused.err.contains("status.active: Invalid value: -1: must be greater than or equal to 0"),
            "{refused:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn labels_and_annotations_are_set_overwritten_and_removed() {
    with_each_kubectl(async |kubectl| {
        create(&kubectl);
        assert_eq!(kubectl.ok("label job pi tier=batch"), "job.batch/pi labeled\n");
        let twice = kubectl.fails("label job pi tier=other");
        assert!(twice.contains("already has a value (batch), and --overwrite is false"), "{twice}");
        assert_eq!(kubectl.ok("label job pi tier=other --overwrite"), "job.batch/pi labeled\n");
        assert_eq!(kubectl.ok("get job pi -o jsonpath={.metadata.labels.tier}"), "other");
        kubectl.ok("label job pi tier-");
        assert_eq!(kubectl.ok("get job pi -o jsonpath={.metadata.labels.tier}"), "");
        assert_eq!(kubectl.ok("label jobs --all app=changed --overwrite"), "job.batch/pi labeled\n");
        let annotated = kubectl.ok("annotate job pi note=hello");
        assert!(["job.batch/pi annotated\n", "job.batch/pi annotate\n"].contains(&annotated.as_str()), "{annotated}");
        assert_eq!(kubectl.ok("get job pi -o jsonpath={.metadata.annotations.note}"), "hello");
        kubectl.ok("annotate job pi note-");
        assert_eq!(kubectl.ok("get job pi -o jsonpath={.metadata.annotations.note}"), "");
        let bad = kubectl.run(&["label", "job", "pi", "bad=not valid"]);
        assert_eq!(bad.code, Some(1), "{bad:?}");
        assert_eq!(kubectl.ok("get job pi -o jsonpath={.metadata.generation}"), "1", "metadata is not the spec");
    })
    .await;
}

#[tokio::test]
async fn an_editor_changes_what_is_there() {
    with_each_kubectl(async |kubectl| {
        create(&kubectl);
        let said = kubectl.edit("edit job pi", "sed -i 's/parallelism: 2/parallelism: 4/' \"$1\"");
        assert_eq!((said.code, said.out.as_str()), (Some(0), "job.batch/pi edited\n"), "{}", said.err);
        assert_eq!(kubectl.ok("get job pi -o jsonpath={.spec.parallelism}/{.metadata.generation}"), "4/2");
        let said = kubectl.edit("edit job pi", "true");
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!((said.out + &said.err).contains("no changes made"), "an untouched file changes nothing");
        // The editor opens again with the reason; if the file is unchanged the second time, kubectl gives up the edit.
        let said = kubectl.edit("edit job pi", "sed -i 's/^  completions: 3/  completions: 4/' \"$1\"");
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.err.contains("jobs.batch \"pi\" is invalid"), "{said:?}");
        assert_eq!(kubectl.ok("get job pi -o jsonpath={.spec.completions}"), "3");
    })
    .await;
}

#[tokio::test]
async fn replace_writes_the_whole_object() {
    with_each_kubectl(async |kubectl| {
        let file = create(&kubectl);
        let current = kubectl.ok("get job pi -o yaml");
        let file_of = |text: &str| kubectl.file("changed.yaml", text);
        let changed = file_of(&current.replace("parallelism: 2", "parallelism: 6"));
        assert_eq!(kubectl.ok(&format!("replace -f {changed}")), "job.batch/pi replaced\n");
        assert_eq!(kubectl.ok("get job pi -o jsonpath={.spec.parallelism}"), "6");
        // A version that was read before the change must not overwrite it.
        let stale = file_of(&current.replace("parallelism: 2", "parallelism: 7"));
        let conflict = kubectl.fails(&format!("replace -f {stale}"));
        assert!(conflict.contains("(Conflict)") && conflict.contains("the object has been modified"), "{conflict}");
        let uid = kubectl.ok("get job pi -o jsonpath={.metadata.uid}");
        let out = kubectl.ok(&format!("replace --force -f {file}"));
        assert!(out.ends_with("job.batch/pi replaced\n"), "{out}");
        assert_ne!(kubectl.ok("get job pi -o jsonpath={.metadata.uid}"), uid);
    })
    .await;
}

#[tokio::test]
async fn apply_on_the_client_creates_configures_and_leaves_alone() {
    with_each_kubectl(async |kubectl| {
        let apply = |text: &str| kubectl.ok(&format!("apply -f {}", kubectl.file("apply.yaml", text)));
        assert_eq!(apply(JOB_YAML), "job.batch/pi created\n");
        assert_eq!(apply(JOB_YAML), "job.batch/pi unchanged\n");
        assert_eq!(apply(&JOB_YAML.replace("parallelism: 2", "parallelism: 1")), "job.batch/pi configured\n");
        assert_eq!(kubectl.ok("get job pi -o jsonpath={.spec.parallelism}"), "1");
        apply(&JOB_YAML.replace("  labels:\n    app: pi\n", ""));
        assert_eq!(
            kubectl.ok("get job pi -o jsonpath={.metadata.labels.app}"),
            "",
            "what was applied before is taken back"
        );
    })
    .await;
}

#[tokio::test]
async fn a_dry_run_on_the_server_changes_nothing() {
    with_each_kubectl(async |kubectl| {
        let file = kubectl.file("job.yaml", JOB_YAML);
        let out = kubectl.ok(&format!("create --dry-run=server -f {file}"));
        assert_eq!(out, "job.batch/pi created (server dry run)\n");
        assert_eq!(kubectl.ok("get jobs -o name"), "");
    })
    .await;
}
