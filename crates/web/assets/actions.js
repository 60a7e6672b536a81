// Changes of objects. Each one asks first and says what it sends.

import { getJson, listAll, listPath, objectPath, send, withQuery } from './api.js';
import { h, toast } from './dom.js';
import { count } from './format.js';
import { failedIndexes, jobFromCronJob, leftIndexes, neighbour, retryJob } from './retry.js';

const BATCH = 'batch/v1';
const MERGE_PATCH = 'application/merge-patch+json';

/**
 * A dialog with a question. `work()` does it and returns the sentence for afterwards; if it fails, the dialog stays and shows why.
 */
export function ask({ title, text, fields = [], command = () => '', confirm, danger = false, work }) {
  const problem = h('p', { class: 'problem', role: 'alert', hidden: true });
  const button = h('button', { type: 'submit', class: danger ? 'danger' : 'primary' }, confirm);
  const line = h('code', { class: 'command' });
  const same = h('details', { class: 'same' }, h('summary', null, 'The same with kubectl'), line);
  const showCommand = () => { line.textContent = command(); same.hidden = line.textContent === ''; };
  const close = () => { dialog.close(); dialog.remove(); };
  const submit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    problem.hidden = true;
    try {
      const done = await work();
      close();
      toast(done);
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
      button.disabled = false;
    }
  };
  const dialog = h('dialog', { class: 'ask', 'aria-labelledby': 'ask-title', oncancel: (event) => { event.preventDefault(); close(); } },
    h('form', { onsubmit: submit, oninput: showCommand },
      h('h2', { id: 'ask-title' }, title), text.map((sentence) => h('p', null, sentence)), fields, problem, same,
      h('div', { class: 'buttons' }, h('button', { type: 'button', onclick: close }, 'Cancel'), button)));
  document.body.append(dialog);
  showCommand();
  dialog.showModal();
  (fields.length > 0 ? dialog.querySelector('input,select') : button).focus();
  return dialog;
}

/** A merge patch that applies only to this object: an object of the same name with another uid answers 409. */
function patch(resource, { metadata: { namespace, name, uid } }, change) {
  return send('PATCH', objectPath(BATCH, namespace, resource, name), { type: MERGE_PATCH, body: { metadata: { uid }, ...change } });
}

const at = ({ metadata: { namespace } }) => `-n ${namespace}`;

export function setSuspended(job, suspend) {
  const { name } = job.metadata;
  ask({
    title: suspend ? `Suspend Job ${name}?` : `Resume Job ${name}?`,
    text: [suspend
      ? `Its ${count(job.status?.active ?? 0)} active Pods are deleted, and no new ones are created until the Job is resumed. Completions that are counted stay.`
      : 'The Job creates Pods again. Its start time, from which activeDeadlineSeconds counts, is set again.'],
    command: () => `kubectl patch job ${name} ${at(job)} --type=merge -p '{"spec":{"suspend":${suspend}}}'`,
    confirm: suspend ? 'Suspend' : 'Resume',
    work: async () => {
      await patch('jobs', job, { spec: { suspend } });
      return suspend ? `Job ${name} is suspended.` : `Job ${name} is resumed.`;
    },
  });
}

export function setParallelism(job) {
  const { name } = job.metadata;
  const input = h('input', { type: 'number', min: '0', max: '2147483647', step: '1', required: true, id: 'parallelism', value: String(job.spec.parallelism ?? 1) });
  ask({
    title: `Parallelism of Job ${name}`,
    text: ['At most this many Pods run at the same time. If it is lower than the number of active Pods, some of them are deleted; 0 stops the Job like a pause.'],
    fields: [h('label', { for: 'parallelism' }, 'Parallelism ', input)],
    command: () => `kubectl patch job ${name} ${at(job)} --type=merge -p '{"spec":{"parallelism":${Number(input.value)}}}'`,
    confirm: 'Change',
    work: async () => {
      await patch('jobs', job, { spec: { parallelism: Number(input.value) } });
      return `Job ${name} has parallelism ${count(Number(input.value))}.`;
    },
  });
}

const PROPAGATION = [
  ['Background', 'Background: delete the Job now, its Pods afterwards'],
  ['Foreground', 'Foreground: delete its Pods first, then the Job'],
  ['Orphan', 'Orphan: delete the Job and keep its Pods'],
];

