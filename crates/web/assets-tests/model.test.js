import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import * as model from '../assets/model.js';

const job = (spec, status = {}, metadata = {}) => ({ metadata: { name: 'a', namespace: 'n', uid: 'u', ...metadata }, spec, status });

test('the state of a Job', () => {
  const done = (type) => ({ conditions: [{ type, status: 'True' }] });
  for (const [spec, status, state] of [
    [{}, {}, 'waiting'], [{}, { active: 1 }, 'running'], [{}, { failed: 1 }, 'running'], [{ suspend: true }, {}, 'suspended'],
    [{}, done('Complete'), 'complete'], [{ suspend: true }, done('Failed'), 'failed'],
    [{}, { conditions: [{ type: 'Failed', status: 'False' }] }, 'waiting'],
  ]) assert.equal(model.jobState(job(spec, status)), state);
});

test('a Job without a ready Pod may wait, as tally ps decides it', () => {
  const cases = JSON.parse(readFileSync(new URL('may-wait.json', import.meta.url)));
  for (const one of cases) {
    assert.equal(model.mayWait(one.job), one.mayWait, JSON.stringify(one));
    // The page has no state for a Job that ends.
    const state = one.state === 'Ending' ? 'running' : one.state.toLowerCase();
    assert.equal(model.jobState(one.job), state, JSON.stringify(one));
  }
});

test('a Job waits if the server says so, and only as long as its status leaves it open', () => {
  const of = (status) => model.compactJob(job({ completions: 1 }, status));
  const wait = { reason: 'Unschedulable', message: 'It fits nowhere.' };
  const shown = ({ state, reason, why }) => [state, reason, why];
  const open = of({ active: 1, ready: 0 });
  assert.deepEqual(shown(model.applyWait(open, wait)), ['waiting', 'Unschedulable', 'It fits nowhere.']);
  assert.deepEqual(shown(model.applyWait(open, undefined)), ['running', '', '']);
  assert.deepEqual(shown(model.applyWait(of({ active: 1, ready: 1 }), wait)), ['running', '', '']);
  assert.equal(open.running, 0, 'a Pod that has not started is no part of the bar');
  assert.equal(of({ active: 3 }).running, 3);
});

test('it is asked about a few Jobs at a time, in turn, and not too often', () => {
  const jobs = Array.from({ length: 30 }, (_, n) => ({ uid: `u${n}`, mayWait: n !== 0 }));
  const askedAt = new Map();
  const uids = (now) => model.chooseAsked(jobs, askedAt, now).map((one) => one.uid);
  const first = uids(100000);
  assert.equal(first.length, 20);
  assert.ok(!first.includes('u0'));
  const second = uids(100000);
  assert.equal(second.length, 9);
  assert.ok(second.every((uid) => !first.includes(uid)));
  assert.deepEqual(uids(101000), []);
  assert.equal(uids(105000).length, 20);
});

test('rate and time left follow what was observed', () => {
  const at = (succeeded) => model.compactJob(job({ completions: 100, completionMode: 'Indexed' }, { active: 2, succeeded, startTime: '2026-01-01T00:00:00Z' }));
  const start = Date.parse('2026-01-01T00:00:00Z');
  let seen = model.observeRate(at(10), undefined, start + 10000);
  assert.equal(model.rateOf(seen, start + 10000), 1);
  seen = model.observeRate(at(30), seen, start + 20000);
  assert.equal(model.rateOf(seen, start + 20000), 2);
  assert.equal(model.timeLeft(seen, start + 20000), 35000);
  assert.equal(model.observeRate(at(31), seen, start + 20500).rate, 2, 'a short time is no observation');
  assert.equal(model.timeLeft(model.compactJob(job({ completions: 5, suspend: true })), start), null);
});

test('label selectors', () => {
  const labels = { app: 'web', tier: 'x' };
  for (const [text, expected] of [
    ['', true], ['app=web', true], ['app==web,tier!=y', true], ['app=db', false], ['app', true], ['!app', false], ['!none', true],
    ['app in (db, web)', true], ['app notin (db,web), tier', false], ['none!=x', true], ['toString', false],
  ]) assert.equal(model.matchesLabels(model.readSelector(text), labels), expected, text);
  assert.throws(() => model.readSelector('a=b=c'));
});

