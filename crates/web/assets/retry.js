// The Job that runs indexes of a finished Job again: the same Job that `tally run --retry-failed` (RETRY-1) or `tally run --resume`
// (RETRY-3) creates of a Job that has not been retried.

import { RETRY_INDEXES_ANNOTATION, RETRY_OF_ANNOTATION, condition } from './model.js';
import { absentRanges, countIndexes, readIndexes, writeIndexes } from './ranges.js';

const GENERATED = ['batch.kubernetes.io/controller-uid', 'batch.kubernetes.io/job-name', 'controller-uid', 'job-name'];
const PART_OF = 'tally.dev/part-of', FIRST_INDEX = 'tally.dev/first-index', PARALLELISM = 'tally.dev/parallelism';
/** All annotations of an object may have 256 KiB. */
const LIST_LENGTH_MAX = 200 * 1024;

const POSITION = 'TALLY_RETRY_POSITION', INDEXES = 'TALLY_RETRY_INDEXES';
/** The script that `tally run --context` puts in front of a command, for kubelets that do not know the annotation. */
export const SCRIPT = `p=$TALLY_RETRY_POSITION
IFS=,
for r in $TALLY_RETRY_INDEXES; do
  a=\${r%-*} b=\${r#*-}
  n=$((b - a + 1))
  if [ "$p" -lt "$n" ]; then JOB_COMPLETION_INDEX=$((a + p)); break; fi
  p=$((p - n))
done
unset IFS
export JOB_COMPLETION_INDEX
exec "$@"`;

export function isFinished(job) {
  return condition(job, 'Complete') !== undefined || condition(job, 'Failed') !== undefined;
}

/** More indexes are not listed here: that would take long. */
const MOST_INDEXES = 1_000_000;

/** Where failures are not counted for each index, it is not known which have failed: all that have not succeeded are meant. */
export function knowsFailed(job) {
  return job.spec?.backoffLimitPerIndex !== undefined && job.spec.backoffLimitPerIndex !== null;
}

/** Whether there are failed indexes, without a list of them. */
export function hasFailedIndexes(job) {
  const { spec = {}, status = {} } = job;
  if (spec.completionMode !== 'Indexed') return false;
  if (knowsFailed(job)) return countIndexes(status.failedIndexes, spec.completions ?? 0) > 0;
  return notRun(job).count > 0;
}

/** Of a finished Job, the indexes that have neither succeeded nor failed: their number, and their text. */
export function notRun(job) {
  const { spec = {}, status = {} } = job;
  if (spec.completionMode !== 'Indexed' || condition(job, 'Failed') === undefined) return { count: 0, text: '' };
  const ranges = absentRanges([status.completedIndexes, status.failedIndexes], spec.completions ?? 0);
  const text = ranges.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(',');
  return { count: ranges.reduce((sum, [first, last]) => sum + last - first + 1, 0), text };
}

function checkSize(job) {
  if ((job.spec?.completions ?? 0) <= MOST_INDEXES) return;
  throw new Error(`The Job has too many completions for this page: more than ${MOST_INDEXES}. Use tally run --resume.`);
}

/** The indexes that have failed for good. */
export function failedIndexes(job) {
  if (job.spec?.completionMode !== 'Indexed') return [];
  if (!knowsFailed(job)) return leftIndexes(job);
  checkSize(job);
  return condition(job, 'Complete') ? [] : readIndexes(job.status?.failedIndexes, job.spec.completions ?? 0);
}

/** All indexes that have not succeeded. */
export function leftIndexes(job) {
  const { spec = {}, status = {} } = job;
  if (spec.completionMode !== 'Indexed' || condition(job, 'Complete')) return [];
  checkSize(job);
  const left = [];
  for (const [first, last] of absentRanges([status.completedIndexes], spec.completions ?? 0)) {
    for (let at = first; at <= last; at++) left.push(at);
  }
  return left;
}

/** What another Job must say for `retryJob`. */
export function neighbour(job) {
  return {
    name: job.metadata.name, retryOf: job.metadata.annotations?.[RETRY_OF_ANNOTATION] ?? '', finished: isFinished(job),
  };
}

