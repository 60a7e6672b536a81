//! create and get: all forms of input and output.

use serde_json::json;

use super::JOB_YAML;
use super::tool::{Kubectl, is_age, with_each_kubectl};

fn create(kubectl: &Kubectl, name: &str, text: &str) -> String {
    let file = kubectl.file(name, text);
    kubectl.ok(&format!("create -f {file}"))
}

#[tokio::test]
async fn objects_are_created_from_yaml_json_standard_input_and_flags() {
    with_each_kubectl(async |kubectl| {
        assert_eq!(create(&kubectl, "job.yaml", JOB_YAML), "job.batch/pi created\n");
        let two = json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}},
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "other"}, "data": {"a": "1"}},
        ]});
        assert_eq!(create(&kubectl, "two.json", &two.to_string()), "namespace/other created\nconfigmap/settings created\n");
        let said = kubectl.with_input("create -n other -f -", JOB_YAML);
        assert_eq!((said.code, said.out.as_str()), (Some(0), "job.batch/pi created\n"), "{}", said.err);
        assert_eq!(kubectl.ok("create job hello --image=busybox -- echo hi"), "job.batch/hello created\n");
        assert_eq!(
            kubectl.json("get job hello -o json")["spec"]["template"]["spec"]["containers"][0]["command"],
            json!(["echo", "hi"])
        );
        assert_eq!(kubectl.ok("create namespace third"), "namespace/third created\n");
        assert_eq!(kubectl.ok("create configmap c --from-literal=k=v"), "configmap/c created\n");
        assert_eq!(kubectl.ok("get configmap c -o jsonpath={.data.k}"), "v");
        assert_eq!(kubectl.ok("create secret generic s --from-literal=k=v"), "secret/s created\n");
        assert_eq!(kubectl.ok("get secret s -o jsonpath={.data.k}{.type}"), "dg==Opaque");
        assert_eq!(kubectl.ok("create serviceaccount robot"), "serviceaccount/robot created\n");
        // Before 1.21 kubectl requests batch/v1beta1.
        if kubectl.minor >= 21 {
            assert_eq!(kubectl.ok("create cronjob tick --image=busybox --schedule=@hourly"), "cronjob.batch/tick created\n");
            assert_eq!(kubectl.ok("create job tock --from=cronjob/tick"), "job.batch/tock created\n");
            assert_eq!(
                kubectl.ok("get job tock -o jsonpath={.metadata.ownerReferences[0].kind}/{.metadata.ownerReferences[0].name}"),
                "CronJob/tick"
            );
        }
        assert_eq!(kubectl.ok("run shell --image=busybox --restart=Never"), "pod/shell created\n");
    })
    .await;
}

#[tokio::test]
async fn what_is_refused_is_said_in_the_words_people_search_for() {
    with_each_kubectl(async |kubectl| {
        let file = kubectl.file("job.yaml", JOB_YAML);
        kubectl.ok(&format!("create -f {file}"));
        assert_eq!(
            kubectl.fails(&format!("create -f {file}")),
            format!(
                "Error from server (AlreadyExists): error when creating {file:?}: jobs.batch \"pi\" already exists\n"
            )
        );
        assert_eq!(kubectl.fails("get job nope"), "Error from server (NotFound): jobs.batch \"nope\" not found\n");
        assert_eq!(kubectl.fails("get frobs"), "error: the server doesn't have a resource type \"frobs\"\n");
        let bad = kubectl
            .file("bad.yaml", &JOB_YAML.replace("parallelism: 2", "parallelism: -1").replace("name: pi", "name: bad"));
        assert_eq!(
            kubectl.fails(&format!("create -f {bad}")),
            "The Job \"bad\" is invalid: spec.parallelism: Invalid value: -1: must be greater than or equal to 0\n"
        );
        let two = JOB_YAML
            .replace("parallelism: 2", "parallelism: -1")
            .replace("restartPolicy: Never", "restartPolicy: Always");
        let two = kubectl.file("two.yaml", &two.replace("name: pi", "name: bad"));
        assert_eq!(
            kubectl.fails(&format!("create -f {two}")),
            "The Job \"bad\" is invalid: \n\
             * spec.parallelism: Invalid value: -1: must be greater than or equal to 0\n\
             * spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"\n"
        );
        let lost = kubectl.fails("create job x --image=i -n nowhere");
        assert_eq!(lost, "error: failed to create job: namespaces \"nowhere\" not found\n");
        let scale = kubectl.fails("scale job pi --replicas=3");
        assert!(!scale.is_empty(), "Jobs do not scale");
        kubectl.ok("run p --image=i --restart=Never");
        assert_eq!(kubectl.ok("logs p"), "", "a Pod that has no node yet has printed nothing yet");
        let bound = r#"--overrides={"apiVersion":"v1","spec":{"nodeName":"n1"}}"#;
        kubectl.run(&["run", "lost", "--image=i", "--restart=Never", bound]);
        let logs = kubectl.fails("logs lost");
        assert!(logs.starts_with("Error from server"), "nobody there to ask: {logs}");
        assert_eq!(kubectl.ok("get jobs -o name"), "job.batch/pi\n", "nothing that was refused is there");
    })
    .await;
}

