//! The alerts and the dashboard ask for metrics that the controller serves, with labels that they have.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::{Value, json};

use super::renderings::{self, deploy};
use super::support::server;

/// The labels that Prometheus adds to what it collects.
const ADDED: [&str; 2] = ["instance", "job"];
/// Words of PromQL between expressions.
const WORDS: [&str; 3] = ["and", "or", "unless"];

/// The metrics that an expression names, each with the labels that are asked of it or grouped by.
fn asked(expression: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut grouped = BTreeSet::new();
    let is_part = |character: char| character.is_ascii_alphanumeric() || "_:$".contains(character);
    let mut rest = expression;
    while let Some(from) = rest.find(is_part) {
        rest = &rest[from..];
        let end = rest.find(|character| !is_part(character)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after;
        let next = after.trim_start();
        if word == "by" {
            let list = next.strip_prefix('(').and_then(|list| list.split_once(')')).expect("by (labels)");
            grouped.extend(list.0.split(',').map(|label| label.trim().to_owned()));
            rest = list.1;
        } else if !word.starts_with(|first: char| first.is_ascii_digit() || first == '$')
            && !WORDS.contains(&word)
            // A function, or an aggregation.
            && !next.starts_with('(')
            && !next.starts_with("by ")
        {
            let labels = names.entry(word.to_owned()).or_default();
            if let Some((matchers, more)) = after.strip_prefix('{').and_then(|list| list.split_once('}')) {
                let names = matchers.split(',').map(|matcher| matcher.split(['=', '!']).next().unwrap_or_default());
                labels.extend(names.map(|name| name.trim().to_owned()));
                rest = more;
            }
            if let Some((_, more)) = rest.strip_prefix('[').and_then(|range| range.split_once(']')) {
                rest = more;
            }
        }
    }
    names.values_mut().for_each(|labels| labels.extend(grouped.iter().cloned()));
    names
}

#[test]
fn expressions_are_taken_apart() {
    let found =
        asked("sum by (verb, le) (rate(a_total{job=\"x\",code=~\"403|422\"}[5m])) > 0.5 or absent(b{job=\"x\"}) < 1");
    let labels = |list: &[&str]| list.iter().map(|&label| label.to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(found.keys().collect::<Vec<_>>(), ["a_total", "b"]);
    assert_eq!(found["a_total"], labels(&["code", "job", "le", "verb"]));
}

/// The metrics of `tally controller` with their labels, by the names of their series. A process does not show a metric that has
/// no value yet, so they are read from `docs/metrics.md`, which a test of the binary holds to what it registers.
fn served() -> BTreeMap<String, BTreeSet<String>> {
    let text = std::fs::read_to_string(deploy().join("../docs/metrics.md")).unwrap();
    let mut served = BTreeMap::new();
    for row in text.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let (name, labels) = (cells[1].trim_matches('`'), cells[3]);
        let mut labels: BTreeSet<String> = labels.split(", ").map(str::to_owned).collect();
        if cells[2] == "histogram" {
            labels.insert("le".to_owned());
            served.insert(format!("{name}_bucket"), labels);
        } else {
            served.insert(name.to_owned(), labels);
        }
    }
    served
}

fn check(title: &str, expression: &str, served: &BTreeMap<String, BTreeSet<String>>) {
    let asked = asked(expression);
    assert!(!asked.is_empty(), "{title} asks for nothing: {expression}");
    for (name, labels) in asked {
        let has = served.get(&name).unwrap_or_else(|| panic!("{title}: no metric {name} is served"));
        for label in labels.iter().filter(|label| !ADDED.contains(&label.as_str())) {
            assert!(has.contains(label), "{title}: {name} has no label {label}");
        }
    }
}

#[test]
fn every_alert_and_every_panel_asks_for_a_metric_that_is_served() {
    let served = served();
    assert!(served.len() > 20, "{served:?}");
    let mut alerts = 0;
    for rule in renderings::all().flat_map(|rendering| rendering.of_kind("PrometheusRule")) {
        for alert in rule["spec"]["groups"][0]["rules"].as_array().unwrap() {
            check(alert["alert"].as_str().unwrap(), alert["expr"].as_str().unwrap(), &served);
            alerts += 1;
        }
    }
    assert!(alerts >= 16);
    let text = std::fs::read_to_string(deploy().join("grafana/tally.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_i64()), "{title}: its number is used twice");
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            assert!(expression.contains("{job=\"$job\""), "{title}: {expression} mixes several services");
            check(title, expression, &served);
        }
    }
    let variable = dashboard["templating"]["list"][1]["query"]["query"].as_str().unwrap();
    let (metric, _) = variable.strip_prefix("label_values(").and_then(|rest| rest.split_once(',')).unwrap();
    assert!(served.contains_key(metric));
}

/// The same alerts whether kustomize or Helm installs them, and about the Service that is installed with them.
#[test]
fn both_installs_have_the_same_alerts() {
    let mut first: Option<&Value> = None;
    for rendering in renderings::all() {
        for rule in rendering.of_kind("PrometheusRule") {
            let service = rendering.the("Service")["metadata"]["name"].as_str().unwrap();
            let text = rule.to_string();
            let (all, own) = (text.matches("job=").count(), text.matches(&format!("job=\\\"{service}\\\"")).count());
            assert!(all > 0 && all == own, "{}: {text}", rendering.title);
            if service == "tally-metrics" {
                assert_eq!(rule["spec"], first.get_or_insert(rule)["spec"], "{}", rendering.title);
            }
        }
    }
    assert!(first.is_some());
}

/// By the tool of Prometheus itself.
#[test]
fn promtool_accepts_the_alerts() {
    let Some(promtool) = renderings::tool("PROMTOOL", "promtool", "tools/prometheus/usr/bin") else {
        return tally_testing::skip_without("promtool");
    };
    let directory = server::directory();
    for (number, rule) in renderings::all().flat_map(|rendering| rendering.of_kind("PrometheusRule")).enumerate() {
        let file = directory.path().join(format!("rules-{number}.yaml"));
        // JSON is YAML.
        std::fs::write(&file, rule["spec"].to_string()).unwrap();
        let checked = Command::new(&promtool).args(["check", "rules"]).arg(&file).output().unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    }
}

/// METRIC-14: 99 % of the Jobs that expire are deleted within a minute, over an hour. By the tool of Prometheus itself, with
/// values of the metric minute by minute.
#[test]
fn the_alert_for_ttl_fires_if_more_than_one_in_a_hundred_is_late() {
    let Some(promtool) = renderings::tool("PROMTOOL", "promtool", "tools/prometheus/usr/bin") else {
        return tally_testing::skip_without("promtool");
    };
    let rule = renderings::all()
        .flat_map(|rendering| rendering.of_kind("PrometheusRule"))
        .find(|rule| rule["spec"].to_string().contains("tally-metrics"));
    let spec = &rule.expect("one of the renderings has the alerts")["spec"];
    let name = "TtlObjectiveMissed";
    let alerts = spec["groups"][0]["rules"].as_array().unwrap();
    let alert = alerts.iter().find(|alert| alert["alert"] == name).expect("an alert for the objective");
    let fires = json!([{"exp_labels": alert["labels"], "exp_annotations": alert["annotations"]}]);
    let directory = server::directory();
    std::fs::write(directory.path().join("rules.yaml"), spec.to_string()).unwrap();
    let tests: Vec<Value> = [
        // Jobs in time and late, at every minute of two hours.
        ("all in time", "0+1x120", "0x120", false),
        ("one of 180 late", "0+3x120", "0x70 1x50", false),
        ("two of 62 late", "0+1x120", "0x70 1x10 2x40", true),
        ("none is deleted", "0x120", "0+1x120", true),
        ("late an hour ago", "0+1x120", "5x120", false),
        ("no Job expires", "0x120", "0x120", false),
        ("another controller is late", "_x120", "_x120", false),
    ]
    .into_iter()
    .map(|(title, in_time, late, fired)| {
        let series = |result: &str, values: &str| {
            json!({"series": format!("tally_ttl_jobs_total{{job=\"tally-metrics\",result=\"{result}\"}}"), "values": values})
        };
        let other = json!({"series": "tally_ttl_jobs_total{job=\"other\",result=\"late\"}", "values": "0+1x120"});
        let expected = if fired { fires.clone() } else { json!([]) };
        json!({
            "name": title, "interval": "1m", "input_series": [series("in_time", in_time), series("late", late), other],
            "alert_rule_test": [{"eval_time": "100m", "alertname": name, "exp_alerts": expected}],
        })
    })
    .collect();
    let file = json!({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests});
    std::fs::write(directory.path().join("test.yaml"), file.to_string()).unwrap();
    let tested = Command::new(promtool).args(["test", "rules", "test.yaml"]).current_dir(directory.path()).output();
    let tested = tested.unwrap();
    let said = [tested.stdout, tested.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(tested.status.success(), "{said}");
}
