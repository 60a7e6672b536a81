//! What is refused, and in which words.

use crate::support::client::Call;
use crate::support::kubectl::{with_each_kubectl, with_node};
use crate::{pod, run_pod};

#[tokio::test]
async fn pods_that_cannot_be_reached_are_explained() {
    let kubectl = with_node().await;
    let file = kubectl.file("done.yaml", &pod("done", "", "exit 0"));
    kubectl.ok(&format!("create -f {file}"));
    kubectl.ok("wait --for=jsonpath={.status.phase}=Succeeded pod/done --timeout=60s");
    let done = "cannot exec into a container in a completed pod; current phase is Succeeded";
    assert!(kubectl.fails("exec done -- true").contains(done));
    run_pod(&kubectl, "p", "", "sleep 1000");
    for (arguments, expected) in [
        ("exec nowhere -- true", "pods \"nowhere\" not found"),
        ("exec p -c other -- true", "container other is not valid for pod p"),
        ("port-forward pod/done 1:1", "unable to forward port because pod is not running. Current status=Succeeded"),
        ("debug p --image=x --target=main", "ephemeral containers cannot be added"),
    ] {
        let trouble = kubectl.fails(arguments);
        assert!(trouble.contains(expected), "{arguments}: {trouble}");
    }
    let patch = kubectl.run(&["patch", "pod", "p", "--subresource=resize", "-p", r#"{"spec":{}}"#]);
    assert!(
        patch.code == Some(1) && patch.err.contains("the resources of a running Pod cannot be changed"),
        "{patch:?}"
    );
    // The same for clients that do not look first, and for those that speak no WebSocket.
    let mut connection = kubectl.server.api.connection();
    let path = "/api/v1/namespaces/default/pods";
    for (method, request, code, expected) in [
        ("GET", "/done/exec?command=true&stdout=1", 400, done),
        (
            "GET",
            "/done/attach?stdout=1",
            400,
            "cannot attach a container in a completed pod; current phase is Succeeded",
        ),
        ("GET", "/p/exec?command=true", 400, "you must specify at least 1 of stdin, stdout, stderr"),
        ("GET", "/p/exec?stdout=1", 400, "you must specify at least one command"),
        ("GET", "/p/exec?command=true&stdout=1", 400, "Upgrade request required"),
        ("POST", "/p/exec?command=true&stdout=1", 400, "Upgrade request required"),
        ("DELETE", "/p/exec", 405, "does not allow this method"),
    ] {
        let answer = connection.call(&Call::new(method, format!("{path}{request}"))).await.unwrap();
        assert_eq!(answer.code, code, "{method} {request}: {}", answer.text);
        assert!(answer.text.contains(expected), "{method} {request}: {}", answer.text);
    }
    let spdy = Call::new("POST", format!("{path}/p/exec?command=true&stdout=1"));
    let spdy = spdy.header("connection", "Upgrade").header("upgrade", "SPDY/3.1");
    let answer = connection.call(&spdy).await.unwrap();
    assert!(answer.code == 400 && answer.text.contains("use kubectl 1.31 or newer"), "{}", answer.text);
    let waiting = kubectl.file(
        "waiting.yaml",
        &pod("waiting", "env: [{name: A, valueFrom: {configMapKeyRef: {name: absent, key: x}}}]", "true"),
    );
    kubectl.ok(&format!("create -f {waiting}"));
    let waits = "jsonpath={.status.containerStatuses[0].state.waiting.reason}=CreateContainerConfigError";
    kubectl.ok(&format!("wait --for={waits} pod/waiting --timeout=60s"));
    let trouble = kubectl.fails("exec waiting -- true");
    assert!(trouble.contains("container not found (\"main\")"), "{trouble}");
}

#[tokio::test]
async fn a_server_without_a_node_says_so() {
    with_each_kubectl(async |kubectl| {
        if kubectl.minor < 31 {
            return;
        }
        let file = kubectl.file("p.yaml", &pod("p", "", "sleep 1000"));
        kubectl.ok(&format!("create -f {file} --validate=false"));
        let trouble = kubectl.fails("exec p -- true");
        assert!(trouble.contains("pod p does not have a host assigned"), "{trouble}");
    })
    .await;
}

/// RBAC-17: each of the three needs the right to create it; that to get it is not sufficient.
#[tokio::test]
async fn users_need_the_right_to_do_it() {
    let kubectl = with_node().await;
    run_pod(&kubectl, "p", "stdin: true", "cat");
    kubectl.ok("create namespace theirs");
    kubectl.ok("create rolebinding ann -n theirs --clusterrole=edit --user=ann");
    kubectl.ok("create role looks --verb=get,list,watch --resource=pods,pods/exec,pods/attach,pods/portforward");
    kubectl.ok("create rolebinding looks --role=looks --user=rita");
    kubectl.ok("create role does --verb=create --resource=pods/exec");
    kubectl.ok("create role sees --verb=get --resource=pods");
    kubectl.ok("create rolebinding does --role=does --user=dora");
    kubectl.ok("create rolebinding sees --role=sees --user=dora");
    let refused = |arguments: &str, what: &str| {
        let trouble = kubectl.fails(arguments);
        assert!(trouble.contains(&format!("cannot create resource \"pods/{what}\"")), "{arguments}: {trouble}");
    };
    refused("--as=rita exec p -- true", "exec");
    refused("--as=rita attach p", "attach");
    refused("--as=rita port-forward pod/p 1:1", "portforward");
    assert_eq!(kubectl.ok("--as=dora exec p -- echo hi"), "hi\n");
    refused("--as=dora attach p", "attach");
    // A user of another namespace.
    let trouble = kubectl.fails("--as=ann exec p -- true");
    assert!(trouble.contains("forbidden"), "{trouble}");
    for what in ["exec", "attach", "portforward"] {
        assert_eq!(kubectl.ok(&format!("auth can-i create pods --subresource={what} -n theirs --as=ann")), "yes\n");
        let can = kubectl.say(&format!("auth can-i create pods --subresource={what} --as=ann"));
        assert_eq!(can.out, "no\n", "{can:?}");
    }
    let listed = kubectl.ok("get --raw /api/v1");
    for what in ["exec", "attach", "portforward"] {
        assert!(listed.contains(&format!("\"pods/{what}\"")), "{listed}");
    }
}