#[tokio::test]
async fn get_shows_jobs_as_table_yaml_json_names_and_paths() {
    with_each_kubectl(async |kubectl| {
        create(&kubectl, "job.yaml", JOB_YAML);
        let table = kubectl.table("get jobs");
        assert_eq!(table[0], ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"]);
        // Without a start there is no duration: an empty cell.
        assert_eq!(table[1][..3], ["pi", "Running", "0/3"]);
        assert!(is_age(&table[1][3]), "{table:?}");
        let wide = kubectl.table("get job pi -o wide");
        assert_eq!(wide[0], ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE", "CONTAINERS", "IMAGES", "SELECTOR"]);
        let uid = kubectl.ok("get job pi -o jsonpath={.metadata.uid}");
        assert_eq!(wide[1][4..], ["pi", "perl:5.34", &format!("batch.kubernetes.io/controller-uid={uid}")]);

        let yaml = kubectl.ok("get job pi -o yaml");
        assert!(yaml.starts_with("apiVersion: batch/v1\nkind: Job\nmetadata:\n"), "{yaml}");
        assert!(
            yaml.contains("\nspec:\n  backoffLimit: 6\n  completionMode: NonIndexed\n  completions: 3\n"),
            "{yaml}"
        );
        let job = kubectl.json("get job pi -o json");
        assert_eq!(job["spec"]["podReplacementPolicy"], "TerminatingOrFailed");
        assert_eq!(job["metadata"]["uid"], uid.as_str());
        let list = kubectl.json("get jobs -o json");
        assert_eq!((&list["kind"], &list["items"][0]["metadata"]["name"]), (&json!("List"), &json!("pi")));
        assert_eq!(kubectl.ok("get jobs -o name"), "job.batch/pi\n");
        assert_eq!(kubectl.ok("get jobs -o jsonpath={.items[*].spec.completions}"), "3");
        assert_eq!(
            kubectl.ok("get jobs -o custom-columns=JOB:.metadata.name,WANTED:.spec.completions"),
            "JOB   WANTED\npi    3\n"
        );
        assert_eq!(kubectl.ok("get jobs --no-headers -o custom-columns=:.metadata.name"), "pi\n");
        let labels = kubectl.table("get jobs --show-labels -L app");
        assert_eq!(labels[0].last().unwrap(), "LABELS");
        assert!(labels[1].last().unwrap().contains("app=pi"), "{labels:?}");
        assert!(kubectl.ok("get --raw /apis/batch/v1/namespaces/default/jobs/pi").contains(&uid));
        let none = kubectl.say("get jobs -n kube-system");
        assert_eq!((none.out.as_str(), none.err.as_str()), ("", "No resources found in kube-system namespace.\n"));
    })
    .await;
}

/// What upstream does not show of managedBy: `-o wide` names the controller of a Job, if it is not the usual one.
#[tokio::test]
async fn get_says_which_jobs_are_served_by_another_controller() {
    with_each_kubectl(async |kubectl| {
        create(&kubectl, "job.yaml", JOB_YAML);
        let usual = ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE", "CONTAINERS", "IMAGES", "SELECTOR"];
        let mut following = kubectl.follow("get jobs -o wide -w");
        assert_eq!(following.line(), usual.join(" "));
        assert!(following.line().starts_with("pi Running "));

        let theirs = JOB_YAML.replace("name: pi\n  labels", "name: theirs\n  labels");
        create(
            &kubectl,
            "theirs.yaml",
            &theirs.replace("spec:\n  completions", "spec:\n  managedBy: example.com/x\n  completions"),
        );
        assert_eq!(kubectl.table("get jobs")[0], usual[..5]);
        assert_eq!(kubectl.table("get job pi -o wide")[0], usual, "a list without such a Job is as ever");
        let wide = kubectl.table("get jobs -o wide");
        assert_eq!((&wide[0][..8], wide[0][8].as_str()), (&usual.map(str::to_owned)[..], "MANAGED-BY"));
        let managers: Vec<_> = wide[1..].iter().map(|row| (row[0].as_str(), row.last().unwrap().as_str())).collect();
        assert_eq!(managers, [("pi", "<none>"), ("theirs", "example.com/x")]);

        // An open watch shows the column when the first such Job appears, and keeps it.
        let heading = wide[0].join(" ");
        let is_of = |line: &str, name: &str, manager: &str| line.starts_with(name) && line.ends_with(manager);
        let (line, row) = (following.line(), following.line());
        assert!(line == heading && is_of(&row, "theirs ", " example.com/x"), "{line}\n{row}");
        kubectl.ok("label job pi a=b");
        let row = following.line();
        assert!(is_of(&row, "pi ", " <none>"), "{row}");

        // A new watch has the column from the beginning, whichever Job changes first.
        let mut following = kubectl.follow("get jobs -o wide -w");
        let lines = [following.line(), following.line(), following.line()];
        assert!(lines[0] == heading && is_of(&lines[2], "theirs ", " example.com/x"), "{lines:?}");
        kubectl.ok("label job pi a=c --overwrite");
        let row = following.line();
        assert!(is_of(&row, "pi ", " <none>"), "{row}");
    })
    .await;
}

#[tokio::test]
async fn get_shows_pods_nodes_namespaces_and_several_kinds_at_once() {
    with_each_kubectl(async |kubectl| {
        kubectl.ok("run p --image=busybox --restart=Never");
        create(&kubectl, "node.json", r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}}"#);
        assert_eq!(kubectl.table("get pods")[0], ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]);
        assert_eq!(kubectl.table("get pods")[1][..4], ["p", "0/1", "Pending", "0"]);
        let wide = ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "NOMINATED NODE", "READINESS GATES"];
        assert_eq!(kubectl.table("get pods -o wide")[0], wide);
        assert_eq!(kubectl.table("get nodes")[0], ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]);
        assert_eq!(kubectl.table("get nodes")[1][..3], ["n1", "Unknown", "<none>"]);
        let namespaces = kubectl.table("get namespaces");
        let names: Vec<_> = namespaces.iter().map(|row| (row[0].as_str(), row[1].as_str())).collect();
        assert_eq!(
            names,
            [
                ("NAME", "STATUS"),
                ("default", "Active"),
                ("kube-node-lease", "Active"),
                ("kube-public", "Active"),
                ("kube-system", "Active")
            ]
        );
        assert_eq!(kubectl.ok("get po/p node/n1 -o name"), "pod/p\nnode/n1\n", "short names and slashes");
        assert_eq!(kubectl.ok("get pods,services -o name"), "pod/p\nservice/kubernetes\n");
        let all = kubectl.ok("get all -o name");
        assert!(all.contains("pod/p\n") && all.contains("service/kubernetes\n"), "{all}");
    })
    .await;
}

