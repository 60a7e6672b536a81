"""The Python client, `kubernetes`."""

import sys
import threading

from kubernetes import client, config, watch
from kubernetes.informer import SharedInformer
from kubernetes.informer import informer as informers
from kubernetes.stream import stream

from protocol import note, serve

config.load_kube_config(sys.argv[1])
core = client.CoreV1Api()
batch = client.BatchV1Api()


def names(listed):
    return sorted(item.metadata.name for item in listed.items)


def apply(namespace, manifest, manager, force=False):
    patch = batch.patch_namespaced_job if manifest["kind"] == "Job" else core.patch_namespaced_config_map
    name = manifest["metadata"]["name"]
    return patch(name, namespace, manifest, field_manager=manager, force=force, _content_type="application/apply-patch+yaml")


def objects(request):
    namespace = request["namespace"]
    for manifest in request["make"]:
        core.create_namespaced_config_map(namespace, manifest)
    got = core.read_namespaced_config_map("red-1", namespace).data["colour"]
    red = names(core.list_namespaced_config_map(namespace, label_selector="colour=red"))
    field = names(core.list_namespaced_config_map(namespace, field_selector="metadata.name=blue-1"))
    core.delete_namespaced_config_map("red-2", namespace)
    left = names(core.list_namespaced_config_map(namespace, label_selector="suite=objects"))
    return {"got": got, "red": red, "field": field, "left": left}


def conflict(request):
    namespace = request["namespace"]
    apply(namespace, request["alice"], "alice")
    try:
        apply(namespace, request["bob"], "bob")
        said = None
    except client.ApiException as error:
        said = f"{error.status} {error.body}"
    apply(namespace, request["bob"], "bob", force=True)
    return {"conflict": said}


def owners(request):
    for manager, manifest in request["steps"]:
        apply(request["namespace"], manifest, manager)


def rollback(request):
    namespace = request["namespace"]
    apply(namespace, request["first"], "user")
    second = apply(namespace, request["second"], "user").data
    apply(namespace, request["first"], "user")
    return {"second": second}


def paging(request):
    found, versions, pages, more = [], set(), 0, None
    while True:
        page = core.list_namespaced_config_map(
            request["namespace"], limit=request["limit"], _continue=more, label_selector="suite=paging"
        )
        found += [(item.metadata.name, (item.data or {}).get("n")) for item in page.items]
        versions.add(page.metadata.resource_version)
        pages += 1
        more = page.metadata._continue
        if not more:
            return {"found": found, "versions": sorted(versions), "pages": pages}


def watching(request):
    """The client's own informer: it resumes, is told that its version has expired, and lists again."""
    ended, deleted = threading.Event(), []
    informer = SharedInformer(
        core.list_namespaced_config_map, namespace=request["namespace"], label_selector="suite=watch"
    )

    def state():
        return {item.metadata.name: item.data["v"] for item in informer.cache.list()}

    def changed(item):
        seen = state() | {item.metadata.name: item.data["v"]}
        note(seen=seen)
        if "end" in seen:
            ended.set()

    expired = []
    informer.add_event_handler(informers.ADDED, changed)
    informer.add_event_handler(informers.MODIFIED, changed)
    informer.add_event_handler(informers.DELETED, lambda item: deleted.append(item.metadata.name))
    informer.add_event_handler(informers.ERROR, lambda error: expired.append(getattr(error, "status", None)))
    informer.start()
    ended.wait()
    result = {"state": state(), "deleted": deleted, "expired": 410 in expired}
    informer.stop()
    return result


def terminal(request):
    session = stream(
        core.connect_get_namespaced_pod_exec,
        request["pod"],
        request["namespace"],
        command=request["command"],
        stdin=True,
        stdout=True,
        stderr=False,
        tty=True,
        _preload_content=False,
    )
    session.write_channel(4, '{"Width": 91, "Height": 17}')
    session.write_stdin(request["input"])
    session.run_forever(timeout=120)
    return {"out": session.read_stdout(), "code": session.returncode}


def logs(request):
    lines = watch.Watch().stream(core.read_namespaced_pod_log, name=request["pod"], namespace=request["namespace"])
    return {"lines": [line for line in lines if line]}


def job(request):
    namespace, name = request["namespace"], request["job"]["metadata"]["name"]
    batch.create_namespaced_job(namespace, request["job"])
    watcher = watch.Watch()
    for event in watcher.stream(batch.list_namespaced_job, namespace, field_selector=f"metadata.name={name}"):
        conditions = event["object"].status.conditions or []
        if any(one.type == "Complete" and one.status == "True" for one in conditions):
            watcher.stop()


serve(
    {
        "objects": objects,
        "conflict": conflict,
        "owners": owners,
        "rollback": rollback,
        "paging": paging,
        "watch": watching,
        "terminal": terminal,
        "logs": logs,
        "job": job,
    }
)
