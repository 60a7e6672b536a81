//! Tally in the hands of somebody who only knows kubectl: the real binary, and every kubectl there is.
//!
//! The server runs without node and controllers, so nothing moves by itself: where a test needs a Job to finish or an
//! event to happen, it writes the status or the event a controller would have written.
//!
//! `--validate=false` stands where kubectl would first download an OpenAPI document, which the server does not have yet.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod changes;
mod cluster;
mod deletes;
mod reads;
#[path = "../support/mod.rs"]
mod support;
mod waits;

use support::kubectl as tool;

/// A Job as people write it.
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