#[tokio::test]
async fn selectors_choose_by_label_field_and_namespace() {
    with_each_kubectl(async |kubectl| {
        kubectl.ok("create namespace other");
        for (name, namespace) in [("a", "default"), ("b", "default"), ("c", "other")] {
            kubectl.ok(&format!("create job {name} --image=i -n {namespace}"));
            kubectl.ok(&format!("label job {name} -n {namespace} team={name}"));
        }
        assert_eq!(kubectl.ok("get jobs -l team=a -o name"), "job.batch/a\n");
        assert_eq!(kubectl.ok("get jobs -l team!=a -o name"), "job.batch/b\n");
        assert_eq!(
            kubectl.run(&["get", "jobs", "-l", "team in (a, b)", "-o", "name"]).out,
            "job.batch/a\njob.batch/b\n"
        );
        assert_eq!(kubectl.ok("get jobs -l !team -o name"), "");
        assert_eq!(kubectl.ok("get jobs --field-selector metadata.name=b -o name"), "job.batch/b\n");
        assert_eq!(kubectl.ok("get jobs --field-selector status.successful=0 -o name"), "job.batch/a\njob.batch/b\n");
        let unknown = kubectl.fails("get jobs --field-selector spec.frob=1");
        assert!(unknown.contains("field label \"spec.frob\" not supported for Job"), "{unknown}");
        assert_eq!(kubectl.ok("get jobs -A -o name"), "job.batch/a\njob.batch/b\njob.batch/c\n");
        let all = kubectl.table("get jobs -A");
        assert_eq!(all[0][..2], ["NAMESPACE", "NAME"]);
        assert_eq!(all[3][..2], ["other", "c"]);
        assert_eq!(kubectl.ok("get jobs -A --chunk-size=1 -o name"), "job.batch/a\njob.batch/b\njob.batch/c\n");
        assert_eq!(kubectl.ok("get jobs --sort-by=.metadata.labels.team -o name"), "job.batch/a\njob.batch/b\n");
    })
    .await;
}

#[tokio::test]
async fn get_with_a_watch_shows_what_happens() {
    with_each_kubectl(async |kubectl| {
        kubectl.ok("create job a --image=i");
        // The first lines of a watch are from its list; from there it misses nothing. The timeout only ends a test that
        // would otherwise hang.
        let mut names = kubectl.follow("get jobs -w -o name --request-timeout=60s");
        assert_eq!(names.line(), "job.batch/a");
        let mut table = kubectl.follow("get jobs -w --no-headers --request-timeout=60s");
        let row = table.line();
        assert!(row.starts_with("a Running 0/1 "), "{row}");
        kubectl.ok("create job b --image=i");
        assert_eq!(names.line(), "job.batch/b");
        let row = table.line();
        assert!(row.starts_with("b Running 0/1 "), "{row}");
        let mut events = kubectl.follow("get job/b --watch --output-watch-events --no-headers --request-timeout=60s");
        let row = events.line();
        assert!(row.starts_with("ADDED b Running 0/1 "), "{row}");
        for (command, event) in [("label job b x=y", "MODIFIED"), ("delete job b", "DELETED")] {
            kubectl.ok(command);
            assert_eq!(names.line(), "job.batch/b");
            let row = events.line();
            assert!(row.starts_with(&format!("{event} b Running 0/1 ")), "{row}");
        }
    })
    .await;
}
