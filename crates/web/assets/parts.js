// Parts that several views use.

import { getJson } from './api.js';
import { h, setAttribute, setText } from './dom.js';
import { count, dateTime, duration } from './format.js';
import { JOB_STATE } from './model.js';
import { toYaml } from './yaml.js';

/** The state of a Job: a symbol and a word. */
export function badge(state = 'waiting') {
  const symbol = h('span', { class: 'badge-symbol', 'aria-hidden': 'true' });
  const word = h('span');
  const element = h('span', { class: 'badge' }, symbol, word);
  const set = (next, text) => {
    setAttribute(element, 'data-state', next);
    setText(symbol, JOB_STATE[next]?.symbol ?? '');
    setText(word, text ?? JOB_STATE[next]?.name ?? next);
  };
  set(state);
  return { element, set };
}

export function jobHref(namespace, name, tab = '') {
  return `#/jobs/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}${tab ? `/${tab}` : ''}`;
}

/** A header with buttons that sort. `columns`: [{id, name, class}]; `set(sort, reverse)` shows the present order. */
export function sortHeader(className, columns, onSort) {
  const cells = columns.map((column) => {
    if (!column.sort) return h('span', { class: ['th', column.class] }, column.name);
    return h('button', { type: 'button', class: ['th', column.class], onclick: () => onSort(column.sort) }, column.name, h('span', { class: 'arrow', 'aria-hidden': 'true' }));
  });
  return {
    element: h('div', { class: `thead ${className}` }, cells),
    set(sort, reverse) {
      columns.forEach((column, at) => {
        if (!column.sort) return;
        const active = column.sort === sort;
        setAttribute(cells[at], 'aria-pressed', active ? 'true' : 'false');
        setText(cells[at].querySelector('.arrow'), active ? (reverse ? ' ↑' : ' ↓') : '');
      });
    },
  };
}

/** What the server says about why an object is in its state. Nothing is shown if the server has no explanation. */
export class Explanation {
  /** `onAnswer` gets what the server has answered. */
  constructor(namespace, resource, name, onAnswer = () => {}) {
    this.onAnswer = onAnswer;
    this.path = `/explain/${encodeURIComponent(namespace)}/${resource}/${encodeURIComponent(name)}`;
    this.element = h('section', { class: 'explanation', hidden: true, 'aria-label': 'Explanation' });
    this.control = new AbortController();
    this.missing = false;
    this.last = 0;
  }

  /** Asks again, at most every four seconds. */
  async refresh() {
    const now = Date.now();
    if (this.missing || this.pending || now - this.last < 4000) return;
    this.pending = true;
    this.last = now;
    try {
      const answer = await getJson(this.path, this.control.signal);
      // The object is gone.
      this.missing = answer === null;
      if (this.missing) return;
      this.show(answer);
      this.onAnswer(answer);
    } catch (error) {
      // This server does not explain.
      if (error.status === 404) this.missing = true;
    } finally {
      this.pending = false;
    }
  }

  show(answer) {
    const text = JSON.stringify(answer);
    if (text === this.shown) return;
    this.shown = text;
    const { state, summary, next = [], reasons = [], failures = [], moreFailures = 0 } = answer;
    const { since, change, message } = reasons[0] ?? {};
    const open = this.element.querySelector('details')?.open ?? false;
    const line = (label, value) => (value ? h('p', null, h('span', { class: 'label' }, `${label} `), String(value)) : null);
    const sinceTime = since ? Date.parse(since) : 0;
    this.element.replaceChildren(...[
      h('p', { class: 'summary' }, message ?? summary ?? ''),
      h('div', { class: 'explanation-lines' },
        line('Since', sinceTime ? `${dateTime(sinceTime)} (${duration(Date.now() - sinceTime)})` : since),
        line('Would change it:', change),
        next.slice(0, 5).map(({ at, what }) => line(dateTime(Date.parse(at)), what))),
      failures.map((failure) => h('div', { class: 'failure' }, h('p', null, failure.summary, ' ',
        failure.at ? h('span', { class: 'label' }, dateTime(Date.parse(failure.at))) : ''),
      failure.log.length > 0 ? h('pre', { 'aria-label': `The last lines of the log of Pod ${failure.pod}`, tabindex: '0' }, failure.log.join('\n')) : null)),
      moreFailures > 0 ? h('p', { class: 'label' }, `${count(moreFailures)} more Pods have failed.`) : null,
      reasons.length > 0 ? h('details', { open }, h('summary', null, `Reasons (${reasons.length})`),
        h('ul', null, reasons.map((one) => h('li', null, h('b', null, one.reason), ' ', one.message)))) : null,
    ].flat().filter(Boolean));
    this.element.classList.toggle('failed', state === 'Failed');
    // Where nothing is wrong, the facts below say enough.
    this.element.hidden = reasons.length + next.length + failures.length === 0;
  }

  destroy() { this.control.abort(); }
}

/** The YAML of an object, with a button that copies it. */
export class YamlView {
  constructor() {
    this.pre = h('pre', { class: 'yaml', tabindex: '0' });
    this.copy = h('button', { type: 'button', class: 'small', onclick: () => this.copyText() }, 'Copy');
    this.element = h('div', { class: 'yaml-view' }, h('div', { class: 'chart-bar' },
      h('span', { class: 'note' }, 'Without managedFields.'), h('span', { class: 'spring' }), this.copy), this.pre);
  }

  set(object) {
    const selection = getSelection();
    // A text that is being selected does not change.
    if (!selection.isCollapsed && this.pre.contains(selection.anchorNode)) return;
    const { managedFields, ...metadata } = object.metadata;
    const { apiVersion = 'batch/v1', kind = 'Job', spec, status, ...rest } = object;
    const sorted = Object.fromEntries(Object.entries(metadata).sort(([a], [b]) => (a < b ? -1 : 1)));
    setText(this.pre, toYaml({ apiVersion, kind, metadata: sorted, spec, status, ...Object.fromEntries(Object.entries(rest).filter(([key]) => key !== 'metadata')) }));
  }

  async copyText() {
    try {
      await navigator.clipboard.writeText(this.pre.textContent);
      setText(this.copy, 'Copied');
    } catch {
      getSelection().selectAllChildren(this.pre);
      setText(this.copy, 'Selected: press Ctrl+C');
    }
    setTimeout(() => setText(this.copy, 'Copy'), 2500);
  }
}

/** A message in place of a list: loading, denied, not connected. Empty if the list is shown. */
export function listMessage(reflector, what) {
  if (reflector.state === 'denied') return `The server does not permit to list ${what}: ${reflector.error.message}`;
  if (!reflector.loaded) return reflector.state === 'disconnected' ? `Not connected: ${reflector.error.message}` : `Loading ${what}…`;
  return '';
}

/** Reads and writes the query of the fragment: #/jobs?q=x. */
export function readQuery() {
  const at = location.hash.indexOf('?');
  return new URLSearchParams(at < 0 ? '' : location.hash.slice(at + 1));
}
export function writeQuery(values) {
  const base = location.hash.split('?')[0] || '#/jobs';
  const text = new URLSearchParams(Object.entries(values).filter(([, value]) => value)).toString();
  history.replaceState(null, '', text ? `${base}?${text}` : base);
}

/** Where the list of Jobs was left: with its filters. */
export const lastList = { hash: '#/jobs' };
