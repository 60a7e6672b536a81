//! The invariants, whatever happens.

use super::*;

#[test]
fn whatever_happens_every_end_is_told_once_and_nothing_is_left() {
    let seeds = std::env::var("TALLY_NODE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(30);
    let first = std::env::var("TALLY_NODE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let (mut ended, mut made, mut writes, mut runs, mut crashes) = (0, 0, 0, 0, 0);
    for seed in first..first + seeds {
        println!("seed {seed}");
        let mut world = World::new(seed);
        for _ in 0..600 {
            world.step();
        }
        world.heal();
        ended += world.oracle.ended;
        made += world.made;
        writes += world.writes;
        runs += world.runs;
        crashes += world.crashes;
    }
    println!("{made} Pods were made, {ended} ended, {writes} writes, {runs} runs, {crashes} crashes");
    assert!(ended > made / 2, "{ended} of {made} Pods ended in an ordinary way");
}

#[test]
fn the_node_object_is_made_and_kept_and_otherwise_left_alone() {
    let mut world = World::new(3);
    world.calm = true;
    let settle = |world: &mut World| while world.news() || world.request() || world.report() {};
    let read = |world: &World| -> Option<Value> {
        match ready(perform(&world.registry, &Call::new(Verb::Get, Kind::NODE, "", NODE))) {
            Reply::Done(bytes) => Some(serde_json::from_slice(&bytes).unwrap()),
            _ => None,
        }
    };
    let beat = |node: &Value| {
        let conditions = node["status"]["conditions"].as_array().unwrap();
        let ready = conditions.iter().find(|condition| condition["type"] == "Ready").unwrap();
        assert_eq!(ready["status"], "True");
        (ready["lastHeartbeatTime"].clone(), ready["lastTransitionTime"].clone())
    };
    settle(&mut world);
    let node = read(&world).expect("it is made");
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], HOST, "the name is its own");
    assert_eq!(node["status"]["allocatable"]["cpu"], "1");
    assert!(node["spec"]["taints"].is_null(), "Pods may come: {node}");
    let (first, since) = beat(&node);
    let patch = json!({"metadata": {"labels": {"mine": "yes", "kubernetes.io/arch": "z80"}}});
    world.ask(&Call::new(Verb::MergePatch, Kind::NODE, "", NODE).body(&patch));
    let condition = json!({"type": "Mine", "status": "True"});
    let patch = json!({"status": {"conditions": [condition]}});
    world.ask(&Call::new(Verb::StrategicPatch, Kind::NODE, "", NODE).subresource("status").body(&patch));
    settle(&mut world);
    // Once for a write that came too early, once for the next heartbeat.
    for _ in 0..2 {
        world.tick();
        settle(&mut world);
    }
    let node = read(&world).unwrap();
    assert_eq!(node["metadata"]["labels"]["mine"], "yes");
    assert_ne!(node["metadata"]["labels"]["kubernetes.io/arch"], "z80");
    assert!(node["status"]["conditions"].as_array().unwrap().iter().any(|it| it["type"] == "Mine"));
    let (second, still) = beat(&node);
    assert!(second != first && since == still, "a sign of life, and no change: {node}");
    world.ask(&Call::new(Verb::Delete, Kind::NODE, "", NODE));
    settle(&mut world);
    assert!(read(&world).is_some(), "it comes back");
}

/// Responses to requests may be ahead of the watch.
#[test]
fn a_pod_that_has_ended_is_not_taken_on_again_by_an_older_view_of_it() {
    let mut world = World::new(4);
    world.calm = true;
    while world.news() || world.request() || world.command() || world.report() {}
    let command = json!([{"name": "c", "image": "process", "command": ["work"]}]);
    let pod = json!({
        "metadata": {"name": "p", "finalizers": ["example.com/held"]},
        "spec": {"nodeName": NODE, "restartPolicy": "Never", "containers": command},
    });
    world.ask(&Call::new(Verb::Create, Kind::POD, "default", "").body(&pod));
    while world.news() || world.command() || world.report() || world.request() {}
    let pod = world.pods().remove(0);
    world.delete(&pod, 30);
    while world.news() || world.command() || world.report() || world.request() {}
    // The Pod is reported as running, reported as ended, and removed, while the watch stays before all of that.
    world.tick();
    while world.request() {}
    world.exit();
    while world.report() || world.request() {}
    let writes = world.writes;
    assert_eq!(writes, 2);
    while world.news() || world.command() || world.report() || world.request() {}
    assert_eq!((world.runs, world.writes), (1, writes));
    assert_eq!(world.pods()[0]["metadata"]["deletionGracePeriodSeconds"], 0);
    world.check();
}

/// A Pod that ends at once costs one write, and the node then has no wake-up for it.
#[test]
fn a_short_pod_costs_one_write() {
    let mut world = World::new(1);
    world.calm = true;
    while world.news() || world.request() || world.command() || world.report() {}
    let command = json!([{"name": "c", "image": "process", "command": ["work"]}]);
    let pod = json!({
        "metadata": {"name": "p"}, "spec": {"nodeName": NODE, "restartPolicy": "Never", "containers": command},
    });
    world.ask(&Call::new(Verb::Create, Kind::POD, "default", "").body(&pod));
    while world.news() || world.command() || world.report() || world.request() {}
    assert_eq!(world.writes, 0, "it runs, and nobody has been told yet");
    world.exit();
    while world.news() || world.command() || world.report() || world.request() {}
    assert_eq!(world.writes, 1);
    assert!(matches!(world.pods()[0]["status"]["phase"].as_str(), Some("Failed" | "Succeeded")));
}

