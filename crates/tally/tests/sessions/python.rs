//! The Python client: `kubernetes.stream`, which speaks version 4 of the protocol.

use std::path::Path;
use std::process::Command;

use crate::run_pod;
use crate::support::kubectl::with_node;

const SCRIPT: &str = r#"
import sys
from kubernetes import client, config
from kubernetes.stream import stream
config.load_kube_config(sys.argv[1])
api = client.CoreV1Api()
def run(*command, **more):
    options = dict(stderr=True, stdin=False, stdout=True, tty=False)
    return stream(api.connect_get_namespaced_pod_exec, 'p', 'default', command=list(command), **(options | more))
print(sorted(run('sh', '-c', 'echo out; echo err >&2').split()))
open_stream = run('sh', '-c', 'read line; echo got $line; exit 6', stdin=True, _preload_content=False)
open_stream.write_stdin('words\n')
open_stream.run_forever(timeout=60)
print(repr(open_stream.read_stdout()), open_stream.returncode)
print(repr(run('stty', 'size', tty=True, stdin=True)).count('0 0'))
"#;

#[tokio::test]
async fn the_python_client_runs_commands() {
    let build = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let library = std::env::var_os("PYTHON_CLIENT").map_or_else(|| build.join("tools/python"), Into::into);
    if !library.join("kubernetes").exists() {
        return tally_testing::skip_without("the Python client");
    }
    let kubectl = with_node().await;
    run_pod(&kubectl, "p", "", "sleep 1000");
    let script = kubectl.file("script.py", SCRIPT);
    let said = Command::new("python3")
        .arg(script)
        .arg(kubectl.server.kubeconfig())
        .env("PYTHONPATH", library)
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&said.stdout);
    let lines: Vec<&str> = out.lines().collect();
    let err = String::from_utf8_lossy(&said.stderr);
    assert_eq!(lines, ["['err', 'out']", "'got words\\n' 6", "1"], "{out}{err}");
}