export function deleteObject(resource, kind, object, done) {
  const { name, namespace, uid } = object.metadata;
  const select = h('select', { id: 'propagation' }, PROPAGATION.map(([value, text]) =>
    h('option', { value }, kind === 'CronJob' ? text.replace('its Pods', 'its Jobs').replace('the Job', 'the CronJob') : text)));
  ask({
    title: `Delete ${kind} ${name}?`,
    text: [`Namespace ${namespace}. This cannot be undone.`],
    fields: [h('label', { for: 'propagation' }, 'What it owns ', select)],
    command: () => `kubectl delete ${kind.toLowerCase()} ${name} ${at(object)} --cascade=${select.value.toLowerCase()}`,
    confirm: 'Delete',
    danger: true,
    work: async () => {
      await send('DELETE', objectPath(BATCH, namespace, resource, name), {
        body: { apiVersion: 'v1', kind: 'DeleteOptions', propagationPolicy: select.value, preconditions: { uid } },
      });
      done();
      return `${kind} ${name} is being deleted.`;
    },
  });
}

export function retryFailed(job) {
  const failed = failedIndexes(job).length;
  runAgain(job, failedIndexes, `Retry ${count(failed)} failed ${failed === 1 ? 'index' : 'indexes'}`, '--retry-failed');
}

export function runTheRest(job) {
  const left = leftIndexes(job).length;
  runAgain(job, leftIndexes, `Run ${count(left)} ${left === 1 ? 'index that has' : 'indexes that have'} not succeeded`, '--resume');
}

function runAgain(job, select, what, flag) {
  const { name, namespace } = job.metadata;
  ask({
    title: `${what} of Job ${name}?`,
    text: [
      'A new Job is created with one completion for each of them and everything else from this Job. Each task sees the index that it had in the first Job.',
      `It is the Job that \`tally run ${flag}\` creates.`,
    ],
    confirm: 'Create the Job',
    work: async () => {
      const all = [];
      const [version] = await Promise.all([
        getJson('/version').catch(() => ({})),
        listAll(listPath(BATCH, namespace, 'jobs'), {}, undefined, (other) => all.push(neighbour(other))),
      ]);
      const fresh = await getJson(objectPath(BATCH, namespace, 'jobs', name));
      if (fresh.metadata.uid !== job.metadata.uid) throw new Error('The Job has been replaced by another one of that name.');
      const made = retryJob(fresh, all, (version.gitVersion ?? '').includes('+tally.'), select);
      await send('POST', listPath(BATCH, namespace, 'jobs'), { body: made });
      location.hash = `#/jobs/${namespace}/${made.metadata.name}`;
      return `Job ${made.metadata.name} is created.`;
    },
  });
}

/** A name that is free with high probability; a conflict is answered with 409 and shown. */
function freshName(name) {
  const letters = 'bcdfghjklmnpqrstvwxz2456789';
  const random = Array.from(crypto.getRandomValues(new Uint8Array(5)), (byte) => letters[byte % letters.length]).join('');
  return `${name.slice(0, 50)}-manual-${random}`;
}

export function runCronJob(namespace, name) {
  const input = h('input', { type: 'text', id: 'job-name', required: true, maxlength: '63', pattern: '[a-z0-9]([a-z0-9.\\-]*[a-z0-9])?', value: freshName(name), autocomplete: 'off' });
  ask({
    title: `Run CronJob ${name} now?`,
    text: ['A Job is created from its template, as `kubectl create job --from` does. The schedule does not change.'],
    fields: [h('label', { for: 'job-name' }, 'Name of the Job ', input)],
    command: () => `kubectl create job ${input.value} -n ${namespace} --from=cronjob/${name}`,
    confirm: 'Run now',
    work: async () => {
      const cronJob = await getJson(objectPath(BATCH, namespace, 'cronjobs', name));
      await send('POST', withQuery(listPath(BATCH, namespace, 'jobs'), {}), { body: jobFromCronJob(cronJob, input.value) });
      return `Job ${input.value} is created.`;
    },
  });
}

export function setCronSuspended(cronJob, suspend) {
  const { name } = cronJob.metadata;
  ask({
    title: suspend ? `Suspend CronJob ${name}?` : `Resume CronJob ${name}?`,
    text: [suspend ? 'No more Jobs are created at the scheduled times. Jobs that run are not changed.'
      : 'Jobs are created at the scheduled times again. Times that were missed may be made up, within startingDeadlineSeconds.'],
    command: () => `kubectl patch cronjob ${name} ${at(cronJob)} --type=merge -p '{"spec":{"suspend":${suspend}}}'`,
    confirm: suspend ? 'Suspend' : 'Resume',
    work: async () => {
      await patch('cronjobs', cronJob, { spec: { suspend } });
      return suspend ? `CronJob ${name} is suspended.` : `CronJob ${name} is resumed.`;
    },
  });
}