test('the field of indexes', () => {
  const pod = (index, phase, failuresBefore = 0) => ({ index, phase, failuresBefore });
  const indexed = job({ completionMode: 'Indexed', completions: 9 }, { completedIndexes: '0-2', failedIndexes: '4' });
  const pods = [
    pod(1, 'Failed'), pod(1, 'Succeeded', 1), pod(3, 'Running'), pod(4, 'Failed'), pod(5, 'Failed'), pod(5, 'Running', 1), pod(6, 'Pending'),
    pod(7, 'Succeeded'), pod(99, 'Running'), pod(-1, 'Running'),
  ];
  const field = model.buildField(indexed, pods);
  assert.equal([...field].map((state) => model.INDEX_STATES[state].letter).join(''), 'SASRFTWSW');
  assert.deepEqual(model.countField(field), [2, 1, 3, 1, 1, 1]);
  const plain = model.buildField(job({ completions: 5 }, { succeeded: 2, active: 2 }), [pod(-1, 'Running'), pod(-1, 'Pending'), pod(-1, 'Succeeded')]);
  assert.deepEqual([...plain], [2, 2, 1, 0, 0], 'a Pod that has not started does not run');
  assert.equal(model.buildField(job({}, { succeeded: 1, active: 2 }), []).length, 3);
});

test('attempts are numbered by index, also if earlier Pods are gone', () => {
  const pod = (name, index, created, failuresBefore = 0) => ({ name, index, created, failuresBefore });
  const pods = model.numberAttempts([pod('c', 1, 30, 1), pod('a', 1, 10), pod('d', 2, 5, 3), pod('b', 0, 7), pod('x', -1, 1), pod('y', -1, 2)]);
  assert.deepEqual(pods.map((one) => `${one.name}${one.attempt}`), ['x1', 'y1', 'b1', 'a1', 'c2', 'd4']);
});

test('lanes hold Pods that do not overlap', () => {
  const pods = [[0, 10], [0, 5], [5, 8], [8, 0], [10, 12]].map(([created, ended]) => ({ created, ended }));
  const { lanes, count } = model.packLanes(pods, 100);
  assert.deepEqual([[...lanes], count], [[0, 1, 1, 1, 0], 2]);
});

test('the curve counts Pods over time', () => {
  const pods = [
    { began: 1000, ended: 3000, phase: 'Succeeded' }, { began: 1000, ended: 2000, phase: 'Failed' }, { began: 2500, ended: 0, phase: 'Running' },
  ];
  const curve = model.buildCurve(pods, 5000);
  const last = curve[curve.length - 1];
  assert.deepEqual(last, { t: 5000, running: 1, succeeded: 1, failed: 1 });
  assert.equal(Math.max(...curve.map((point) => point.running)), 2);
  const many = Array.from({ length: 20000 }, (_, n) => ({ began: n * 10, ended: n * 10 + 50, phase: 'Succeeded' }));
  assert.ok(model.buildCurve(many, 300000).length < 700);
  assert.deepEqual(model.buildCurve([], 1), []);
});

test('a Pod keeps the exit code of the container that failed', () => {
  const ended = (exitCode, startedAt, finishedAt) => ({ state: { terminated: { exitCode, startedAt, finishedAt, reason: 'Error', message: 'm' } }, restartCount: 1 });
  const pod = model.compactPod({
    metadata: { name: 'p', uid: 'u', annotations: { [model.INDEX_ANNOTATION]: '7', [model.FAILURES_ANNOTATION]: '2' } },
    spec: { containers: [{ name: 'a' }, { name: 'b' }] },
    status: { phase: 'Failed', containerStatuses: [ended(0, '2026-01-01T00:00:01Z', '2026-01-01T00:00:09Z'), ended(3, '2026-01-01T00:00:02Z', '2026-01-01T00:00:05Z')] },
  });
  assert.deepEqual([pod.index, pod.exitCode, pod.failuresBefore, pod.restarts, pod.containers, pod.message], [7, 3, 2, 2, 'a,b', 'm']);
  assert.deepEqual([pod.began, pod.ended], [Date.parse('2026-01-01T00:00:01Z'), Date.parse('2026-01-01T00:00:09Z')]);
});

test('5,000 Jobs are sorted and the order is total', () => {
  const jobs = Array.from({ length: 5000 }, (_, n) => model.compactJob(job({ completions: 10 }, { active: n % 2, succeeded: n % 11 }, { name: `job-${n % 500}`, namespace: `n${n % 7}`, uid: String(n) })));
  for (const column of Object.keys(model.JOB_SORTS)) {
    const up = model.sortJobs([...jobs], column, false, 1000);
    assert.equal(up.length, 5000);
  }
  const rows = model.sortJobs([...jobs], 'progress', false, 0).map((one) => model.progress(one));
  assert.ok(rows[0] >= rows[4999]);
});
