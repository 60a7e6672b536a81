// The list of Jobs.

import { bar, h, setAttribute, setText, throttled } from './dom.js';
import { count, duration, rate, shortDuration, dateTime } from './format.js';
import { JOB_SORTS, JOB_STATES, matchesLabels, progress, rateOf, readSelector, sortJobs, timeLeft } from './model.js';
import { badge, jobHref, lastList, listMessage, readQuery, sortHeader, writeQuery } from './parts.js';
import { scope, useStore } from './stores.js';
import { VirtualList } from './vlist.js';

const COLUMNS = [
  { name: 'State', sort: 'state' }, { name: 'Name', sort: 'name' }, { name: 'Namespace', sort: 'namespace' },
  { name: 'Progress', sort: 'progress' }, { name: 'Rate', sort: 'rate', class: 'num' }, { name: 'Left', sort: 'left', class: 'num' },
  { name: 'Failures', sort: 'failures', class: 'num' }, { name: 'Took', sort: 'took', class: 'num' }, { name: 'Age', sort: 'age', class: 'num' },
];
const narrow = matchMedia('(max-width: 760px)');

/** One row of Jobs; other views use it for the Jobs of a CronJob. */
export function makeJobRow() {
  const row = { badge: badge(), bar: bar() };
  row.name = h('a', { class: 'name' });
  row.labels = h('span', { class: 'labels' });
  row.namespace = h('span', { class: 'cell namespace' });
  row.done = h('span', { class: 'done' });
  for (const cell of ['rate', 'left', 'failures', 'took', 'age']) row[cell] = h('span', { class: `cell num ${cell}` });
  row.why = h('span', { class: 'cell why' });
  row.element = h('div', { class: 'cols-jobs' }, row.badge.element, h('span', { class: 'cell title' }, row.name, row.labels), row.namespace,
    h('span', { class: 'cell progress' }, row.bar.element, row.done), row.rate, row.left, row.failures, row.took, row.age, row.why);
  return row;
}

export function fillJobRow(row, job, now = Date.now()) {
  row.badge.set(job.state, job.deleting ? 'Deleting' : undefined);
  setAttribute(row.badge.element, 'title', job.reason ? `${job.reason}${job.message ? `: ${job.message}` : ''}` : '');
  setText(row.name, job.name);
  setAttribute(row.name, 'href', jobHref(job.namespace, job.name));
  setText(row.labels, Object.entries(job.labels).map(([key, value]) => `${key}=${value}`).join('  '));
  setText(row.namespace, job.namespace);
  const total = job.total ?? job.succeeded + job.active;
  const running = job.state === 'waiting' ? 0 : job.running;
  row.bar.set(total, job.succeeded, job.failedIndexes, Math.min(running, Math.max(0, total - job.succeeded - job.failedIndexes)));
  setText(row.why, job.why);
  setAttribute(row.why, 'title', job.why);
  row.why.hidden = !job.why;
  row.element.classList.toggle('waits', job.why !== '');
  setText(row.done, job.total === null ? `${count(job.succeeded)} done` : `${count(job.succeeded)}/${count(job.total)}`);
  setText(row.rate, job.state === 'running' ? rate(rateOf(job, now)) : '');
  const left = timeLeft(job, now);
  setText(row.left, left === null ? '' : shortDuration(left));
  setText(row.failures, job.failed ? count(job.failed) : '');
  setText(row.took, job.started ? duration((job.ended || now) - job.started) : '');
  setText(row.age, shortDuration(now - job.created));
  setAttribute(row.age, 'title', dateTime(job.created));
}

/** A Job that waits has two more lines for the reason, on a phone three. */
export const jobRowHeight = (job) => (narrow.matches ? 82 + (job?.why ? 60 : 0) : 34 + (job?.why ? 42 : 0));

