// What the page keeps of each object, and what it derives from that. No DOM and no requests: the tests run this in Node.

import { countIndexes, eachRange } from './ranges.js';

/** The states of a Job, in the order in which the list shows them: name, letter, symbol. */
export const JOB_STATES = [
  { id: 'running', name: 'Running', symbol: '▶' },
  { id: 'waiting', name: 'Waiting', symbol: '○' },
  { id: 'suspended', name: 'Suspended', symbol: '‖' },
  { id: 'failed', name: 'Failed', symbol: '✕' },
  { id: 'complete', name: 'Complete', symbol: '✓' },
];
export const JOB_STATE = Object.fromEntries(JOB_STATES.map((state, rank) => [state.id, { ...state, rank }]));

export const INDEX_ANNOTATION = 'batch.kubernetes.io/job-completion-index';
export const FAILURES_ANNOTATION = 'batch.kubernetes.io/job-index-failure-count';
export const RETRY_OF_ANNOTATION = 'tally.dev/retry-of';
export const RETRY_INDEXES_ANNOTATION = 'tally.dev/retry-indexes';

const time = (text) => (text ? Date.parse(text) : 0);

/** Equal strings are stored once: thousands of Jobs have the same labels and namespaces. */
const pool = new Map();
function shared(text) {
  if (text === undefined || text === null) return '';
  const known = pool.get(text);
  if (known !== undefined) return known;
  if (pool.size > 50000) pool.clear();
  pool.set(text, text);
  return text;
}

function compactLabels(labels) {
  const out = {};
  for (const [key, value] of Object.entries(labels ?? {})) {
    // The labels that the API server adds repeat the name and the uid.
    if (key.endsWith('controller-uid') || key === 'job-name' || key === 'batch.kubernetes.io/job-name') continue;
    out[shared(key)] = shared(value);
  }
  return out;
}

export function condition(object, type) {
  return (object.status?.conditions ?? []).find((known) => known.type === type && known.status === 'True');
}

/** The state as the status of the Job says it. Whether it waits may have to be asked: see `mayWait`. */
export function jobState(job) {
  if (condition(job, 'Complete')) return 'complete';
  if (condition(job, 'Failed')) return 'failed';
  if (job.spec?.suspend) return 'suspended';
  const { active = 0, succeeded = 0, failed = 0 } = job.status ?? {};
  return active + succeeded + failed > 0 ? 'running' : 'waiting';
}

/**
 * Whether a Job may wait: it has not ended, is not suspended or deleted, and none of its Pods is ready. Only the server, which
 * explains Jobs, knows. `tally ps` asks by the same rule (assets-tests/may-wait.json).
 */
export function mayWait(job) {
  const decided = ['Complete', 'Failed', 'FailureTarget', 'SuccessCriteriaMet'].some((type) => condition(job, type));
  return !decided && !job.spec?.suspend && !(job.status?.ready > 0) && job.metadata?.deletionTimestamp === undefined;
}

/** Shows in a compact Job what the server says about it: {reason, message}, or nothing. The Job is returned. */
export function applyWait(job, wait) {
  const waits = job.mayWait && wait;
  job.state = waits ? 'waiting' : job.counted;
  job.why = waits ? wait.message : '';
  job.reason = waits ? shared(wait.reason) : job.verdict;
  return job;
}

/** It is asked again about a Job after this time, and about so many Jobs at once. */
const ASK_EVERY = 5000;
const ASKED_AT_ONCE = 20;

/** The Jobs to ask about now, those first about which it was not asked for the longest time. `askedAt` is brought up to date. */
export function chooseAsked(jobs, askedAt, now) {
  const last = (job) => askedAt.get(job.uid) ?? 0;
  const due = [...jobs].filter((job) => job.mayWait && now - last(job) >= ASK_EVERY);
  const asked = due.sort((a, b) => last(a) - last(b)).slice(0, ASKED_AT_ONCE);
  for (const job of asked) askedAt.set(job.uid, now);
  return asked;
}

