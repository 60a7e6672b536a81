// CronJobs: the list, and one CronJob with its next times and its Jobs.

import { deleteObject, runCronJob, setCronSuspended } from './actions.js';
import { Reflector, listPath } from './api.js';
import { nextTimes, readSchedule } from './cron.js';
import { h, setAttribute, setText, throttled } from './dom.js';
import { count, dateTime, dateTimeIn, duration, shortDuration } from './format.js';
import { JOB_STATE, compactCronJob, sortJobs } from './model.js';
import { fillJobRow, jobRowHeight, makeJobRow } from './jobs-view.js';
import { Explanation, YamlView, badge, jobHref, listMessage, readQuery, writeQuery } from './parts.js';
import { scope, useStore } from './stores.js';
import { VirtualList } from './vlist.js';

const narrow = matchMedia('(max-width: 760px)');
/** Jobs in the history of a row. */
const HISTORY = 12;

/** {times, zone, problem}: the next times of a CronJob. */
function next(cronJob, wanted, now) {
  try {
    const schedule = readSchedule(cronJob.schedule, cronJob.timeZone);
    return { times: nextTimes(schedule, now, wanted, cronJob.last || cronJob.created), zone: schedule.zone, problem: '' };
  } catch (error) {
    return { times: [], zone: '', problem: error.message };
  }
}

/** The Jobs of every CronJob, newest first. */
function jobsByOwner(jobs) {
  const owners = new Map();
  for (const job of jobs) {
    if (!job.cronJob) continue;
    if (!owners.has(job.cronJob)) owners.set(job.cronJob, []);
    owners.get(job.cronJob).push(job);
  }
  for (const list of owners.values()) list.sort((a, b) => b.created - a.created);
  return owners;
}

