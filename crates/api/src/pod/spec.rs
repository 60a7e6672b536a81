//! A Pod's spec as a whole, in a Pod or in a template: the order of the checks is the order of the errors.

use std::collections::BTreeSet;

use tally_value::Value;

use crate::field::At;
use crate::meta;

use super::checks::{
    Errors, UniqueTexts, between, dns_label, dns_subdomain, duplicate, ip_address, reject, required_one_of,
};
use super::{containers, env, resources, scheduling, security, volumes};

/// The object that a spec belongs to.
#[derive(Clone, Copy)]
pub(super) struct Scope<'v> {
    pub(super) is_pod: bool,
    /// The Pod's name; empty for a template, whose Pods have no names yet.
    pub(super) name: &'v str,
    pub(super) annotations: Option<&'v Value>,
}

pub(super) fn validate(spec: &At<'_, '_>, scope: Scope<'_>, errors: &mut Errors) {
    let grace_period = spec.at("terminationGracePeriodSeconds");
    if !grace_period.is_set() {
        errors.push(grace_period.required(""));
    }
    let volumes = volumes::all(&spec.at("volumes"), scope, errors);
    let claims = spec.at("resourceClaims");
    resource_claims(&claims, scope, errors);
    let claims = claims.list().iter().filter_map(|claim| claim.get("name")?.as_str()).filter(|name| !name.is_empty());
    let context = containers::Context { spec, volumes, claims: claims.collect::<BTreeSet<_>>() };
    containers::all(&context, errors);
    resources::of_pod(spec, errors);
    host_network_ports(spec, scope, errors);
    required_one_of(&spec.at("restartPolicy"), &["Always", "OnFailure", "Never"], errors);
    let dns_policy = spec.at("dnsPolicy");
    required_one_of(&dns_policy, &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"], errors);
    errors.extend(meta::validate_labels(spec.at("nodeSelector")));
    security::of_pod(spec, errors);
    scheduling::affinity(&spec.at("affinity"), errors);
    dns_config(&spec.at("dnsConfig"), dns_policy.text_or_empty() == "None", errors);
    scheduling::gates(spec, errors);
    scheduling::spreading(&spec.at("topologySpreadConstraints"), errors);
    security::host_processes(spec, errors);
    security::own_users(spec, errors);
    security::host_name_override(spec, errors);
    for field in ["serviceAccountName", "nodeName"] {
        if !spec.at(field).text_or_empty().is_empty() {
            dns_subdomain(&spec.at(field), errors);
        }
    }
    between(&spec.at("activeDeadlineSeconds"), 1, i32::MAX.into(), errors);
    for field in ["hostname", "subdomain"] {
        if !spec.at(field).text_or_empty().is_empty() {
            dns_label(&spec.at(field), errors);
        }
    }
    scheduling::tolerations(&spec.at("tolerations"), errors);
    for alias in spec.at("hostAliases").items() {
        let address = alias.at("ip");
        ip_address(&address, address.text_or_empty(), &[], errors);
        for name in alias.at("hostnames").items() {
            dns_subdomain(&name, errors);
        }
    }
    let priority = spec.at("priorityClassName");
    if !priority.text_or_empty().is_empty() {
        dns_subdomain(&priority, errors);
    }
    if spec.at("runtimeClassName").is_set() {
        dns_subdomain(&spec.at("runtimeClassName"), errors);
    }
    security::preemption_policy(spec, errors);
    resources::overhead(&spec.at("overhead"), errors);
    security::operating_system(spec, errors);
    env::files_are_on_empty_dirs(spec, errors);
}

fn resource_claims(list: &At<'_, '_>, scope: Scope<'_>, errors: &mut Errors) {
    let is_mirror = scope.annotations.is_some_and(|annotations| annotations.get(super::annotations::MIRROR).is_some());
    let mut names = UniqueTexts::default();
    for claim in list.items() {
        if is_mirror {
            errors.push(At::rooted("", None).forbidden("static pods do not support resource claims"));
            continue;
        }
        let name = claim.at("name");
        let text = name.text_or_empty();
        if text.is_empty() {
            errors.push(name.required(""));
        } else if names.insert(text) {
            dns_label(&name, errors);
        } else {
            errors.push(duplicate(&name, text));
        }
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        match sources.iter().filter(|source| claim.at(source).is_set()).count() {
            0 => errors.push(claim.invalid("must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")),
            1 => {}
            _ => errors.push(
                claim.invalid("at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"),
            ),
        }
        for source in sources {
            let source = claim.at(source);
            if source.is_set() {
                reject(&source, meta::dns_subdomain_problems(source.text_or_empty()), errors);
            }
        }
    }
}

/// On the host network a container port is the host's. A template may omit the latter: it is set later.
fn host_network_ports(spec: &At<'_, '_>, scope: Scope<'_>, errors: &mut Errors) {
    if !spec.at("hostNetwork").is_true() {
        return;
    }
    for container in spec.at("containers").items() {
        for port in container.at("ports").items() {
            let host_port = port.at("hostPort");
            let number = host_port.int().unwrap_or(0);
            if (scope.is_pod || number != 0) && number != port.at("containerPort").int().unwrap_or(0) {
                let told = "must match `containerPort` when `hostNetwork` is true";
                errors.push(host_port.invalid_value(number, told));
            }
        }
    }
}

/// Limits of the resolvers that will read it.
const NAMESERVERS: usize = 3;
const SEARCHES: usize = 32;
const SEARCH_CHARACTERS: usize = 2048;

fn dns_config(config: &At<'_, '_>, nothing_else: bool, errors: &mut Errors) {
    let (servers, searches) = (config.at("nameservers"), config.at("searches"));
    if nothing_else && !config.is_set() {
        errors.push(config.required("must provide `dnsConfig` when `dnsPolicy` is None"));
        return;
    }
    if nothing_else && servers.is_empty() {
        errors.push(servers.required("must provide at least one DNS nameserver when `dnsPolicy` is None"));
        return;
    }
    if servers.len() > NAMESERVERS {
        errors.push(servers.invalid(format!("must not have more than {NAMESERVERS} nameservers")));
    }
    for server in servers.items() {
        ip_address(&server, server.text_or_empty(), &[], errors);
    }
    if searches.len() > SEARCHES {
        errors.push(searches.invalid(format!("must not have more than {SEARCHES} search paths")));
    }
    let texts = searches.list().iter().filter_map(Value::as_str);
    // One space between each two.
    let length = texts.map(str::len).sum::<usize>() + searches.len().saturating_sub(1);
    if length > SEARCH_CHARACTERS {
        let told =
            format!("must not have more than {SEARCH_CHARACTERS} characters (including spaces) in the search list");
        errors.push(searches.invalid(told));
    }
    for search in searches.items() {
        let text = search.text_or_empty();
        if text != "." {
            search_domain(&search, text.strip_suffix('.').unwrap_or(text), errors);
        }
    }
    for option in config.at("options").items() {
        if option.at("name").text_or_empty().is_empty() {
            errors.push(option.required("must not be empty"));
        }
    }
}

/// A search domain may contain underscores, like the names of SRV records.
fn search_domain(at: &At<'_, '_>, domain: &str, errors: &mut Errors) {
    if domain.len() > 253 {
        errors.push(at.invalid_value(domain, "must be no more than 253 characters"));
    }
    let letter = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let sound = domain.split('.').all(|label| {
        let label = label.strip_prefix('_').unwrap_or(label).as_bytes();
        label.first().is_some_and(letter)
            && label.last().is_some_and(letter)
            && label.iter().all(|byte| letter(byte) || matches!(byte, b'-' | b'_'))
    });
    if !sound {
        errors.push(at.invalid_value(
            domain,
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')",
        ));
    }
}

/// Rules for Pods but not for templates, which have always been accepted without them.
pub(super) fn validate_pod_only(spec: &At<'_, '_>, errors: &mut Errors) {
    if spec.at("serviceAccountName").text_or_empty().is_empty() {
        for volume in spec.at("volumes").items() {
            let projected = volume.at("projected");
            for source in projected.at("sources").items() {
                let token = source.at("serviceAccountToken");
                if token.is_set() {
                    errors.push(token.forbidden("must not be specified when serviceAccountName is not set"));
                }
            }
        }
    }
    for list in ["containers", "initContainers"] {
        for container in spec.at(list).items() {
            containers::untrimmed_image(&container, errors);
        }
    }
}