/** What the list keeps of a Job. */
export function compactJob(job) {
  const { metadata = {}, spec = {}, status = {} } = job;
  const complete = condition(job, 'Complete');
  const failed = condition(job, 'Failed');
  const verdict = complete ?? failed;
  const owner = (metadata.ownerReferences ?? []).find((ref) => ref.controller);
  const indexed = spec.completionMode === 'Indexed';
  return {
    uid: metadata.uid,
    namespace: shared(metadata.namespace),
    name: metadata.name,
    labels: compactLabels(metadata.labels),
    created: time(metadata.creationTimestamp),
    deleting: metadata.deletionTimestamp !== undefined,
    started: time(status.startTime),
    ended: verdict ? time(status.completionTime ?? verdict.lastTransitionTime) : 0,
    state: jobState(job),
    counted: jobState(job),
    mayWait: mayWait(job),
    why: '',
    reason: shared(verdict?.reason ?? condition(job, 'FailureTarget')?.reason),
    verdict: shared(verdict?.reason ?? condition(job, 'FailureTarget')?.reason),
    message: failed?.message ?? '',
    indexed,
    total: spec.completions ?? null,
    parallelism: spec.parallelism ?? 1,
    active: status.active ?? 0,
    // Pods that run. A controller that does not count those that are ready says only how many there are.
    running: status.ready ?? status.active ?? 0,
    succeeded: status.succeeded ?? 0,
    failed: status.failed ?? 0,
    failedIndexes: indexed ? countIndexes(status.failedIndexes) : 0,
    cronJob: owner?.kind === 'CronJob' ? owner.uid : '',
    retryOf: metadata.annotations?.[RETRY_OF_ANNOTATION] ?? '',
    // Completions for each second, as observed by this page; see `observeRate`.
    sampleTime: 0, sampleDone: 0, rate: 0,
  };
}

/** Half of the weight of an observation is lost after this time. */
const RATE_HALF_LIFE = 20000;

/** Continues the rate of the earlier version of a Job. */
export function observeRate(job, earlier, now) {
  const done = job.succeeded + job.failedIndexes;
  if (!earlier || earlier.uid !== job.uid || earlier.sampleTime === 0 || done < earlier.sampleDone) {
    [job.sampleTime, job.sampleDone, job.rate] = [now, done, 0];
    return job;
  }
  const passed = now - earlier.sampleTime;
  if (passed < 1000) {
    [job.sampleTime, job.sampleDone, job.rate] = [earlier.sampleTime, earlier.sampleDone, earlier.rate];
    return job;
  }
  const seen = (done - earlier.sampleDone) / (passed / 1000);
  const weight = earlier.rate === 0 ? 1 : 1 - 0.5 ** (passed / RATE_HALF_LIFE);
  [job.sampleTime, job.sampleDone, job.rate] = [now, done, earlier.rate + (seen - earlier.rate) * weight];
  return job;
}

/** Completions for each second of a running Job: observed, or since its start. */
export function rateOf(job, now) {
  if (job.state !== 'running' && job.state !== 'waiting') {
    const took = (job.ended - job.started) / 1000;
    return job.ended && job.started && took > 0 ? job.succeeded / took : 0;
  }
  // An old observation says nothing if nothing has completed since.
  const quiet = job.sampleTime ? now - job.sampleTime : 0;
  if (job.rate > 0) return job.rate * 0.5 ** (Math.max(0, quiet - 5000) / RATE_HALF_LIFE / 2);
  const since = job.started ? (now - job.started) / 1000 : 0;
  return since > 0 ? job.succeeded / since : 0;
}

/** Milliseconds until all completions are done at the present rate; null if that is not known. */
export function timeLeft(job, now) {
  if (job.state !== 'running' || !job.total) return null;
  const left = job.total - job.succeeded - job.failedIndexes;
  const rate = rateOf(job, now);
  return left <= 0 ? 0 : rate > 0 ? (left / rate) * 1000 : null;
}

/** From 0 to 1; null for a Job without completions. */
export function progress(job) {
  if (job.state === 'complete') return 1;
  return job.total ? Math.min(1, job.succeeded / job.total) : job.total === 0 ? 1 : null;
}

// --- Labels ---

/** Reads a label selector: "a=b, c!=d, e, !f, g in (x,y), h notin (z)". Throws an Error with a sentence. */
export function readSelector(text) {
  const rest = text.trim();
  if (rest === '') return [];
  // Commas in parentheses separate values.
  const parts = rest.match(/(?:\([^)]*\)|[^,(])+/g) ?? [];
  return parts.map((part) => part.trim()).filter((part) => part !== '').map((part) => {
    let match = /^([^\s=!(),]+)\s+(in|notin)\s*\(([^)]*)\)$/.exec(part);
    if (match) return { key: match[1], op: match[2], values: match[3].split(',').map((value) => value.trim()) };
    match = /^([^\s=!(),]+)\s*(==|=|!=)\s*([^\s=!(),]*)$/.exec(part);
    if (match) return { key: match[1], op: match[2] === '!=' ? 'notin' : 'in', values: [match[3]] };
    match = /^(!?)\s*([^\s=!(),]+)$/.exec(part);
    if (match) return { key: match[2], op: match[1] ? 'absent' : 'present', values: [] };
    throw new Error(`"${part}" is not a label selector; write key=value, key!=value, key, !key or key in (a,b)`);
  });
}

