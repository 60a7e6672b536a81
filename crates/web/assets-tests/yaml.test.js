import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { toYaml } from '../assets/yaml.js';

test('maps and lists are written as kubectl writes them', () => {
  assert.equal(toYaml({ a: { b: [1, { c: 'x', d: [] }, [2, 3]], e: {} }, f: null, g: true }),
    'a:\n  b:\n  - 1\n  - c: x\n    d: []\n  - - 2\n    - 3\n  e: {}\nf: null\ng: true\n');
  assert.equal(toYaml({ s: 'line 1\nline 2\n' }), 's: |\n  line 1\n  line 2\n');
});

const AWKWARD = [
  '', ' ', 'true', 'No', 'null', '~', '1', '1e3', '0x1f', '1:30', '2026-11-17', '.5', '-', '- a', 'a: b', 'a:', 'a #b', '#x', '*x',
  '&x', '!x', '%x', '@x', '`x', "it's", '"q"', '{a}', '[a]', 'a, b', 'tab\there', 'ends ', ' starts', 'a\nb', 'a\nb\n', 'a\n\n\nb\n\n',
  '\nfirst', '  indented\nsecond', '\ttab\nsecond', 'cr\r\nlf', '\u0007', '\u0085', '\u2028', 'ü→😀', '<img src=x onerror=alert(1)>', '=', '<<',
  '---', 'y', 'a\\b', 'key: |\n  x', '\ud800', 'a\n ', '\n', '$(X)', '0o7', '+1', '1_000', '.inf', 'a\n  b\n\n c',
];

test('awkward strings survive a YAML parser', (t) => {
  const value = {
    list: AWKWARD.filter((text) => text !== '\ud800'), nested: AWKWARD.slice(0, 40).map((text) => ({ [text || 'e']: text, z: [text, [text]] })),
    map: { 'a b': 1, 'c:': 2, 1: 3, '': 4, 'tally.dev/x': 'y' }, numbers: [0, -1, 1.5, 2147483647],
  };
  // Python's parser is used if it is installed.
  const script = 'import sys,json,yaml; json.dump(yaml.safe_load(sys.stdin.buffer.read().decode()), sys.stdout)';
  const python = spawnSync('python3', ['-c', script], { input: toYaml(value), encoding: 'utf8' });
  if (python.error || /No module named/.test(python.stderr)) return t.skip('no Python with PyYAML');
  assert.equal(python.status, 0, python.stderr);
  assert.deepEqual(JSON.parse(python.stdout), JSON.parse(JSON.stringify(value)));
});

test('strings that look like other types are quoted', () => {
  for (const text of ['true', 'No', '1', '2026-11-17', '1:30', '', '~', '- a', 'a: b', '*x', 'ends ']) {
    assert.equal(toYaml({ k: text }), `k: ${JSON.stringify(text)}\n`);
  }
  for (const text of ['sh', '/bin/sh', '$(X)', 'a-b.c', 'a:b', 'echo $X', 'x#y']) assert.equal(toYaml({ k: text }), `k: ${text}\n`);
});