export const cronHref = (namespace, name) => `#/cronjobs/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;

export class CronJobsView {
  constructor() {
    this.title = 'CronJobs';
    const query = readQuery();
    this.filter = { q: query.get('q') ?? '', ns: query.get('ns') ?? '' };
    this.search = h('input', { type: 'search', class: 'search', placeholder: 'Search names   /', 'aria-label': 'Search names', value: this.filter.q, oninput: () => { this.filter.q = this.search.value.trim(); this.filterChanged(); } });
    this.namespaceInput = h('input', { type: 'search', class: 'search ns-input', placeholder: 'All namespaces', 'aria-label': 'Namespace', value: this.filter.ns, onchange: () => { this.filter.ns = this.namespaceInput.value.trim(); this.filterChanged(); } });
    this.list = new VirtualList({
      label: 'CronJobs', rowHeight: () => (narrow.matches ? 84 : 38), makeRow: () => this.makeRow(), fillRow: (row, item) => this.fillRow(row, item),
      open: (item) => { location.hash = cronHref(item.namespace, item.name); },
    });
    this.element = h('div', { class: 'view list-view' }, h('div', { class: 'filters' }, this.search, this.namespaceInput),
      h('div', { class: 'thead cols-cron' }, ['Name', 'Namespace', 'Schedule', 'Next', 'Last', 'History', ''].map((name) => h('span', { class: 'th' }, name))),
      this.list.element);
    this.owners = new Map();
    this.nextOf = new Map();
    this.update = throttled(() => this.show(), 200);
    this.use();
  }

  use() {
    this.release();
    const namespace = scope.isLimited ? this.filter.ns : '';
    this.scoped = namespace;
    if (scope.isLimited && !namespace) return this.update();
    this.stores = [useStore('cronjobs', namespace, this.update), useStore('jobs', namespace, this.update)];
    this.update();
  }

  release() {
    this.stores?.forEach((store) => store.release());
    this.stores = null;
  }

  filterChanged() {
    writeQuery(this.filter);
    if (scope.isLimited && this.filter.ns !== this.scoped) this.use();
    this.update();
  }

  makeRow() {
    const row = {};
    row.name = h('a', { class: 'name' });
    row.state = h('span', { class: 'tag', hidden: true }, 'suspended');
    row.namespace = h('span', { class: 'cell namespace' });
    row.schedule = h('span', { class: 'cell schedule' });
    row.next = h('span', { class: 'cell next' });
    row.last = h('span', { class: 'cell last' });
    row.history = h('span', { class: 'cell history' });
    row.dots = Array.from({ length: HISTORY }, () => h('a', { class: 'history-dot' }));
    row.history.append(...row.dots);
    row.run = h('button', { type: 'button', class: 'small', onclick: () => runCronJob(row.item.namespace, row.item.name) }, 'Run now');
    row.element = h('div', { class: 'cols-cron' }, h('span', { class: 'cell title' }, row.name, row.state), row.namespace, row.schedule, row.next, row.last, row.history, row.run);
    return row;
  }

  fillRow(row, item) {
    const now = Date.now();
    setText(row.name, item.name);
    setAttribute(row.name, 'href', cronHref(item.namespace, item.name));
    row.state.hidden = !item.suspended;
    setText(row.namespace, item.namespace);
    setText(row.schedule, item.timeZone ? `${item.schedule}  ${item.timeZone}` : item.schedule);
    let known = this.nextOf.get(item.uid);
    if (!known || known.of !== item || known.times[0] <= now) {
      known = { of: item, ...next(item, 3, now) };
      this.nextOf.set(item.uid, known);
    }
    setText(row.next, item.suspended ? '–' : known.times.length > 0 ? `in ${duration(known.times[0] - now)}` : known.problem ? 'unknown' : 'never');
    setAttribute(row.next, 'title', known.problem || known.times.map((time) => dateTimeIn(time, known.zone)).join('\n'));
    setText(row.last, item.last ? `${shortDuration(now - item.last)} ago` : 'never');
    setAttribute(row.last, 'title', dateTime(item.last));
    // The newest Job is at the right.
    const jobs = (this.owners.get(item.uid) ?? []).slice(0, HISTORY).reverse();
    row.dots.forEach((dot, at) => {
      const job = jobs[at];
      dot.hidden = !job;
      if (!job) return;
      setAttribute(dot, 'data-state', job.state);
      setText(dot, JOB_STATE[job.state].symbol);
      setAttribute(dot, 'href', jobHref(job.namespace, job.name));
      const text = `${job.name}: ${JOB_STATE[job.state].name}${job.started ? `, ${duration((job.ended || now) - job.started)}` : ''}, ${dateTime(job.created)}`;
      setAttribute(dot, 'title', text);
      setAttribute(dot, 'aria-label', text);
    });
  }

  show() {
    const [cronJobs, jobs] = (this.stores ?? []).map((store) => store.reflector);
    if (cronJobs?.state === 'denied' && cronJobs.error.status === 403 && !scope.isLimited) {
      scope.limit();
      return this.use();
    }
    this.owners = jobsByOwner(jobs?.items.values() ?? []);
    const { q, ns } = this.filter;
    const shown = [...cronJobs?.items.values() ?? []].filter((item) => (!ns || item.namespace === ns) && `${item.namespace}/${item.name}`.includes(q));
    shown.sort((a, b) => (a.namespace === b.namespace ? (a.name < b.name ? -1 : 1) : a.namespace < b.namespace ? -1 : 1));
    this.list.setEmpty(!cronJobs ? 'You may not list the CronJobs of all namespaces. Enter a namespace above.'
      : listMessage(cronJobs, 'CronJobs') || (cronJobs.items.size === 0 ? 'There are no CronJobs.' : 'No CronJob matches the filters.'));
    this.list.setItems(shown);
  }

  tick() { this.list.draw(); }
  focusSearch() { this.search.focus(); }
  key(event) { return this.list.key(event); }

  destroy() {
    this.release();
    this.list.destroy();
  }
}

export class CronJobView {
  constructor(namespace, name) {
    Object.assign(this, { namespace, name, title: name });
    this.badge = badge();
    this.explanation = new Explanation(namespace, 'cronjobs', name);
    this.facts = h('dl', { class: 'facts' });
    this.times = h('ol', { class: 'times' });
    this.notice = h('p', { class: 'notice', role: 'status', hidden: true });
    this.note = h('p', { class: 'note' });
    this.run = h('button', { type: 'button', class: 'primary', disabled: true, onclick: () => runCronJob(namespace, name) }, 'Run now');
    this.suspend = h('button', { type: 'button', disabled: true, onclick: () => setCronSuspended(this.object, !this.object.spec.suspend) }, 'Suspend');
    this.remove = h('button', { type: 'button', disabled: true, class: 'danger-quiet', onclick: () => deleteObject('cronjobs', 'CronJob', this.object, () => { location.hash = '#/cronjobs'; }) }, 'Delete');
    this.list = new VirtualList({
      label: 'Jobs of this CronJob', rowHeight: jobRowHeight, makeRow: makeJobRow, fillRow: fillJobRow, empty: 'No Job of this CronJob exists.',
      open: (job) => { location.hash = jobHref(job.namespace, job.name); },
    });
    this.list.element.classList.add('short');
    this.yaml = new YamlView();
    this.element = h('div', { class: 'view job-view' },
      h('div', { class: 'job-head' }, h('div', { class: 'job-title' }, h('a', { href: '#/cronjobs', class: 'crumb' }, 'CronJobs'), h('span', { class: 'crumb' }, ` / ${namespace} /`), h('h1', null, name), this.badge.element),
        h('div', { class: 'actions' }, this.run, this.suspend, this.remove)),
      this.explanation.element, this.notice, this.facts, h('h2', null, 'Next times'), this.times, this.note, h('h2', null, 'History'), this.list.element,
      h('details', { class: 'yaml-box' }, h('summary', null, 'YAML'), this.yaml.element));
    this.update = throttled(() => this.show(), 200);
    this.store = new Reflector({
      path: listPath('batch/v1', namespace, 'cronjobs'), query: { fieldSelector: `metadata.name=${name}` }, compact: (object) => object.metadata.uid,
      onObject: (object, deleted) => { delete object.metadata.managedFields; this.object = object; this.deleted = deleted; this.explanation.refresh(); },
      onChange: this.update,
    }).start();
    // The same scope as the lists: their items are used again.
    this.jobs = useStore('jobs', scope.isLimited ? namespace : '', this.update);
  }

  show() {
    const now = Date.now();
    if (!this.object) {
      setText(this.notice, this.store.loaded ? `There is no CronJob ${this.name} in namespace ${this.namespace}.` : this.store.error?.message ?? 'Loading…');
      this.notice.hidden = false;
      return;
    }
    const item = compactCronJob(this.object);
    this.notice.hidden = !this.deleted;
    setText(this.notice, 'The CronJob has been deleted.');
    this.badge.set(item.suspended ? 'suspended' : 'running', item.suspended ? 'Suspended' : 'Scheduled');
    const { times, zone, problem } = next(item, 8, now);
    const facts = [
      ['Schedule', item.schedule], ['Time zone', zone || item.timeZone], ['Concurrency', item.policy], ['Active Jobs', count(item.active)],
      ['Last scheduled', item.last ? dateTime(item.last) : 'never'], ['Last success', item.lastSuccess ? dateTime(item.lastSuccess) : 'never'],
    ];
    if (this.factsKey !== JSON.stringify(facts)) {
      this.factsKey = JSON.stringify(facts);
      this.facts.replaceChildren(...facts.map(([name, value]) => h('div', null, h('dt', null, name), h('dd', null, value))));
    }
    const key = `${item.suspended}${times[0]}`;
    if (this.timesKey !== key) {
      this.timesKey = key;
      this.times.replaceChildren(...(item.suspended ? [] : times).map((time) => h('li', null, h('time', { datetime: new Date(time).toISOString() }, dateTimeIn(time, zone)),
        h('span', { class: 'note' }, ` in ${duration(time - now)}`))));
    }
    setText(this.note, problem ? `The page cannot read this schedule: ${problem}` : item.suspended ? 'Suspended: no Job is created.'
      : `${item.timeZone ? '' : 'Without spec.timeZone, the times are computed for UTC. '}Your clock: ${dateTime(now)}.`);
    this.run.disabled = this.suspend.disabled = this.remove.disabled = this.deleted === true;
    setText(this.suspend, item.suspended ? 'Resume' : 'Suspend');
    const jobs = [...this.jobs.reflector.items.values()].filter((job) => job.cronJob === item.uid);
    this.list.setItems(sortJobs(jobs, 'age', false, now));
    this.list.element.style.height = `${Math.max(84, Math.min(300, jobs.length * jobRowHeight() + 2))}px`;
    this.yaml.set({ kind: 'CronJob', ...this.object });
  }

  tick() { this.show(); }

  key(event) {
    if (event.key === 'Escape') { location.hash = '#/cronjobs'; return true; }
    return this.list.key(event);
  }

  destroy() {
    this.store.stop();
    this.jobs.release();
    this.explanation.destroy();
    this.list.destroy();
  }
}