/** The Job to create. `all`: the neighbours in its namespace. `select`: the indexes of a Job. Throws an Error with a sentence. */
export function retryJob(job, all, isTally, select = failedIndexes) {
  const { metadata } = job;
  const name = metadata.name;
  if (!isFinished(job)) throw new Error('The Job is not finished.');
  const successor = all.find((other) => other.retryOf === `${name}/${metadata.uid}`);
  if (successor) {
    throw new Error(`Job "${successor.name}" ${successor.finished ? 'has run' : 'is running'} indexes of this Job again. `
      + 'tally run --resume runs what has succeeded in neither.');
  }
  const indexes = select(job);
  if (indexes.length === 0) throw new Error(select === failedIndexes ? 'The Job has no failed indexes.' : 'All indexes of the Job have succeeded.');
  const earlier = metadata.annotations?.[RETRY_INDEXES_ANNOTATION];
  let originals = indexes;
  if (earlier !== undefined) {
    if (countIndexes(earlier) > MOST_INDEXES) throw new Error('The list of indexes of the first Job is too long for this page.');
    const first = readIndexes(earlier);
    originals = indexes.filter((at) => at < first.length).map((at) => first[at]);
  }
  const list = writeIndexes(originals);
  if (list.length > LIST_LENGTH_MAX) throw new Error('The list of the indexes is too long for one Job.');

  const count = indexes.length;
  const spec = structuredClone(job.spec);
  delete spec.suspend;
  // A success policy is about the indexes of the first Job.
  delete spec.successPolicy;
  if (spec.manualSelector !== true) delete spec.selector;
  spec.completions = count;
  for (const limit of ['parallelism', 'maxFailedIndexes']) if (spec[limit] > count) spec[limit] = count;
  const shared = /^[0-9]+$/.exec(metadata.annotations?.[PARALLELISM] ?? '');
  if (shared) spec.parallelism = Math.max(1, Math.min(count, Number(shared[0])));
  spec.template ??= {};
  spec.template.metadata ??= {};
  for (const label of GENERATED) delete spec.template.metadata.labels?.[label];
  spec.template.metadata.annotations = { ...spec.template.metadata.annotations, [RETRY_INDEXES_ANNOTATION]: list };
  const annotations = { ...metadata.annotations };
  for (const part of [PART_OF, FIRST_INDEX, PARALLELISM]) delete annotations[part];
  annotations[RETRY_OF_ANNOTATION] = `${name}/${metadata.uid}`;
  annotations[RETRY_INDEXES_ANNOTATION] = list;
  const stem = /^(.*)-retry-\+?[0-9]+$/.exec(name)?.[1] ?? name;
  const names = new Set(all.map((other) => other.name));
  let number = 1;
  while (names.has(`${stem}-retry-${number}`)) number++;
  const made = {
    apiVersion: 'batch/v1', kind: 'Job',
    metadata: { name: `${stem}-retry-${number}`, namespace: metadata.namespace, annotations },
    spec,
  };
  if (!isTally) giveIndexes(made, list);
  return made;
}

/** Puts the script in front of the commands of a Job. */
function giveIndexes(job, list) {
  for (const container of job.spec.template.spec?.containers ?? []) {
    const command = container.command ?? [];
    if (command.length === 0) {
      throw new Error(`Container "${container.name}" has no command, so its tasks cannot be told their indexes.`);
    }
    if ([...command, ...(container.args ?? [])].some((word) => word.includes('$(JOB_COMPLETION_INDEX)'))) {
      throw new Error(`Container "${container.name}" has $(JOB_COMPLETION_INDEX) in its command, where the cluster writes the index `
        + 'of the new Job. Use a shell and "$JOB_COMPLETION_INDEX" in the Job.');
    }
    if (command[2] !== SCRIPT) container.command = ['/bin/sh', '-c', SCRIPT, 'sh', ...command];
    const env = (container.env ?? []).filter((row) => row.name !== POSITION && row.name !== INDEXES);
    const fieldPath = "metadata.annotations['batch.kubernetes.io/job-completion-index']";
    env.push({ name: POSITION, valueFrom: { fieldRef: { fieldPath } } }, { name: INDEXES, value: list });
    container.env = env;
  }
}

/** The Job that `kubectl create job NAME --from=cronjob/X` creates. */
export function jobFromCronJob(cronJob, name) {
  const template = cronJob.spec.jobTemplate ?? {};
  return {
    apiVersion: 'batch/v1', kind: 'Job',
    metadata: {
      name,
      namespace: cronJob.metadata.namespace,
      labels: template.metadata?.labels,
      annotations: { ...template.metadata?.annotations, 'cronjob.kubernetes.io/instantiate': 'manual' },
      ownerReferences: [{
        apiVersion: 'batch/v1', kind: 'CronJob', name: cronJob.metadata.name, uid: cronJob.metadata.uid, controller: true,
      }],
    },
    spec: template.spec,
  };
}
