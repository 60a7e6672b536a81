"""lightkube, with its `apply`. It has no terminal for exec."""

import os
import sys

os.environ["KUBECONFIG"] = sys.argv[1]

import httpx2
from lightkube import ApiError, Client, codecs
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import ConfigMap
from lightkube.types import PatchType

from protocol import note, serve

client = Client()


def names(listed):
    return sorted(item.metadata.name for item in listed)


def typed(namespace, manifest):
    return codecs.from_dict({**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}})


def objects(request):
    namespace = request["namespace"]
    for manifest in request["make"]:
        client.create(typed(namespace, manifest))
    got = client.get(ConfigMap, "red-1", namespace=namespace).data["colour"]
    red = names(client.list(ConfigMap, namespace=namespace, labels={"colour": "red"}))
    field = names(client.list(ConfigMap, namespace=namespace, fields={"metadata.name": "blue-1"}))
    client.delete(ConfigMap, "red-2", namespace=namespace)
    left = names(client.list(ConfigMap, namespace=namespace, labels={"suite": "objects"}))
    return {"got": got, "red": red, "field": field, "left": left}


def conflict(request):
    namespace = request["namespace"]
    client.apply(typed(namespace, request["alice"]), field_manager="alice")
    try:
        client.apply(typed(namespace, request["bob"]), field_manager="bob")
        said = None
    except ApiError as error:
        said = f"{error.status.code} {error.status.message}"
    client.apply(typed(namespace, request["bob"]), field_manager="bob", force=True)
    return {"conflict": said}


def owners(request):
    """The class of a Job demands a template, so a part of a Job is applied as a dictionary."""
    for manager, manifest in request["steps"]:
        where = {"namespace": request["namespace"], "field_manager": manager}
        client.patch(Job, manifest["metadata"]["name"], manifest, patch_type=PatchType.APPLY, **where)


def rollback(request):
    namespace = request["namespace"]
    client.apply(typed(namespace, request["first"]), field_manager="user")
    second = client.apply(typed(namespace, request["second"]), field_manager="user").data
    client.apply(typed(namespace, request["first"]), field_manager="user")
    return {"second": second}


def paging(request):
    listed = client.list(
        ConfigMap, namespace=request["namespace"], chunk_size=request["limit"], labels={"suite": "paging"}
    )
    found = [(item.metadata.name, (item.data or {}).get("n")) for item in listed]
    return {"found": found, "versions": [listed.resourceVersion]}


def watching(request):
    """An error of the watch ends it; the user lists again and watches from the version of the list."""
    selected = {"namespace": request["namespace"], "labels": {"suite": "watch"}}
    state, deleted, expired, version = {}, [], False, None
    while "end" not in state:
        if version is None:
            listed = client.list(ConfigMap, **selected)
            items = {item.metadata.name: item.data["v"] for item in listed}
            version = listed.resourceVersion
            deleted += [name for name in state if name not in items]
            state = items
            note(seen=state)
        try:
            for kind, item in client.watch(ConfigMap, resource_version=version, **selected):
                version = item.metadata.resourceVersion
                if kind == "DELETED":
                    state.pop(item.metadata.name, None)
                    deleted.append(item.metadata.name)
                else:
                    state[item.metadata.name] = item.data["v"]
                note(seen=state)
                if "end" in state:
                    break
        except ApiError as error:
            if error.status.code != 410:
                raise
            expired, version = True, None
        except httpx2.HTTPError:
            pass
    return {"state": state, "deleted": deleted, "expired": expired}


def terminal(request):
    done = client.exec(
        request["pod"], namespace=request["namespace"], command=request["plain"], stdin=request["input"], stdout=True
    )
    return {"out": done.stdout, "code": done.exit_code}


def logs(request):
    return {"lines": list(client.log(request["pod"], namespace=request["namespace"], follow=True, newlines=False))}


def job(request):
    namespace, name = request["namespace"], request["job"]["metadata"]["name"]
    client.create(typed(namespace, request["job"]))
    client.wait(Job, name, namespace=namespace, for_conditions=["Complete"], raise_for_conditions=["Failed"])


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
