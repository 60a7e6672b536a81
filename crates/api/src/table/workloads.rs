//! Kinds that keep Pods running. Tally stores them; no controller here runs them yet.

use tally_value::Value;

use super::row::Row;
use super::{AGE, Column, NAME};

const CONTAINERS: &str = "/spec/template/spec/containers";

const NAMES: Column =
    Column::text("Containers", "The names of the template's containers.", |row| row.joined(CONTAINERS, "name")).wide();
const IMAGES: Column =
    Column::text("Images", "The images of the template's containers.", |row| row.joined(CONTAINERS, "image")).wide();
const SELECTOR: Column =
    Column::text("Selector", "The labels by which it knows its Pods.", |row| row.selector("/spec/selector")).wide();
const DESIRED: Column =
    Column::integer("Desired", "How many Pods there should be.", |row| row.int("/spec/replicas").into());
const CURRENT: Column =
    Column::integer("Current", "How many Pods there are.", |row| row.int("/status/replicas").into());
const READY: Column =
    Column::integer("Ready", "How many Pods are ready.", |row| row.int("/status/readyReplicas").into());

pub(super) static SCALES: &[Column] = &[
    NAME,
    DESIRED,
    Column::integer("Available", "How many Pods there are.", |row| row.int("/status/replicas").into()),
    AGE,
];

pub(super) static DEPLOYMENTS: &[Column] = &[
    NAME,
    Column::text("Ready", "How many Pods are ready, of how many that should be.", ready_of_desired),
    Column::text("Up-to-date", "How many Pods follow the newest template.", |row| {
        row.int("/status/updatedReplicas").into()
    }),
    Column::text("Available", "How many Pods have been ready long enough.", |row| {
        row.int("/status/availableReplicas").into()
    }),
    AGE,
    NAMES,
    IMAGES,
    SELECTOR,
];

pub(super) static REPLICA_SETS: &[Column] = &[NAME, DESIRED, CURRENT, READY, AGE, NAMES, IMAGES, SELECTOR];

pub(super) static REPLICATION_CONTROLLERS: &[Column] = &[
    NAME,
    DESIRED,
    CURRENT,
    READY,
    AGE,
    NAMES,
    IMAGES,
    Column::text("Selector", "The labels by which it knows its Pods.", |row| row.labels("/spec/selector")).wide(),
];

pub(super) static STATEFUL_SETS: &[Column] = &[
    NAME,
    Column::text("Ready", "How many Pods are ready, of how many that should be.", ready_of_desired),
    AGE,
    NAMES,
    IMAGES,
];

pub(super) static DAEMON_SETS: &[Column] = &[
    NAME,
    Column::integer("Desired", "How many nodes should run its Pod.", |row| {
        row.int("/status/desiredNumberScheduled").into()
    }),
    Column::integer("Current", "How many of these nodes have it.", |row| {
        row.int("/status/currentNumberScheduled").into()
    }),
    Column::integer("Ready", "On how many it is ready.", |row| row.int("/status/numberReady").into()),
    Column::integer("Up-to-date", "On how many it follows the newest template.", |row| {
        row.int("/status/updatedNumberScheduled").into()
    }),
    Column::integer("Available", "On how many it has been ready long enough.", |row| {
        row.int("/status/numberAvailable").into()
    }),
    Column::text("Node Selector", "The labels of the nodes that should run it.", |row| {
        row.labels("/spec/template/spec/nodeSelector")
    }),
    AGE,
    NAMES,
    IMAGES,
    SELECTOR,
];

pub(super) static POD_TEMPLATES: &[Column] = &[
    NAME,
    Column::text("Containers", "The names of the containers.", |row| row.joined("/template/spec/containers", "name")),
    Column::text("Images", "The images of the containers.", |row| row.joined("/template/spec/containers", "image")),
    Column::text("Pod Labels", "The labels Pods made from it get.", |row| row.labels("/template/metadata/labels")),
];

fn ready_of_desired(row: &Row) -> Value {
    format!("{}/{}", row.int("/status/readyReplicas"), row.int("/spec/replicas")).into()
}