export function matchesLabels(selector, labels) {
  return selector.every(({ key, op, values }) => {
    const value = Object.hasOwn(labels, key) ? labels[key] : undefined;
    if (op === 'present') return value !== undefined;
    if (op === 'absent') return value === undefined;
    if (op === 'in') return value !== undefined && values.includes(value);
    return value === undefined || !values.includes(value);
  });
}

// --- Sorting ---

const byName = (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : a.namespace < b.namespace ? -1 : a.namespace > b.namespace ? 1 : 0);
const isActive = (job) => (job.state === 'running' || job.state === 'waiting' ? 0 : 1);

/** The columns by which Jobs can be sorted. `down`: the first click sorts from high to low. */
export const JOB_SORTS = {
  recent: { compare: (a, b) => isActive(a) - isActive(b) || b.created - a.created || byName(a, b) },
  name: { compare: byName },
  namespace: { compare: (a, b) => (a.namespace < b.namespace ? -1 : a.namespace > b.namespace ? 1 : byName(a, b)) },
  state: { compare: (a, b) => JOB_STATE[a.state].rank - JOB_STATE[b.state].rank || b.created - a.created || byName(a, b) },
  progress: { value: (job) => progress(job) ?? -1, down: true },
  rate: { value: rateOf, down: true },
  left: { value: (job, now) => timeLeft(job, now) ?? Infinity },
  failures: { value: (job) => job.failed, down: true },
  age: { value: (job) => -job.created },
  took: { value: (job, now) => (job.started ? (job.ended || now) - job.started : -1), down: true },
};

/** Sorts in place. */
export function sortJobs(jobs, column, reverse, now) {
  const sort = Object.hasOwn(JOB_SORTS, column) ? JOB_SORTS[column] : JOB_SORTS.recent;
  const sign = reverse ? -1 : 1;
  if (sort.compare) return jobs.sort((a, b) => sign * sort.compare(a, b));
  const values = new Map(jobs.map((job) => [job, sort.value(job, now)]));
  const base = sort.down ? -sign : sign;
  return jobs.sort((a, b) => {
    const [x, y] = [values.get(a), values.get(b)];
    return x === y ? byName(a, b) : base * (x < y ? -1 : 1);
  });
}

// --- Pods ---

function exitOf(statuses) {
  let exit = null;
  for (const status of statuses ?? []) {
    const ended = status.state?.terminated ?? status.lastState?.terminated;
    if (ended && (exit === null || (exit.exitCode === 0 && ended.exitCode !== 0))) exit = ended;
  }
  return exit;
}

/** What the page keeps of a Pod. */
export function compactPod(pod) {
  const { metadata = {}, spec = {}, status = {} } = pod;
  const annotations = metadata.annotations ?? {};
  const index = annotations[INDEX_ANNOTATION] ?? metadata.labels?.[INDEX_ANNOTATION];
  const statuses = status.containerStatuses ?? [];
  const exit = exitOf(statuses) ?? exitOf(status.initContainerStatuses);
  let began = 0, ended = 0, restarts = 0, waiting = '';
  for (const one of statuses) {
    const { running, terminated } = one.state ?? {};
    const start = time(running?.startedAt ?? terminated?.startedAt ?? one.lastState?.terminated?.startedAt);
    if (start && (!began || start < began)) began = start;
    ended = Math.max(ended, time(terminated?.finishedAt));
    restarts += one.restartCount ?? 0;
    waiting ||= one.state?.waiting?.reason ?? '';
  }
  const phase = status.phase ?? 'Pending';
  const finished = phase === 'Succeeded' || phase === 'Failed';
  const stopped = condition(pod, 'DisruptionTarget');
  const created = time(metadata.creationTimestamp);
  if (finished && !ended) ended = Math.max(began, created);
  return {
    uid: metadata.uid,
    name: metadata.name,
    namespace: shared(metadata.namespace),
    index: index === undefined ? -1 : Number(index),
    failuresBefore: Number(annotations[FAILURES_ANNOTATION] ?? 0),
    created,
    began,
    ended: finished ? ended : 0,
    phase: shared(phase),
    deleting: metadata.deletionTimestamp !== undefined,
    exitCode: exit ? exit.exitCode : null,
    signal: exit?.signal ?? 0,
    reason: shared(status.reason ?? stopped?.reason ?? exit?.reason ?? waiting),
    message: (exit?.message || status.message || stopped?.message || '').slice(0, 2000),
    restarts,
    node: shared(spec.nodeName),
    containers: shared((spec.containers ?? []).map((one) => one.name).join(',')),
    job: shared(metadata.labels?.['batch.kubernetes.io/job-name'] ?? metadata.labels?.['job-name']),
    attempt: 0,
  };
}

