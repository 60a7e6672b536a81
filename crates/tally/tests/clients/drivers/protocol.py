"""What the drivers in Python share: one line of JSON for each request and each response.

A request names one thing of the list (`table.rs`) and has everything that the thing is about. A driver does it in the way
of its client, and answers what the client saw. Whether that is true is decided by the test, which reads the API itself.
"""

import json
import os
import sys
import threading
import traceback

_out = os.fdopen(os.dup(1), "w", buffering=1)
# A library that prints must not write into the protocol.
os.dup2(2, 1)
_lock = threading.Lock()


def _say(line):
    with _lock:
        _out.write(json.dumps(line) + "\n")


def note(**what):
    """Tells the test what has been reached; the thing goes on."""
    _say({"note": what})


def serve(things):
    """Does what each line of the input asks for. `things` has a function for each thing that the client offers."""
    for line in sys.stdin:
        request = json.loads(line)
        try:
            _say({"answer": things[request["thing"]](request) or {}})
        except Exception:
            _say({"error": traceback.format_exc()})
