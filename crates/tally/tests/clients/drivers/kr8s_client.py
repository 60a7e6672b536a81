"""kr8s. It has no server-side apply, and no terminal for exec."""

import sys
import warnings

# The newest versions of the API that this version of kr8s knows may be older than the server's.
warnings.simplefilter("ignore")

import httpx
import kr8s
from kr8s.objects import ConfigMap, Job, Pod

from protocol import note, serve

api = kr8s.api(kubeconfig=sys.argv[1])


def names(listed):
    return sorted(item.name for item in listed)


def objects(request):
    namespace = request["namespace"]
    for manifest in request["make"]:
        ConfigMap({**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}, api=api).create()
    got = ConfigMap.get("red-1", namespace=namespace, api=api).data["colour"]
    red = names(api.get("configmaps", namespace=namespace, label_selector={"colour": "red"}))
    field = names(api.get("configmaps", namespace=namespace, field_selector={"metadata.name": "blue-1"}))
    ConfigMap.get("red-2", namespace=namespace, api=api).delete()
    left = names(api.get("configmaps", namespace=namespace, label_selector="suite=objects"))
    return {"got": got, "red": red, "field": field, "left": left}


def paging(request):
    """The size of its pages is its own: 100."""
    listed = api.get("configmaps", namespace=request["namespace"], label_selector="suite=paging", raw=True)
    return {"found": [(item["metadata"]["name"], item.get("data", {}).get("n")) for item in listed]}


def watching(request):
    """A watch of kr8s ends with its connection. The user lists again and watches from then on."""
    namespace = request["namespace"]
    selected = {"namespace": namespace, "label_selector": "suite=watch"}
    state, deleted = {}, []
    while "end" not in state:
        listed = {item.name: item.data["v"] for item in api.get("configmaps", **selected)}
        deleted += [name for name in state if name not in listed]
        state = listed
        note(seen=state)
        if "end" in state:
            break
        try:
            for kind, item in api.watch("configmaps", **selected):
                if kind == "DELETED":
                    state.pop(item.name, None)
                    deleted.append(item.name)
                else:
                    state[item.name] = item.data["v"]
                note(seen=state)
                if "end" in state:
                    break
        except httpx.HTTPError:
            pass
    return {"state": state, "deleted": deleted}


def terminal(request):
    pod = Pod.get(request["pod"], namespace=request["namespace"], api=api)
    done = pod.exec(request["plain"], check=False)
    return {"out": done.stdout.decode(), "code": done.returncode}


def logs(request):
    pod = Pod.get(request["pod"], namespace=request["namespace"], api=api)
    return {"lines": list(pod.logs(follow=True))}


def job(request):
    manifest = request["job"]
    made = Job({**manifest, "metadata": {**manifest["metadata"], "namespace": request["namespace"]}}, api=api)
    made.create()
    made.wait("condition=Complete", timeout=120)


serve({"objects": objects, "paging": paging, "watch": watching, "terminal": terminal, "logs": logs, "job": job})
