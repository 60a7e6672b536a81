import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { SCRIPT, failedIndexes, jobFromCronJob, leftIndexes, neighbour, notRun, retryJob } from '../assets/retry.js';

function stored(name, failed, completed, end, more = {}) {
  return {
    metadata: { name, uid: `uid-${name}`, namespace: 'default', annotations: { 'tally.dev/backoff-base': '1s', ...more } },
    spec: {
      completionMode: 'Indexed', completions: 10, backoffLimitPerIndex: 0, parallelism: 4, maxFailedIndexes: 9, suspend: false,
      selector: { matchLabels: { 'controller-uid': 'u' } },
      template: {
        metadata: { labels: { 'controller-uid': 'u', mine: '1' } },
        spec: { containers: [{ name: 'main', command: ['/bin/sh', '-c', 'echo $JOB_COMPLETION_INDEX "$@"', 'sh'], args: ['x y'] }] },
      },
    },
    status: { failedIndexes: failed, completedIndexes: completed, conditions: [{ type: end, status: 'True' }] },
  };
}

test('the failed indexes are run again, and only once', () => {
  const first = stored('sum', '1,3-5', '0,2,6-9', 'Failed');
  const again = retryJob(first, [neighbour(first)], true);
  assert.equal(again.metadata.name, 'sum-retry-1');
  assert.deepEqual(again.metadata.annotations,
    { 'tally.dev/backoff-base': '1s', 'tally.dev/retry-of': 'sum/uid-sum', 'tally.dev/retry-indexes': '1,3-5' });
  assert.deepEqual([again.spec.completions, again.spec.parallelism, again.spec.maxFailedIndexes], [4, 4, 4]);
  assert.deepEqual(again.spec.template.metadata, { labels: { mine: '1' }, annotations: { 'tally.dev/retry-indexes': '1,3-5' } });
  assert.ok(!('selector' in again.spec) && !('suspend' in again.spec));
  assert.equal(again.spec.template.spec.containers[0].command.length, 4);
  const second = { ...again, metadata: { ...again.metadata, uid: 'uid-2' } };
  assert.throws(() => retryJob(first, [first, second].map(neighbour), true), /is running indexes of this Job again/);
  second.status = { failedIndexes: '0,2', completedIndexes: '1,3', conditions: [{ type: 'Failed', status: 'True' }] };
  const third = retryJob(second, [first, second].map(neighbour), true);
  assert.equal(third.metadata.name, 'sum-retry-2');
  assert.equal(third.metadata.annotations['tally.dev/retry-of'], 'sum-retry-1/uid-2');
  assert.equal(third.metadata.annotations['tally.dev/retry-indexes'], '1,4');
});

test('what was not run has not failed, and is run with what has', () => {
  const halted = stored('a', '1,3', '0,2,7', 'Failed');
  assert.deepEqual(failedIndexes(halted), [1, 3]);
  assert.deepEqual(notRun(halted), { count: 5, text: '4-6,8-9' });
  assert.deepEqual(leftIndexes(halted), [1, 3, 4, 5, 6, 8, 9]);
  assert.equal(retryJob(halted, [], true, leftIndexes).metadata.annotations['tally.dev/retry-indexes'], '1,3-6,8,9');
  assert.deepEqual(notRun(stored('a', '', '0-7', 'Complete')), { count: 0, text: '' });
  assert.deepEqual(notRun(stored('a', '', '0-7', 'Other')), { count: 0, text: '' });
  assert.throws(() => retryJob(stored('a', '', '0-7', 'Failed'), [], true), /no failed indexes/);
  assert.deepEqual(retryJob(stored('a', '', '0-7', 'Failed'), [], true, leftIndexes).spec.completions, 2);
});

test('where failures are not counted for each index, all that have not succeeded are run again', () => {
  const whole = stored('a', '', '0-7', 'Failed');
  delete whole.spec.backoffLimitPerIndex;
  assert.deepEqual(failedIndexes(whole), [8, 9]);
  assert.deepEqual(failedIndexes(stored('a', '', '0-7', 'Complete')), []);
  assert.throws(() => retryJob(stored('a', '', '0-9', 'Complete'), [], true), /no failed indexes/);
  const running = stored('a', '1', '', 'Other');
  assert.throws(() => retryJob(running, [], true), /not finished/);
});

test('the parts of a list get the parallelism of the list', () => {
  const part = stored('p', '1,2', '', 'Failed', { 'tally.dev/part-of': 'l', 'tally.dev/first-index': '5', 'tally.dev/parallelism': '8' });
  const again = retryJob(part, [], true);
  assert.equal(again.spec.parallelism, 2);
  assert.ok(!('tally.dev/part-of' in again.metadata.annotations) && !('tally.dev/parallelism' in again.metadata.annotations));
});

test('on another server a script tells each task its index', () => {
  const again = retryJob(stored('sum', '1,3-5,9', '', 'Failed'), [], false);
  const [container] = again.spec.template.spec.containers;
  assert.deepEqual(container.command.slice(0, 4), ['/bin/sh', '-c', SCRIPT, 'sh']);
  for (const [position, index] of [['0', '1'], ['1', '3'], ['3', '5'], ['4', '9']]) {
    const run = spawnSync(container.command[0], [...container.command.slice(1), ...container.args],
      { env: { TALLY_RETRY_POSITION: position, TALLY_RETRY_INDEXES: '1,3-5,9' }, encoding: 'utf8' });
    assert.equal(run.stdout, `${index} x y\n`);
  }
  const bare = stored('sum', '1', '', 'Failed');
  delete bare.spec.template.spec.containers[0].command;
  assert.throws(() => retryJob(bare, [], false), /no command/);
});

test('a Job of a CronJob is what kubectl creates', () => {
  const cronJob = { metadata: { name: 'c', namespace: 'n', uid: 'u' }, spec: { jobTemplate: { metadata: { labels: { a: 'b' } }, spec: { template: {} } } } };
  const job = jobFromCronJob(cronJob, 'c-now');
  assert.equal(job.metadata.annotations['cronjob.kubernetes.io/instantiate'], 'manual');
  assert.deepEqual(job.metadata.ownerReferences, [{ apiVersion: 'batch/v1', kind: 'CronJob', name: 'c', uid: 'u', controller: true }]);
  assert.deepEqual(job.metadata.labels, { a: 'b' });
});
