import assert from 'node:assert/strict';
import { test } from 'node:test';
import { classesOf, parseLine, plainStyle } from '../assets/ansi.js';

const pieces = (line, style = plainStyle()) =>
  parseLine(line, style).map(({ text, style: one }) => [text, one ? classesOf(one) : '']);

test('colours become classes', () => {
  assert.deepEqual(pieces('a\x1b[31mred\x1b[0m b'), [['a', ''], ['red', 'ansi-fg1'], [' b', '']]);
  assert.deepEqual(pieces('\x1b[1;92;44mx\x1b[22my\x1b[mz'),
    [['x', 'ansi-fg10 ansi-bg4 ansi-bold'], ['y', 'ansi-fg10 ansi-bg4'], ['z', '']]);
  assert.deepEqual(pieces('\x1b[38;5;3mx\x1b[0;4;3;9;7my'),
    [['x', 'ansi-fg3'], ['y', 'ansi-italic ansi-underline ansi-inverse ansi-strike']]);
});

test('other colours are numbers', () => {
  assert.deepEqual(parseLine('\x1b[38;5;196mx', plainStyle())[0].style.fg, [255, 0, 0]);
  assert.deepEqual(parseLine('\x1b[48;2;1;2;3mx', plainStyle())[0].style.bg, [1, 2, 3]);
  assert.equal(parseLine('\x1b[38;2;1;2;999mx', plainStyle())[0].style, null);
});

test('the style continues on the next line', () => {
  const style = plainStyle();
  assert.deepEqual(pieces('\x1b[32mx', style), [['x', 'ansi-fg2']]);
  assert.deepEqual(pieces('y\x1b[0m', style), [['y', 'ansi-fg2']]);
  assert.deepEqual(pieces('z', style), [['z', '']]);
});

test('other control sequences are removed, and markup stays text', () => {
  assert.deepEqual(pieces('\x1b]0;title\x07a\x1b[2Jb\x1b[?25lc\x1b(Bd\x07\x08e\x1b'), [['abcde', '']]);
  assert.deepEqual(pieces('\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\'), [['link', '']]);
  assert.deepEqual(pieces('<img src=x onerror=alert(1)>\tend'), [['<img src=x onerror=alert(1)>\tend', '']]);
  assert.deepEqual(pieces('\x1b[31'), [['31', '']]);
});

test('of an overwritten line the last version is shown', () => {
  assert.deepEqual(pieces('10%\r50%\r\x1b[32m100%\r'), [['100%', 'ansi-fg2']]);
  assert.deepEqual(pieces('\x1b[31ma\rb'), [['b', 'ansi-fg1']]);
});