#[test]
fn a_node_that_stops_ends_everything_and_tells() {
    let mut world = World::new(2);
    world.calm = true;
    while world.news() || world.request() || world.report() {}
    for _ in 0..4 {
        world.create();
    }
    while world.news() || world.command() || world.report() || world.request() {}
    world.life.mailbox.drain(Span::from_seconds(5));
    world.tell(Input::Tick);
    for _ in 0..10_000 {
        if world.life.mailbox.is_drained() {
            break;
        }
        if !(world.news() || world.command() || world.report() || world.request() || world.exit()) {
            world.tick();
        }
        world.check();
    }
    assert!(world.life.mailbox.is_drained());
    assert!(world.record.values().all(|run| run.exit.is_some()));
    let told: Vec<_> = world.pods().iter().map(|pod| pod["status"]["phase"].as_str().unwrap().to_owned()).collect();
    assert_eq!(told.len(), 4);
    let ran = |uid: &str| world.record.keys().any(|attempt| attempt.pod == PodUid::new(uid));
    for pod in world.pods() {
        let over = matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
        assert!(over || !ran(pod["metadata"]["uid"].as_str().unwrap()), "{pod}");
    }
}

/// A record may belong to a Pod that is bound to another node name: this node must not remove it.
#[test]
fn what_is_on_record_of_a_pod_stays_as_long_as_the_pod_does() {
    for recovered_first in [true, false] {
        let mut world = World::new(6);
        world.calm = true;
        let command = json!([{"name": "c", "image": "process", "command": ["work"]}]);
        let pod = json!({
            "metadata": {"name": "p"}, "spec": {"nodeName": "formerly", "restartPolicy": "Never", "containers": command},
        });
        world.ask(&Call::new(Verb::Create, Kind::POD, "default", "").body(&pod));
        let pod = world.pods().remove(0);
        world.life = Life::begin(&world.registry, false);
        for uid in [pod["metadata"]["uid"].as_str().unwrap(), "of-long-ago"] {
            let uid = PodUid::new(uid);
            world.directories.insert(uid.clone());
            world.life.reports.push_back(Report::Found { pod: uid, attempts: Vec::new() });
        }
        world.life.reports.push_back(Report::Recovered);
        if recovered_first {
            while world.report() {}
        } else {
            while world.news() {}
        }
        while world.news() || world.request() || world.report() || world.command() {}
        assert_eq!(world.directories.len(), 1, "one is gone, the other exists");
        world.delete(&pod, 0);
        while world.news() || world.request() || world.report() || world.command() {}
        assert!(world.directories.is_empty(), "nothing is left behind");
    }
}

/// The Job creates another Pod whenever one is released, and each of them brings the node down: at once, or while its
/// status is being written, and again during the cleanup.
#[test]
fn an_attempt_that_survives_no_restart_has_failed_after_three_whatever_else_happens() {
    for seed in 0..60 {
        let mut world = World::new(seed);
        world.release_lost = true;
        world.life = Life::begin(&world.registry, true);
        world.life.reports.push_back(Report::Recovered);
        let mut uids = BTreeSet::new();
        let mut failed = None;
        for _ in 0..20_000 {
            let pods = world.pods();
            uids.extend(pods.iter().map(|pod| pod["metadata"]["uid"].as_str().unwrap().to_owned()));
            failed = pods.iter().find(|pod| pod["status"]["phase"] == "Failed").cloned();
            if failed.is_some() {
                break;
            }
            let tracked = |pod: &Value| !pod["metadata"]["finalizers"].is_null();
            if !pods.iter().any(tracked) {
                world.made += 1;
                let containers = json!([{"name": "c", "image": "process", "command": ["work"]}]);
                let pod = json!({
                    "metadata": {
                        "name": format!("j-0-{}", world.made), "finalizers": ["batch.kubernetes.io/job-tracking"],
                        "labels": {"batch.kubernetes.io/controller-uid": "j"},
                        "annotations": {"batch.kubernetes.io/job-completion-index": "0"},
                    },
                    "spec": {"nodeName": NODE, "restartPolicy": "Never", "containers": containers},
                });
                world.ask(&Call::new(Verb::Create, Kind::POD, "default", "").body(&pod));
            }
            match world.rng.u32(0..100) {
                0..30 => drop(world.news()),
                30..55 => drop(world.request()),
                55..70 => drop(world.command()),
                70..90 => drop(world.report()),
                90..97 => drop(world.tick()),
                _ => world.crash_unseen(100),
            }
        }
        // A start that failed is a failure of the Pod itself.
        let failed = failed.unwrap_or_else(|| panic!("seed {seed}: it never ends: {:#?}", world.pods()));
        let conditions = failed["status"]["conditions"].as_array().unwrap();
        match conditions.iter().find(|condition| condition["type"] == "DisruptionTarget") {
            Some(target) => {
                assert_eq!(target["reason"], "TerminationByKubelet", "seed {seed}");
                assert_eq!(uids.len(), 3, "seed {seed}: not more often, and not less");
            }
            None => {
                let code = &failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"];
                assert!(*code == 128 && uids.len() <= 3, "seed {seed}: {failed}");
            }
        }
        // The next attempt starts from zero: at once, or when no Pod has continued from the record for an hour.
        world.calm = true;
        let begun_at = world.now();
        while world.now() < begun_at + Span::from_seconds(2 * 3600) {
            while world.news() || world.request() || world.command() || world.report() {}
            world.tick();
        }
        while world.request() {}
        let node = match world.ask(&Call::new(Verb::Get, Kind::NODE, "", NODE)) {
            Reply::Done(bytes) => serde_json::from_slice::<Value>(&bytes).unwrap(),
            reply => panic!("{reply:?}"),
        };
        assert!(node["metadata"]["annotations"]["node.tally.dev/lost-pods"].is_null(), "seed {seed}: {node}");
    }
}
