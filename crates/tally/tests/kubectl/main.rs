//! Tally used through kubectl only: the real binary, and every installed kubectl.
//!
//! The server runs without node and controllers, so nothing changes by itself: where a test needs a Job to finish or an
//! Event to happen, it writes the status or the Event that a controller would have written.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod admission;
mod changes;
mod cluster;
mod deletes;
mod reads;
mod server_side;
#[path = "../support/mod.rs"]
mod support;
mod waits;

use support::kubectl as tool;

/// A Job as users write it.
const JOB_YAML: &str = "apiVersion: batch/v1
kind: Job
metadata:
  name: pi
  labels:
    app: pi
spec:
  completions: 3
  parallelism: 2
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: pi
        image: perl:5.34
        command: [perl, -Mbignum=bpi, -wle, print bpi(2000)]
";
