"""Runs `true` COUNT times with HyperQueue, WIDTH at a time, and prints the milliseconds of submission and run.

    python3 benches/with_hyperqueue.py COUNT WIDTH

The server and the worker run inside this process (`pip install hyperqueue`). Their start is not measured.
"""

import os
import sys
import tempfile
import time

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

count, width = int(sys.argv[1]), int(sys.argv[2])
with tempfile.TemporaryDirectory() as directory:
    os.chdir(directory)
    with LocalCluster() as cluster:
        cluster.start_worker(WorkerConfig(cores=width))
        client = cluster.client()
        began = time.monotonic()
        job = Job()
        for _ in range(count):
            job.program(["true"], stdout=None, stderr=None)
        client.wait_for_jobs([client.submit(job)])
        print(round((time.monotonic() - began) * 1000))
