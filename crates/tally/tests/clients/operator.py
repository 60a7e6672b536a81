"""An operator for Jobs, with what operators of kopf usually have: handlers with retries, a field, a timer, a daemon, a deletion.

Each handler counts in an annotation how often it ran: a reaction that is lost or repeated is visible in the API.
"""

import kopf

JOBS = {"labels": {"suite": "kopf"}}


def count(annotations, patch, what):
    key = f"clients.test/{what}"
    patch.metadata.annotations[key] = str(int(annotations.get(key, 0)) + 1)


@kopf.on.startup()
def configure(settings, **_):
    # Seconds between the end of a watch and the next one; the default would be most of the test.
    settings.watching.reconnect_backoff = 0.1
    # An operator that has not seen its own patch by then handles the object once more; on a loaded machine 5 s are too few.
    settings.persistence.consistency_timeout = 60


@kopf.on.create("batch", "v1", "jobs", **JOBS)
def created(annotations, patch, **_):
    count(annotations, patch, "created")


@kopf.on.create("batch", "v1", "jobs", **JOBS)
def stubborn(retry, patch, **_):
    """Fails twice. How often it has been tried is kept in the object, so that a restart does not begin again."""
    if retry < 2:
        raise kopf.TemporaryError("not yet", delay=0.5)
    patch.metadata.annotations["clients.test/retries"] = str(retry)


@kopf.on.field("batch", "v1", "jobs", field="status.succeeded", **JOBS)
def succeeded(new, annotations, patch, **_):
    if new:
        count(annotations, patch, "succeeded")


@kopf.timer("batch", "v1", "jobs", interval=1, **JOBS)
def visited(patch, **_):
    patch.metadata.annotations["clients.test/visited"] = "yes"


@kopf.daemon("batch", "v1", "jobs", cancellation_timeout=1, **JOBS)
async def accompanied(stopped, body, name, **_):
    kopf.event(body, type="Normal", reason="Accompanied", message=f"the operator accompanies {name}")
    await stopped.wait()


@kopf.on.delete("batch", "v1", "jobs", **JOBS)
def deleted(body, name, **_):
    kopf.event(body, type="Normal", reason="SeenDeleted", message=f"the operator has seen the deletion of {name}")
