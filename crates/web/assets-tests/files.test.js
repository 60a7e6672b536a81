import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';

const root = new URL('../assets/', import.meta.url);
const files = readdirSync(root);
const read = (name) => readFileSync(new URL(name, root), 'utf8');

test('the page preloads every module, once', () => {
  const preloaded = [...read('index.html').matchAll(/rel="modulepreload" href="\/assets\/([a-z-]+\.js)"/g)].map(([, name]) => name);
  assert.deepEqual(preloaded, files.filter((name) => name.endsWith('.js') && name !== 'app.js').sort());
});

test('every import and every reference exists, and none leads to another server', () => {
  for (const name of files.filter((one) => one.endsWith('.js'))) {
    for (const [, from] of read(name).matchAll(/from '([^']+)'/g)) assert.ok(files.includes(from.replace('./', '')), `${name}: ${from}`);
  }
  for (const [, path] of read('index.html').matchAll(/(?:src|href)="([^"#]+)"/g)) assert.ok(files.includes(path.replace('/assets/', '')), path);
  for (const name of files) assert.doesNotMatch(read(name).replaceAll('http://www.w3.org/2000/svg', ''), /https?:\/\//, name);
});

test('text never becomes markup, and the policy needs no exception', () => {
  for (const name of files.filter((one) => one.endsWith('.js'))) {
    assert.doesNotMatch(read(name), /innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|eval\(|new Function|setAttribute\('style'/, name);
  }
  const html = read('index.html');
  assert.doesNotMatch(html, /\sstyle=|\son[a-z]+=|<style|<script(?![^>]*src=)/);
});