export class JobsView {
  constructor() {
    this.title = 'Jobs';
    const query = readQuery();
    this.filter = {
      q: query.get('q') ?? '', state: query.get('state') ?? '', label: query.get('label') ?? '', ns: query.get('ns') ?? '',
      sort: Object.hasOwn(JOB_SORTS, query.get('sort') ?? '') ? query.get('sort') : '', reverse: query.get('reverse') ?? '',
    };
    const changed = throttled(() => this.filterChanged(), 80);
    const input = (name, props) => h('input', {
      type: 'search', value: this.filter[name], spellcheck: 'false', autocomplete: 'off',
      oninput: (event) => { this.filter[name] = event.target.value.trim(); changed(); }, ...props,
    });
    this.search = input('q', { class: 'search', placeholder: 'Search names   /', 'aria-label': 'Search names' });
    this.labelInput = input('label', { class: 'search label-input', placeholder: 'Labels: app=web, !tier', 'aria-label': 'Label selector' });
    this.namespaces = h('datalist', { id: 'namespaces' });
    this.namespaceInput = input('ns', { class: 'search ns-input', placeholder: 'All namespaces', 'aria-label': 'Namespace', list: 'namespaces' });
    this.chips = [{ id: '', name: 'All', symbol: '' }, ...JOB_STATES].map((state) => {
      const number = h('span', { class: 'chip-count' });
      const button = h('button', { type: 'button', class: 'chip', 'data-state': state.id, onclick: () => { this.filter.state = state.id; this.filterChanged(); } },
        h('span', { class: 'badge-symbol', 'aria-hidden': 'true' }, state.symbol), state.name, number);
      return { id: state.id, button, number };
    });
    this.problem = h('p', { class: 'problem', role: 'alert', hidden: true });
    this.head = sortHeader('cols-jobs', COLUMNS, (sort) => {
      this.filter.reverse = this.filter.sort === sort && !this.filter.reverse ? '1' : '';
      this.filter.sort = sort;
      this.filterChanged();
    });
    this.list = new VirtualList({
      label: 'Jobs', rowHeight: jobRowHeight, makeRow: makeJobRow, fillRow: (row, job) => fillJobRow(row, job, this.now),
      open: (job) => { location.hash = jobHref(job.namespace, job.name); },
    });
    this.element = h('div', { class: 'view list-view' },
      h('div', { class: 'filters' }, this.search, this.namespaceInput, this.namespaces, this.labelInput,
        h('div', { class: 'chips', role: 'group', 'aria-label': 'State' }, this.chips.map((chip) => chip.button))),
      this.problem, this.head.element, this.list.element);
    this.update = throttled(() => this.show(), 200);
    lastList.hash = location.hash || '#/jobs';
    this.use();
  }

  /** Lists all namespaces, or the one that was entered if the user may not list all. */
  use() {
    const namespace = scope.isLimited ? this.filter.ns : '';
    this.store?.release();
    this.store = null;
    this.scoped = namespace;
    if (!scope.isLimited || namespace) this.store = useStore('jobs', namespace, this.update);
    this.update();
  }

  filterChanged() {
    writeQuery(this.filter);
    lastList.hash = location.hash;
    if (scope.isLimited && this.filter.ns !== this.scoped) this.use();
    this.show();
    this.list.element.scrollTop = 0;
  }

  show() {
    this.now = Date.now();
    const reflector = this.store?.reflector;
    if (reflector?.state === 'denied' && reflector.error.status === 403 && !scope.isLimited) {
      scope.limit();
      return this.use();
    }
    const { q, state, label, ns, sort, reverse } = this.filter;
    let selector = [];
    this.problem.hidden = true;
    try {
      selector = readSelector(label);
    } catch (error) {
      this.problem.textContent = error.message;
      this.problem.hidden = false;
    }
    const words = q.toLowerCase().split(/\s+/).filter(Boolean);
    const counts = {};
    const seen = new Set();
    let before = 0;
    const jobs = [];
    for (const job of reflector?.items.values() ?? []) {
      seen.add(job.namespace);
      if (ns && job.namespace !== ns) continue;
      if (words.length > 0) {
        const text = `${job.namespace}/${job.name}`.toLowerCase();
        if (!words.every((word) => text.includes(word))) continue;
      }
      if (selector.length > 0 && !matchesLabels(selector, job.labels)) continue;
      before++;
      counts[job.state] = (counts[job.state] ?? 0) + 1;
      if (!state || job.state === state) jobs.push(job);
    }
    for (const { id, button, number } of this.chips) {
      setAttribute(button, 'aria-pressed', String(id === state));
      setText(number, count(id === '' ? before : counts[id] ?? 0));
    }
    this.showNamespaces(seen);
    this.head.set(sort, reverse);
    sortJobs(jobs, sort, reverse, this.now);
    const message = !reflector ? 'You may not list the Jobs of all namespaces. Enter a namespace above.' : listMessage(reflector, 'Jobs');
    this.list.setEmpty(message || (reflector.items.size === 0
      ? 'There are no Jobs. Create one: kubectl create job hello --image=process -- echo hi' : 'No Job matches the filters.'));
    this.list.setItems(jobs);
  }

  showNamespaces(seen) {
    const text = [...seen].sort().join(' ');
    if (text === this.shownNamespaces) return;
    this.shownNamespaces = text;
    this.namespaces.replaceChildren(...[...seen].sort().slice(0, 500).map((name) => h('option', { value: name })));
  }

  /** Every second: times and rates move. */
  tick() {
    this.now = Date.now();
    if (this.filter.sort === 'left' || this.filter.sort === 'rate') this.update();
    else this.list.draw();
  }

  focusSearch() { this.search.focus(); this.search.select(); }

  key(event) {
    if (event.key === 'Escape' && (this.filter.q || this.filter.state || this.filter.label || this.filter.ns)) {
      Object.assign(this.filter, { q: '', state: '', label: '', ns: '' });
      this.search.value = this.labelInput.value = this.namespaceInput.value = '';
      this.filterChanged();
      return true;
    }
    return this.list.key(event);
  }

  destroy() {
    this.store?.release();
    this.list.destroy();
  }
}
