import assert from 'node:assert/strict';
import { test } from 'node:test';
import { countIndexes, eachRange, readIndexes, writeIndexes } from '../assets/ranges.js';

test('ranges are read and written in the form of the Job status', () => {
  assert.deepEqual(readIndexes('1,3-5,9'), [1, 3, 4, 5, 9]);
  assert.equal(writeIndexes([0, 1, 2, 4, 5, 9]), '0-2,4,5,9');
  assert.equal(writeIndexes([]), '');
  for (const text of ['', '0', '0-2,4,5', '7,9-99999']) assert.equal(writeIndexes(readIndexes(text)), text);
});

test('indexes beyond the limit and text that is no range are left out', () => {
  assert.deepEqual(readIndexes('1,x,5-3,8-20,-2,3-', 10), [1, 8, 9]);
  assert.equal(countIndexes('0-99999'), 100000);
  assert.equal(countIndexes(undefined), 0);
  const seen = [];
  eachRange('2-4,,6', 100, (first, last) => seen.push([first, last]));
  assert.deepEqual(seen, [[2, 4], [6, 6]]);
});
