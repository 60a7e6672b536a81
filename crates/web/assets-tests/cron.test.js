import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nextTimes, readDuration, readSchedule } from '../assets/cron.js';

const next = (text, from, count = 1, zone = '') =>
  nextTimes(readSchedule(text, zone), Date.parse(from), count).map((at) => new Date(at).toISOString().replace('.000', ''));

test('fields, steps, names and descriptors', () => {
  for (const [text, from, expected] of [
    ['*/15 * * * *', '2026-01-01T00:00:00Z', ['2026-01-01T00:15:00Z', '2026-01-01T00:30:00Z']],
    ['0 9 * * mon-fri', '2026-11-13T10:00:00Z', ['2026-11-16T09:00:00Z', '2026-11-17T09:00:00Z']],
    ['@hourly', '2026-11-13T10:59:59Z', ['2026-11-13T11:00:00Z', '2026-11-13T12:00:00Z']],
    ['@monthly', '2026-11-13T10:59:59Z', ['2026-12-01T00:00:00Z', '2027-01-01T00:00:00Z']],
    ['0 0 29 feb *', '2026-01-01T00:00:00Z', ['2028-02-29T00:00:00Z', '2032-02-29T00:00:00Z']],
    ['5/20 3 * * *', '2026-01-01T00:00:00Z', ['2026-01-01T03:05:00Z', '2026-01-01T03:25:00Z']],
    // Both fields of days restrict: either one is sufficient.
    ['0 0 13 * 5', '2026-11-10T00:00:00Z', ['2026-11-13T00:00:00Z', '2026-11-20T00:00:00Z']],
    ['30 0 * * *', '2026-11-10T00:30:00Z', ['2026-11-11T00:30:00Z', '2026-11-12T00:30:00Z']],
  ]) assert.deepEqual(next(text, from, 2), expected, text);
  assert.deepEqual(next('0 0 31 2 *', '2026-01-01T00:00:00Z'), []);
});

test('time zones: skipped hours do not occur, repeated hours occur twice', () => {
  assert.deepEqual(next('0 9 * * *', '2026-07-01T00:00:00Z', 1, 'Europe/Berlin'), ['2026-07-01T07:00:00Z']);
  assert.deepEqual(next('TZ=Asia/Tokyo 0 9 * * *', '2026-07-01T00:30:00Z'), ['2026-07-02T00:00:00Z']);
  assert.deepEqual(next('30 2 * * *', '2026-03-07T12:00:00Z', 1, 'America/New_York'), ['2026-03-09T06:30:00Z']);
  assert.deepEqual(next('30 1 * * *', '2026-11-01T00:00:00Z', 3, 'America/New_York'),
    ['2026-11-01T05:30:00Z', '2026-11-01T06:30:00Z', '2026-11-02T06:30:00Z']);
  assert.deepEqual(next('0 0 * * *', '2026-07-01T00:00:00Z', 1, 'Pacific/Kiritimati'), ['2026-07-01T10:00:00Z']);
});

test('@every counts from the last time', () => {
  const schedule = readSchedule('@every 1h30m');
  const at = (text) => Date.parse(text);
  assert.deepEqual(nextTimes(schedule, at('2026-01-01T02:00:00Z'), 2, at('2026-01-01T00:00:00Z')),
    [at('2026-01-01T03:00:00Z'), at('2026-01-01T04:30:00Z')]);
  assert.equal(readDuration('1.5h'), 5400000);
});

test('what is not a schedule is refused', () => {
  for (const text of ['', '* * * *', '60 * * * *', '@often', 'a * * * *', '5-3 * * * *', '*/0 * * * *', '1-2-3 * * * *', '@every x']) {
    assert.throws(() => readSchedule(text), undefined, text);
  }
  assert.throws(() => nextTimes(readSchedule('0 0 * * *', 'Mars/Phobos'), 0, 1));
});