/** A Pod of the view of nodes, with its requests. */
export function compactNodePod(pod) {
  const kept = compactPod(pod);
  kept.requests = (pod.spec?.containers ?? []).map((one) => one.resources?.requests ?? {});
  return kept;
}

/** One of: waiting, running, succeeded, failed. */
export function podState(pod) {
  if (pod.phase === 'Succeeded') return 'succeeded';
  if (pod.phase === 'Failed') return 'failed';
  return pod.phase === 'Running' ? 'running' : 'waiting';
}

/** Orders Pods by index and time, and numbers the attempts of each index from 1. Returns the sorted array. */
export function numberAttempts(pods) {
  pods.sort((a, b) => a.index - b.index || a.created - b.created || (a.name < b.name ? -1 : 1));
  let attempt = 0;
  for (let at = 0; at < pods.length; at++) {
    const pod = pods[at];
    attempt = pod.index >= 0 && at > 0 && pods[at - 1].index === pod.index ? attempt + 1 : 1;
    // Earlier Pods may have been deleted: the Pod knows how many failures came before it.
    attempt = Math.max(attempt, pod.failuresBefore + 1);
    pod.attempt = attempt;
  }
  return pods;
}

// --- The field of indexes ---

/** The states of an index, by the number that the field stores. */
export const INDEX_STATES = [
  { id: 'waiting', name: 'Waiting', letter: 'W', text: 'waiting' },
  { id: 'running', name: 'Running', letter: 'R', text: 'running' },
  { id: 'succeeded', name: 'Succeeded', letter: 'S', text: 'succeeded' },
  { id: 'failed', name: 'Failed', letter: 'F', text: 'failed' },
  { id: 'retrying', name: 'Retrying', letter: 'T', text: 'has failed before and is tried again' },
  { id: 'retried', name: 'Succeeded after a retry', letter: 'A', text: 'succeeded after a retry' },
];
export const [WAITING, RUNNING, SUCCEEDED, FAILED, RETRYING, RETRIED] = [0, 1, 2, 3, 4, 5];
/** The field shows at most this many indexes. */
export const FIELD_MAX = 4000000;

/**
 * One byte of state for every index. `job`: the object of the API; `pods`: compact Pods. Indexes in the status are certain;
 * Pods say what the others do. A Job without indexes gets one cell for each completion, in the order of states.
 */
export function buildField(job, pods) {
  const { spec = {}, status = {} } = job;
  const succeeded = status.succeeded ?? 0;
  const size = Math.min(FIELD_MAX, spec.completions ?? succeeded + (status.active ?? 0));
  const field = new Uint8Array(size);
  if (spec.completionMode !== 'Indexed') {
    field.fill(SUCCEEDED, 0, Math.min(size, succeeded));
    // Pods that have not started are not drawn as if they ran.
    const running = pods.reduce((n, pod) => n + (pod.phase === 'Running' ? 1 : 0), 0);
    field.fill(RUNNING, Math.min(size, succeeded), Math.min(size, succeeded + running));
    return field;
  }
  eachRange(status.completedIndexes, size, (first, last) => field.fill(SUCCEEDED, first, last + 1));
  eachRange(status.failedIndexes, size, (first, last) => field.fill(FAILED, first, last + 1));
  for (const pod of pods) {
    const at = pod.index;
    if (!(at >= 0 && at < size) || field[at] === FAILED) continue;
    const failedBefore = pod.phase === 'Failed' || pod.failuresBefore > 0;
    if (field[at] === SUCCEEDED || field[at] === RETRIED) {
      if (failedBefore) field[at] = RETRIED;
    } else if (failedBefore) {
      field[at] = RETRYING;
    } else if (field[at] !== RETRYING) {
      // A Pod that has succeeded but is not counted yet.
      field[at] = pod.phase === 'Succeeded' ? SUCCEEDED : pod.phase === 'Running' ? RUNNING : field[at];
    }
  }
  return field;
}

