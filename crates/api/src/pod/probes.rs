//! Probes, and the hooks that run when a container starts or stops.

use crate::field::At;

use super::checks::{Errors, not_negative, one_of_or_empty, port_number_or_name, required};

const PROBE_HANDLERS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "grpc"];
const HOOK_HANDLERS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "sleep"];

pub(super) fn of_container(spec: &At<'_, '_>, container: &At<'_, '_>, errors: &mut Errors) {
    let grace_period = spec.at("terminationGracePeriodSeconds").int();
    let lifecycle = container.at("lifecycle");
    for hook in ["postStart", "preStop"] {
        let hook = lifecycle.at(hook);
        if hook.is_set() {
            handler(&hook, &HOOK_HANDLERS, grace_period, errors);
        }
    }
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.at(kind);
        if !probe.is_set() {
            continue;
        }
        timing(&probe, errors);
        if kind == "readinessProbe" {
            // A readiness probe never ends a container, so it has no grace period.
            let grace = probe.at("terminationGracePeriodSeconds");
            if grace.is_set() {
                errors.push(grace.invalid("must not be set for readinessProbes"));
            }
        } else {
            let threshold = probe.at("successThreshold");
            if threshold.int() != Some(1) {
                errors.push(threshold.invalid("must be 1"));
            }
        }
    }
}

fn timing(probe: &At<'_, '_>, errors: &mut Errors) {
    handler(probe, &PROBE_HANDLERS, None, errors);
    for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
        not_negative(&probe.at(field), errors);
    }
    let grace = probe.at("terminationGracePeriodSeconds");
    if grace.int().is_some_and(|seconds| seconds <= 0) {
        errors.push(grace.invalid("must be greater than 0"));
    }
}

/// Exactly one of `kinds`; of several, the first is validated and each further one is an error.
fn handler(holder: &At<'_, '_>, kinds: &[&str], grace_period: Option<i64>, errors: &mut Errors) {
    let mut handlers = 0;
    for kind in kinds {
        let action = holder.at(kind);
        if !action.is_set() {
            continue;
        }
        handlers += 1;
        if handlers > 1 {
            errors.push(action.forbidden("may not specify more than 1 handler type"));
            continue;
        }
        match *kind {
            "exec" => {
                if action.at("command").is_empty() {
                    errors.push(action.at("command").required(""));
                }
            }
            "httpGet" => http_get(&action, errors),
            "sleep" => sleep(&action, grace_period, errors),
            _ => port_number_or_name(&action.at("port"), errors),
        }
    }
    if handlers == 0 {
        errors.push(holder.required("must specify a handler type"));
    }
}

fn http_get(action: &At<'_, '_>, errors: &mut Errors) {
    required(&action.at("path"), errors);
    port_number_or_name(&action.at("port"), errors);
    one_of_or_empty(&action.at("scheme"), &["HTTP", "HTTPS"], errors);
    let headers = action.at("httpHeaders");
    for header in headers.items() {
        let name = header.at("name").text_or_empty();
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            errors.push(headers.invalid_value(
                name,
                "a valid HTTP header must consist of alphanumeric characters or '-' \
                 (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')",
            ));
        }
    }
}

fn sleep(action: &At<'_, '_>, grace_period: Option<i64>, errors: &mut Errors) {
    let seconds = action.at("seconds").int().unwrap_or(0);
    let Some(grace_period) = grace_period else { return };
    if seconds < 0 || seconds > grace_period {
        let told = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace_period})");
        errors.push(action.invalid_value(seconds, told));
    }
}
