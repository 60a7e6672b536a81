#!/usr/bin/env python3
"""Creates, finishes and deletes Jobs in `tally up`, and prints what it uses after each part of them.

Memory and disk space must depend on what exists, not on what existed: the figures must be flat. Exit code 1 if they are
not, with --check.

    benches/flat.py target/release/tally                      20,000 Jobs on hollow nodes, about ten minutes
    benches/flat.py target/release/tally --node               Pods are processes of this machine, with output
    benches/flat.py target/release/tally --jobs 2000          a small version, which prints figures only

Events expire after a few seconds here (--event-ttl), so that they are not what is measured.
"""

import argparse
import base64
import concurrent.futures
import http.client
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time

JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
# After so many Jobs everything that is bounded has reached its bound: the store remembers 100,000 changes, about ten for
# each Job.
WARM_UP = 10_000
# What is no growth: the allocator's, and files of the store that are not compacted yet.
SLACK = [16 << 20, 2 << 20, 96 << 20, 4 << 20]


class Api:
    """One connection for each thread."""

    def __init__(self, kubeconfig, directory):
        text = open(kubeconfig).read()

        def data(name):
            path = os.path.join(directory, name)
            with open(path, "wb") as file:
                file.write(base64.b64decode(re.search(name + r":\s*(\S+)", text).group(1)))
            return path

        self.address = re.search(r"server:\s*https://(\S+)", text).group(1)
        self.context = ssl.create_default_context(cafile=data("certificate-authority-data"))
        self.context.load_cert_chain(data("client-certificate-data"), data("client-key-data"))
        self.local = threading.local()

    def call(self, method, path, body=None):
        connection = getattr(self.local, "connection", None)
        if connection is None:
            connection = http.client.HTTPSConnection(self.address, context=self.context, timeout=120)
            self.local.connection = connection
        connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
        if response.status >= 300:
            raise RuntimeError(f"{method} {path}: {response.status} {answer.get('message')}")
        return answer

    def count(self, path, selector=""):
        answer = self.call("GET", f"{path}?limit=1{selector}")
        return len(answer["items"]) + answer["metadata"].get("remainingItemCount", 0)


def job(name):
    """Every tenth fails."""
    code = "1" if name.endswith("9") else "0"
    container = {"name": "main", "image": "process", "command": ["sh", "-c", f"echo one line of output; exit {code}"]}
    template = {
        "metadata": {"annotations": {"hollow.tally.dev/exit-code": code}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    spec = {"backoffLimit": 0, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def until(what, done, within=1800):
    end = time.time() + within
    while not done():
        if time.time() > end:
            raise RuntimeError(f"never: {what}")
        time.sleep(0.2)


def resident(pid):
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"VmRSS:\s*(\d+)", file.read()).group(1)) << 10


def memory(pid):
    """The resident memory of the process and of its helper, in bytes."""
    helpers = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as file:
            helpers += file.read().split()
    return resident(pid), sum(resident(helper) for helper in helpers)


def disk(directory):
    """What the files occupy, and their number."""
    total = files = 0
    for base, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(base, name)).st_blocks * 512
                files += 1
            except FileNotFoundError:
                pass
    return total, files


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("tally", help="the binary")
    options.add_argument("--jobs", type=int, default=20_000)
    options.add_argument("--parts", type=int, default=10, help="how often to print")
    options.add_argument("--node", action="store_true", help="run Pods as processes instead of on hollow nodes")
    options.add_argument("--event-ttl", type=int, default=5, metavar="SECONDS")
    options.add_argument("--check", action="store_true", help="fail if the figures grow")
    options = options.parse_args()
    directory = tempfile.mkdtemp(prefix="tally-flat-")
    data, kubeconfig = os.path.join(directory, "data"), os.path.join(directory, "kubeconfig")
    flags = ["--data-dir", data, "--kubeconfig", kubeconfig, "--event-ttl", f"{options.event_ttl}s"]
    flags += [] if options.node else ["--hollow", "2"]
    server = subprocess.Popen(
        [options.tally, "up", "--listen", "127.0.0.1:0", *flags],
        stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    try:
        until("it is ready", lambda: os.path.exists(kubeconfig) or server.poll() is not None, 60)
        return run(options, server, data, Api(kubeconfig, directory))
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()
        shutil.rmtree(directory)


def run(options, server, data, api):
    each = max(1, options.jobs // options.parts)
    workers = concurrent.futures.ThreadPoolExecutor(16)
    measured = []
    print("   Jobs  seconds  memory  of helper   disk  of node  files   (MiB)", flush=True)
    for part in range(options.parts):
        begun = time.time()
        names = [f"job-{part}-{number}" for number in range(each)]
        list(workers.map(lambda name: api.call("POST", JOBS, job(name)), names))
        until("all Jobs have finished", lambda: finished(api) == each)
        delete = {"propagationPolicy": "Background"}
        list(workers.map(lambda name: api.call("DELETE", f"{JOBS}/{name}", delete), names))
        until("Jobs and Pods are gone", lambda: api.count(JOBS) == 0 and api.count(PODS) == 0)
        # Files of the node are removed after the Pods, and Events some seconds later.
        until("Events have expired", lambda: api.count("/api/v1/events") < 50)
        took = time.time() - begun
        (used, helper), (space, files), (of_node, _) = memory(server.pid), disk(data), disk(os.path.join(data, "node"))
        measured.append((used, helper, space, of_node))
        mib = [bytes_ / 2**20 for bytes_ in measured[-1]]
        line = f"{each * (part + 1):>7} {took:>8.1f} {mib[0]:>7.1f} {mib[1]:>10.1f} {mib[2]:>6.1f} {mib[3]:>8.1f} {files:>6}"
        print(line, flush=True)
    # The first Jobs fill what is bounded: the history of the store, what its engine buffers, the allocator.
    warm = next((part for part in range(options.parts) if each * (part + 1) >= WARM_UP), None)
    if warm is None or warm == options.parts - 1:
        print(f"more than {WARM_UP} Jobs are needed to tell whether that grows")
        return 0
    first, last = measured[warm], measured[-1]
    names = ["memory", "memory of the helper", "disk space", "disk space of the node"]
    grown = [
        f"{name} grew from {before / 2**20:.1f} to {after / 2**20:.1f} MiB"
        for name, before, after, slack in zip(names, first, last, SLACK)
        if after > before * 1.1 + slack
    ]
    print("; ".join(grown) or "flat")
    return 1 if grown and options.check else 0


def finished(api):
    """How many Jobs have finished. The list is long, so that it is looked at rarely."""
    time.sleep(1)
    conditions = [one.get("status", {}).get("conditions", []) for one in api.call("GET", JOBS)["items"]]
    return sum(1 for those in conditions if any(one["type"] in ("Complete", "Failed") for one in those))


if __name__ == "__main__":
    sys.exit(main())