/** How many indexes are in each state. */
export function countField(field) {
  const counts = new Array(INDEX_STATES.length).fill(0);
  for (let at = 0; at < field.length; at++) counts[field[at]]++;
  return counts;
}

// --- Time ---

/**
 * Puts Pods into lanes so that Pods in one lane do not overlap: as many lanes as Pods existed at the same time.
 * Returns {lanes: Int32Array by position in `pods`, count}. `pods` are sorted by creation.
 */
export function packLanes(pods, now) {
  const lanes = new Int32Array(pods.length);
  const ends = [];
  // The first free lane: a scan from the lowest lane is short, because parallelism is small compared to the number of Pods.
  pods.forEach((pod, at) => {
    const start = pod.created, end = pod.ended || now;
    let lane = ends.findIndex((free) => free <= start);
    if (lane < 0) lane = ends.push(0) - 1;
    ends[lane] = Math.max(end, start + 1);
    lanes[at] = lane;
  });
  return { lanes, count: ends.length };
}

/**
 * Running, succeeded and failed Pods over time: [{t, running, succeeded, failed}], ascending. At most `points` entries: between
 * them the last value holds.
 */
export function buildCurve(pods, now, points = 600) {
  const changes = [];
  for (const pod of pods) {
    const began = pod.began || (pod.phase === 'Running' ? pod.created : 0);
    if (began) changes.push([began, 1, 0, 0]);
    if (pod.ended) {
      const state = podState(pod);
      changes.push([pod.ended, began ? -1 : 0, state === 'succeeded' ? 1 : 0, state === 'failed' ? 1 : 0]);
    }
  }
  if (changes.length === 0) return [];
  changes.sort((a, b) => a[0] - b[0]);
  const first = changes[0][0], span = Math.max(1, now - first);
  const curve = [{ t: first, running: 0, succeeded: 0, failed: 0 }];
  let [running, succeeded, failed] = [0, 0, 0];
  for (const [t, r, s, f] of changes) {
    [running, succeeded, failed] = [running + r, succeeded + s, failed + f];
    const last = curve[curve.length - 1];
    const slot = Math.floor(((t - first) / span) * points);
    if (curve.length > 1 && Math.floor(((last.t - first) / span) * points) === slot) {
      Object.assign(last, { running, succeeded, failed });
    } else {
      curve.push({ t, running, succeeded, failed });
    }
  }
  const end = pods.every((pod) => pod.ended) ? curve[curve.length - 1].t : now;
  curve.push({ t: end, running, succeeded, failed });
  return curve;
}

// --- CronJobs, nodes and events ---

export function compactCronJob(object) {
  const { metadata = {}, spec = {}, status = {} } = object;
  return {
    uid: metadata.uid,
    namespace: shared(metadata.namespace),
    name: metadata.name,
    labels: compactLabels(metadata.labels),
    created: time(metadata.creationTimestamp),
    schedule: spec.schedule ?? '',
    timeZone: spec.timeZone ?? '',
    suspended: spec.suspend === true,
    policy: shared(spec.concurrencyPolicy ?? 'Allow'),
    active: (status.active ?? []).length,
    last: time(status.lastScheduleTime),
    lastSuccess: time(status.lastSuccessfulTime),
  };
}

export function compactNode(node) {
  const { metadata = {}, spec = {}, status = {} } = node;
  return {
    uid: metadata.uid,
    name: metadata.name,
    created: time(metadata.creationTimestamp),
    ready: condition(node, 'Ready') !== undefined,
    conditions: (status.conditions ?? []).map(({ type, status: value, reason, message }) => ({ type, value, reason, message })),
    unschedulable: spec.unschedulable === true,
    taints: (spec.taints ?? []).map((taint) => `${taint.key}${taint.value ? `=${taint.value}` : ''}:${taint.effect}`),
    allocatable: status.allocatable ?? {},
    version: shared(status.nodeInfo?.kubeletVersion),
  };
}

export function compactEvent(event) {
  const { metadata = {} } = event;
  return {
    uid: metadata.uid,
    type: shared(event.type ?? 'Normal'),
    reason: shared(event.reason),
    message: event.message ?? event.note ?? '',
    count: event.series?.count ?? event.count ?? 1,
    time: time(event.series?.lastObservedTime ?? event.lastTimestamp ?? event.eventTime ?? metadata.creationTimestamp),
    from: shared(event.source?.component ?? event.reportingComponent),
  };
}
