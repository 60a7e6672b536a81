// One Job: explanation, counts, field of indexes, curve, timeline, attempts, logs, events, YAML and actions.

import { deleteObject, retryFailed, runTheRest, setParallelism, setSuspended } from './actions.js';
import { Reflector, listPath } from './api.js';
import { Curve, Timeline, podLines } from './charts.js';
import { bar, h, setAttribute, setText, throttled } from './dom.js';
import { Field } from './field.js';
import { clock, count, dateTime, duration, rate } from './format.js';
import { LogView } from './logs.js';
import {
  FIELD_MAX, INDEX_STATES, RETRY_INDEXES_ANNOTATION, RETRY_OF_ANNOTATION, buildCurve, buildField, compactEvent, compactJob, compactPod,
  condition, countField, numberAttempts, observeRate, podState, rateOf, timeLeft,
} from './model.js';
import { Explanation, YamlView, badge, jobHref, lastList, readQuery } from './parts.js';
import { readIndexes } from './ranges.js';
import { hasFailedIndexes, isFinished, knowsFailed, notRun } from './retry.js';
import { VirtualList } from './vlist.js';
import { learnWait, withWait } from './waits.js';

/** For Jobs with more completions, the Pods that had succeeded before the page was opened are not loaded. */
const ALL_PODS_MAX = 20000;
const TABS = [['indexes', 'Indexes'], ['timeline', 'Timeline'], ['attempts', 'Attempts'], ['logs', 'Logs'], ['events', 'Events'], ['yaml', 'YAML']];
const narrow = matchMedia('(max-width: 760px)');

/** The selector of a Job as text. */
function selectorText({ matchLabels = {}, matchExpressions = [] } = {}) {
  const parts = Object.entries(matchLabels).map(([key, value]) => `${key}=${value}`);
  for (const { key, operator, values = [] } of matchExpressions) {
    if (operator === 'In') parts.push(`${key} in (${values.join(',')})`);
    else if (operator === 'NotIn') parts.push(`${key} notin (${values.join(',')})`);
    else parts.push(operator === 'Exists' ? key : `!${key}`);
  }
  return parts.join(',');
}

export class JobView {
  constructor(namespace, name, tab) {
    Object.assign(this, { namespace, name, title: name });
    this.job = null;
    this.compact = undefined;
    this.pods = [];
    this.tab = TABS.some(([id]) => id === tab) ? tab : 'indexes';
    this.badge = badge();
    // Until the Job is there, its state is not known.
    this.badge.element.hidden = true;
    this.explanation = new Explanation(namespace, 'jobs', name, (answer) => this.learn(answer));
    this.bar = bar();
    this.facts = h('dl', { class: 'facts' });
    this.fact = {};
    this.notice = h('p', { class: 'notice', role: 'status', hidden: true });
    this.buttons = this.makeButtons();
    this.tabButtons = TABS.map(([id, label]) => h('a', { role: 'tab', id: `tab-${id}`, 'aria-controls': 'panel', href: jobHref(namespace, name, id) }, label));
    this.panel = h('div', { id: 'panel', role: 'tabpanel', class: 'panel' });
    this.element = h('div', { class: 'view job-view' },
      h('div', { class: 'job-head' },
        h('div', { class: 'job-title' }, h('a', { href: lastList.hash, class: 'crumb' }, 'Jobs'), h('span', { class: 'crumb' }, ` / ${namespace} /`), h('h1', null, name), this.badge.element),
        h('div', { class: 'actions' }, Object.values(this.buttons))),
      this.explanation.element, this.notice,
      h('div', { class: 'progress-line' }, this.bar.element), this.facts,
      h('div', { class: 'tabs', role: 'tablist' }, this.tabButtons), this.panel);
    this.update = throttled(() => this.show(), 200);
    this.jobs = new Reflector({
      path: listPath('batch/v1', namespace, 'jobs'), query: { fieldSelector: `metadata.name=${name}` }, compact: (job) => job.metadata.uid,
      onObject: (job, deleted) => this.receive(job, deleted), onChange: this.update,
    }).start();
    this.openTab(this.tab);
  }

  makeButtons() {
    const button = (label, work, danger) => h('button', { type: 'button', class: danger ? 'danger-quiet' : '', disabled: true, onclick: () => work() }, label);
    return {
      suspend: button('Suspend', () => setSuspended(this.job, !this.job.spec.suspend)),
      parallelism: button('Parallelism', () => setParallelism(this.job)),
      retry: button('Retry failed', () => retryFailed(this.job)),
      rest: button('Run what is left', () => runTheRest(this.job)),
      delete: button('Delete', () => deleteObject('jobs', 'Job', this.job, () => {}), true),
    };
  }

  receive(job, deleted = false) {
    if (deleted && job.metadata.uid !== this.job?.metadata.uid) return;
    const isNew = job.metadata.uid !== this.job?.metadata.uid;
    delete job.metadata.managedFields;
    this.job = job;
    this.deleted = deleted;
    this.compact = withWait(observeRate(compactJob(job), this.compact, Date.now()));
    this.explanation.refresh();
    if (isNew) {
      this.samples = [];
      this.watchPods();
    }
    this.sample();
  }

  /** Whether it waits is a matter of its explanation. */
  learn(answer) {
    if (!this.job) return;
    learnWait(this.job.metadata.uid, answer);
    withWait(this.compact);
    this.update();
  }

  /** The status over time, for the curve of a large Job. */
  sample() {
    const { running, succeeded, failed } = this.compact;
    this.samples.push({ t: Date.now(), running, succeeded, failed });
    // Every second sample is dropped: the curve needs no more.
    if (this.samples.length > 1200) this.samples = this.samples.filter((_, at) => at % 2 === 0);
  }

  watchPods() {
    const { spec, metadata } = this.job;
    this.podStore?.stop();
    this.large = (spec.completions ?? 0) > ALL_PODS_MAX;
    const compact = (pod) => {
      // The timeline of a large Job shows what happens while the page is open, up to a limit.
      const isTooMuch = this.large && pod.status?.phase === 'Succeeded' && this.podStore.items.size > ALL_PODS_MAX;
      return isTooMuch ? null : compactPod(pod);
    };
    this.podStore = new Reflector({
      path: listPath('', metadata.namespace, 'pods'), query: { labelSelector: selectorText(spec.selector) }, compact, onChange: this.update,
      listQuery: this.large ? { fieldSelector: 'status.phase!=Succeeded' } : {},
    }).start();
    this.eventStore?.stop();
    this.eventStore = null;
    if (this.tab === 'events') this.watchEvents();
  }

  watchEvents() {
    if (!this.job) return;
    this.eventStore ??= new Reflector({
      path: listPath('', this.namespace, 'events'), query: { fieldSelector: `involvedObject.uid=${this.job.metadata.uid}` }, compact: compactEvent,
      onChange: this.update,
    });
    this.eventStore.start();
  }

  // --- Tabs ---

  openTab(tab) {
    this.closeTab();
    this.tab = tab;
    this.tabButtons.forEach((button, at) => {
      button.setAttribute('aria-selected', String(TABS[at][0] === tab));
      button.tabIndex = TABS[at][0] === tab ? 0 : -1;
    });
    this.panel.setAttribute('aria-labelledby', `tab-${tab}`);
    const make = { indexes: () => this.indexesTab(), timeline: () => this.timelineTab(), attempts: () => this.attemptsTab(), logs: () => this.logsTab(), events: () => this.eventsTab(), yaml: () => this.yamlTab() };
    this.part = make[tab]();
    this.panel.replaceChildren(this.part.element);
    this.update();
  }

  closeTab() {
    this.part?.destroy?.();
    this.part = null;
    if (this.eventStore && this.tab === 'events') this.eventStore.stop();
  }

  indexesTab() {
    const field = new Field({ describe: (at) => this.describeIndex(at), pick: (at) => this.pickIndex(at) });
    const curve = new Curve();
    const legend = INDEX_STATES.map((state) => {
      const number = h('td', { class: 'num' });
      const row = h('tr', null, h('td', null, h('span', { class: `swatch index-${state.id}`, 'aria-hidden': 'true' }, state.letter)), h('th', { scope: 'row' }, state.name), number);
      return { row, number };
    });
    const table = h('table', { class: 'legend' }, h('caption', { class: 'visually-hidden' }, 'Number of indexes in each state'), h('tbody', null, legend.map(({ row }) => row)));
    const note = h('p', { class: 'note' });
    const detail = h('div', { class: 'index-detail', hidden: true });
    const element = h('div', null, h('div', { class: 'field-box' }, field.element, h('div', { class: 'legend-box' }, table, note)), detail, h('h2', null, 'Pods over time'), curve.element);
    const fieldPart = {
      element, field,
      update: () => {
        const states = buildField(this.job, this.pods);
        field.setStates(states);
        const counts = countField(states);
        const indexed = this.job.spec.completionMode === 'Indexed';
        legend.forEach(({ row, number }, at) => {
          setText(number, count(counts[at]));
          row.hidden = !indexed && at > 2;
        });
        setText(note, !indexed ? 'This Job has no indexes: a cell is a completion, in no order.'
          : (this.job.spec.completions ?? 0) > FIELD_MAX ? `The first ${count(FIELD_MAX)} indexes are shown.` : '');
        if (this.large) curve.set([...this.samples, { ...this.samples.at(-1), t: isFinished(this.job) ? this.samples.at(-1).t : this.now }], 'A Job of this size: from its status, since the page was opened.');
        else curve.set(buildCurve(this.pods, this.now), this.podsNote());
        if (this.picked !== undefined) this.showIndex(detail);
      },
      recolour: () => { field.recolour(); curve.recolour(); },
      destroy: () => { field.destroy(); curve.destroy(); },
    };
    this.showPicked = () => this.showIndex(detail);
    return fieldPart;
  }

  /** How complete the Pods are, for the curve and the timeline. */
  podsNote() {
    if (!this.podStore?.loaded) return 'Loading Pods…';
    const { succeeded = 0, failed = 0 } = this.job.status ?? {};
    const seen = this.pods.reduce((n, pod) => n + (pod.ended ? 1 : 0), 0);
    if (this.large) return 'A Job of this size: Pods that succeeded before the page was opened are not shown.';
    return seen < succeeded + failed ? `From the ${count(this.pods.length)} Pods that exist; other Pods have been deleted.` : '';
  }

  podsOf(index) {
    // The Pods are sorted by index.
    let low = 0, high = this.pods.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.pods[middle].index < index) low = middle + 1;
      else high = middle;
    }
    const found = [];
    while (low < this.pods.length && this.pods[low].index === index) found.push(this.pods[low++]);
    return found;
  }

  describeIndex(at) {
    const state = INDEX_STATES[this.part.field.states[at]];
    if (this.job.spec.completionMode !== 'Indexed') return [`Completion ${count(at + 1)} of ${count(this.part.field.states.length)}: ${state.text}`];
    const pods = this.podsOf(at);
    const first = this.firstJobIndex(at);
    const lines = [`Index ${at}${first}: ${state.text} (${state.letter})`];
    for (const pod of pods.slice(-3)) {
      const text = podState(pod);
      const exit = pod.exitCode !== null && text !== 'running' ? `, exit code ${pod.exitCode}` : '';
      const time = pod.began ? `, ${duration((pod.ended || this.now) - pod.began)}` : '';
      lines.push(`attempt ${pod.attempt}: ${text}${exit}${text === 'failed' && pod.reason ? ` (${pod.reason})` : ''}${time}`);
    }
    return lines;
  }

  /** For a Job that retries another: the index in the first Job. */
  firstJobIndex(at) {
    const list = this.job.metadata.annotations?.[RETRY_INDEXES_ANNOTATION];
    if (!list) return '';
    if (this.originalsOf !== list) [this.originalsOf, this.originals] = [list, readIndexes(list)];
    return this.originals[at] === undefined ? '' : ` (${this.originals[at]} in the first Job)`;
  }

  pickIndex(at) {
    if (this.job.spec.completionMode !== 'Indexed') return;
    this.picked = at;
    this.showPicked();
  }

  showIndex(detail) {
    const at = this.picked;
    const pods = this.podsOf(at);
    detail.hidden = false;
    const key = JSON.stringify([at, pods.map((pod) => [pod.uid, pod.phase, pod.exitCode])]);
    if (detail.dataset.key === key) return;
    detail.dataset.key = key;
    detail.replaceChildren(
      h('h2', null, `Index ${at}${this.firstJobIndex(at)}: ${INDEX_STATES[this.part.field.states[at]].text}`),
      pods.length === 0 ? h('p', { class: 'note' }, this.large ? 'No Pod of this index is loaded.' : 'No Pod of this index exists.')
        : h('ul', { class: 'attempt-list' }, pods.map((pod) => h('li', null,
          h('span', { class: `dot index-${podState(pod)}`, 'aria-hidden': 'true' }), podLines(pod, this.now).slice(1).filter(Boolean).join(' · '), ' ',
          h('a', { href: this.logHref(pod) }, 'Log')))));
  }

  logHref(pod) { return `${jobHref(this.namespace, this.name, 'logs')}?pod=${encodeURIComponent(pod.name)}`; }

  timelineTab() {
    const timeline = new Timeline({ describe: (pod) => podLines(pod, this.now), pick: (pod) => { location.hash = this.logHref(pod); } });
    return {
      element: timeline.element,
      update: () => timeline.set(this.pods, this.now, this.podsNote()),
      tick: () => { if (this.compact?.active > 0) timeline.set(this.pods, this.now, this.podsNote()); },
      recolour: () => timeline.recolour(),
      destroy: () => timeline.destroy(),
    };
  }

  attemptsTab() {
    const filter = { text: '', failed: false };
    const search = h('input', { type: 'search', class: 'search', placeholder: 'Search Pods, reasons, messages   /', 'aria-label': 'Search attempts', oninput: () => { filter.text = search.value.toLowerCase(); update(); } });
    const failedOnly = h('button', { type: 'button', class: 'small', 'aria-pressed': 'false', onclick: () => {
      filter.failed = !filter.failed;
      failedOnly.setAttribute('aria-pressed', String(filter.failed));
      update();
    } }, 'Failed only');
    const note = h('span', { class: 'note' });
    const columns = ['Index', 'Try', 'State', 'Exit', 'Reason and message', 'Started', 'Took', 'Node', 'Pod'];
    const list = new VirtualList({
      label: 'Attempts', rowHeight: () => (narrow.matches ? 60 : 30), empty: 'There are no Pods.',
      makeRow: () => {
        const row = {};
        for (const cell of ['index', 'attempt', 'state', 'exit', 'reason', 'started', 'took', 'node']) row[cell] = h('span', { class: `cell ${cell}` });
        row.pod = h('a', { class: 'cell pod' });
        row.element = h('div', { class: 'cols-attempts' }, row.index, row.attempt, row.state, row.exit, row.reason, row.started, row.took, row.node, row.pod);
        return row;
      },
      fillRow: (row, pod) => {
        const state = podState(pod);
        setText(row.index, pod.index >= 0 ? String(pod.index) : '–');
        setText(row.attempt, String(pod.attempt));
        setText(row.state, pod.deleting && state !== 'failed' ? 'terminating' : state);
        setAttribute(row.state, 'data-state', state);
        setText(row.exit, pod.exitCode === null || state === 'running' ? '' : pod.signal ? `${pod.exitCode} (signal ${pod.signal})` : String(pod.exitCode));
        const reason = state === 'succeeded' ? pod.message : [pod.reason, pod.message].filter(Boolean).join(': ');
        setText(row.reason, `${reason}${pod.restarts ? ` (${pod.restarts} restarts)` : ''}`);
        setAttribute(row.reason, 'title', reason);
        setText(row.started, pod.began ? clock(pod.began) : '');
        setAttribute(row.started, 'title', dateTime(pod.began));
        setText(row.took, pod.began ? duration((pod.ended || this.now) - pod.began) : '');
        setText(row.node, pod.node);
        setText(row.pod, pod.name);
        setAttribute(row.pod, 'href', this.logHref(pod));
      },
      open: (pod) => { location.hash = this.logHref(pod); },
    });
    const update = () => {
      const shown = this.pods.filter((pod) => (!filter.failed || pod.phase === 'Failed')
        && (!filter.text || `${pod.name} ${pod.index} ${pod.reason} ${pod.message} ${pod.node}`.toLowerCase().includes(filter.text)));
      list.setEmpty(this.podStore?.loaded ? 'No attempt to show.' : 'Loading Pods…');
      list.setItems(shown);
      setText(note, `${count(shown.length)} ${shown.length === 1 ? 'attempt' : 'attempts'}. ${this.podsNote()}`);
    };
    return {
      element: h('div', { class: 'attempts' }, h('div', { class: 'chart-bar' }, search, failedOnly, note),
        h('div', { class: 'thead cols-attempts' }, columns.map((name) => h('span', { class: 'th' }, name))), list.element),
      update, tick: () => list.draw(), key: (event) => list.key(event), search, destroy: () => list.destroy(),
    };
  }

  logsTab() {
    const log = new LogView();
    const options = h('datalist', { id: 'pods' });
    const input = h('input', { type: 'text', class: 'search pod-input', list: 'pods', placeholder: 'Pod or index', 'aria-label': 'Pod or index', autocomplete: 'off', spellcheck: 'false' });
    const container = h('select', { 'aria-label': 'Container', hidden: true });
    const previous = h('button', { type: 'button', class: 'small', 'aria-pressed': 'false', hidden: true }, 'Before the restart');
    const text = h('span', { class: 'note pod-note' });
    const why = h('div');
    let shown = null, explanation = null;
    const wanted = readQuery().get('pod');
    const open = (pod) => {
      if (!pod) return;
      if (shown?.uid !== pod.uid) {
        const names = pod.containers.split(',').filter(Boolean);
        container.replaceChildren(...names.map((name) => h('option', { value: name }, name)));
        container.hidden = names.length < 2;
        previous.setAttribute('aria-pressed', 'false');
      }
      if (shown?.uid !== pod.uid) {
        // Why a Pod waits; one that runs or has ended explains itself with its log.
        explanation?.destroy();
        explanation = podState(pod) === 'waiting' ? new Explanation(this.namespace, 'pods', pod.name) : null;
        why.replaceChildren(...(explanation ? [explanation.element] : []));
        explanation?.refresh();
      }
      shown = pod;
      input.value = pod.name;
      log.open(this.namespace, pod.name, container.value, previous.getAttribute('aria-pressed') === 'true', pod.ended > 0);
      describe();
    };
    const describe = () => {
      if (!shown) return;
      const now = this.pods.find((pod) => pod.uid === shown.uid);
      setText(text, now ? podLines(now, this.now)[1] : 'The Pod is deleted.');
      if (explanation && now && podState(now) !== 'waiting') {
        explanation.destroy();
        explanation = null;
        why.replaceChildren();
      }
      previous.hidden = !(now?.restarts > 0);
    };
    const choose = () => {
      const typed = input.value.trim();
      const found = this.pods.find((pod) => pod.name === typed) ?? (/^[0-9]+$/.test(typed) ? this.podsOf(Number(typed)).at(-1) : undefined);
      if (found && found.uid !== shown?.uid) open(found);
      else if (!found && typed !== '') setText(text, `There is no Pod for "${typed}".`);
    };
    const suggest = () => {
      const typed = input.value.trim().toLowerCase();
      const matches = [];
      for (const pod of this.pods) {
        if (typed === shown?.name || pod.name.includes(typed) || String(pod.index) === typed) matches.push(pod);
        if (matches.length >= 60) break;
      }
      options.replaceChildren(...matches.map((pod) => h('option', { value: pod.name }, podLines(pod, this.now)[1])));
    };
    const step = (by) => {
      const at = this.pods.findIndex((pod) => pod.uid === shown?.uid);
      open(this.pods[Math.max(0, Math.min(this.pods.length - 1, at + by))]);
    };
    input.addEventListener('focus', () => { suggest(); input.select(); });
    input.addEventListener('input', () => { suggest(); if (this.pods.some((pod) => pod.name === input.value)) choose(); });
    input.addEventListener('change', choose);
    container.addEventListener('change', () => open(shown));
    previous.addEventListener('click', () => {
      previous.setAttribute('aria-pressed', String(previous.getAttribute('aria-pressed') !== 'true'));
      open(shown);
    });
    return {
      element: h('div', { class: 'logs' }, h('div', { class: 'chart-bar' },
        h('button', { type: 'button', class: 'small', 'aria-label': 'Previous Pod', title: 'Previous Pod', onclick: () => step(-1) }, '◀'), input, options,
        h('button', { type: 'button', class: 'small', 'aria-label': 'Next Pod', title: 'Next Pod', onclick: () => step(1) }, '▶'), container, previous, text), why, log.element),
      update: () => {
        if (!shown) {
          const named = this.pods.find((pod) => pod.name === wanted);
          if (named) open(named);
          else if (this.podStore?.loaded) {
            // The newest Pod that has failed, otherwise one that runs, otherwise the newest.
            const newest = [...this.pods].sort((a, b) => b.created - a.created);
            open(newest.find((pod) => pod.phase === 'Failed') ?? newest.find((pod) => pod.phase === 'Running') ?? newest[0]);
            if (!shown) setText(text, wanted ? `Pod ${wanted} does not exist.` : 'There are no Pods.');
          }
        }
        describe();
      },
      search: log.search,
      destroy: () => { log.destroy(); explanation?.destroy(); },
    };
  }

  eventsTab() {
    const body = h('tbody');
    const note = h('p', { class: 'note' });
    const rows = new Map();
    this.watchEvents();
    return {
      element: h('div', { class: 'events' }, h('table', { class: 'plain' }, h('thead', null, h('tr', null,
        ['Last seen', 'Type', 'Reason', 'Message', 'Count'].map((name) => h('th', { scope: 'col' }, name)))), body), note),
      update: () => {
        const events = [...this.eventStore?.items.values() ?? []].sort((a, b) => b.time - a.time).slice(0, 500);
        const kept = events.map((event) => {
          let row = rows.get(event.uid);
          if (!row) {
            row = h('tr', { class: event.type === 'Warning' ? 'warning' : '' }, [0, 1, 2, 3, 4].map(() => h('td')));
            rows.set(event.uid, row);
          }
          [dateTime(event.time), event.type, event.reason, event.message, count(event.count)].forEach((text, at) => setText(row.children[at], text));
          return row;
        });
        if (kept.some((row, at) => body.children[at] !== row) || body.children.length !== kept.length) body.replaceChildren(...kept);
        setText(note, !this.eventStore?.loaded ? (this.eventStore?.error?.message ?? 'Loading events…') : events.length === 0 ? 'No events. The server removes them after some time.' : '');
      },
    };
  }

  yamlTab() {
    const view = new YamlView();
    return { element: view.element, update: () => view.set(this.job) };
  }

  // --- What is always shown ---

  setFact(name, value, className = '') {
    let fact = this.fact[name];
    if (!fact) {
      fact = { box: h('div', null, h('dt', null, name), h('dd')) };
      this.fact[name] = fact;
      this.facts.append(fact.box);
    }
    fact.box.hidden = value === '';
    fact.box.className = className;
    setText(fact.box.lastChild, value);
  }

  show() {
    this.now = Date.now();
    if (!this.job) {
      const missing = this.jobs.loaded && this.jobs.items.size === 0;
      setText(this.notice, missing ? `There is no Job ${this.name} in namespace ${this.namespace}.` : this.jobs.error?.message ?? 'Loading…');
      this.notice.hidden = false;
      return;
    }
    this.pods = numberAttempts([...this.podStore?.items.values() ?? []]);
    this.showHead();
    this.part?.update();
  }

  showHead() {
    const { job, compact, now } = this;
    const { spec, status = {}, metadata } = job;
    this.badge.element.hidden = false;
    this.badge.set(compact.state, this.deleted ? 'Deleted' : compact.deleting ? 'Deleting' : undefined);
    const failure = condition(job, 'Failed') ?? condition(job, 'FailureTarget');
    const of = metadata.annotations?.[RETRY_OF_ANNOTATION]?.split('/')[0];
    const notices = [
      this.deleted && 'The Job has been deleted.',
      failure && `${failure.reason}: ${failure.message ?? ''}`,
      of && `This Job runs indexes of Job ${of} again.`,
    ].filter(Boolean);
    setText(this.notice, notices.join(' '));
    this.notice.hidden = notices.length === 0;
    this.notice.className = failure ? 'notice failure' : 'notice';
    const total = compact.total ?? compact.succeeded + compact.active;
    const seen = this.podStore?.loaded ? this.pods.reduce((n, pod) => n + (podState(pod) === 'running' ? 1 : 0), 0) : compact.running;
    const running = compact.state === 'waiting' ? 0 : seen;
    this.bar.set(total, compact.succeeded, compact.failedIndexes, running);
    setText(this.tabButtons[0], spec.completionMode === 'Indexed' ? 'Indexes' : 'Completions');
    const left = timeLeft(compact, now);
    const share = (compact.succeeded / compact.total) * 100;
    const percent = compact.total ? ` (${compact.total > 1000 ? (Math.floor(share * 10) / 10).toFixed(1) : Math.floor(share)} %)` : '';
    this.setFact('Succeeded', compact.total === null ? count(compact.succeeded) : `${count(compact.succeeded)} of ${count(compact.total)}${percent}`);
    this.setFact('Running', isFinished(job) ? '' : `${count(running)} of at most ${count(compact.parallelism)}`);
    this.setFact('Waiting Pods', !isFinished(job) && compact.active > running ? count(compact.active - running) : '');
    this.setFact('Failed attempts', count(compact.failed), compact.failed ? 'has-failures' : '');
    this.setFact('Failed indexes', compact.failedIndexes ? count(compact.failedIndexes) : '', 'has-failures');
    const absent = notRun(job);
    const ranges = absent.text.length <= 60 && !of ? ` (${absent.text})` : '';
    this.setFact(knowsFailed(job) ? 'Not run to the end' : 'Not succeeded', absent.count ? `${count(absent.count)}${ranges}` : '', 'has-failures');
    this.setFact('Rate', rate(rateOf(compact, now)));
    this.setFact('Time left', left === null ? '' : duration(left));
    const took = compact.started ? duration((compact.ended || now) - compact.started) : '';
    this.setFact('Elapsed', compact.ended ? '' : took);
    this.setFact('Took', compact.ended ? took : '');
    this.setFact('Started', compact.started ? dateTime(compact.started) : '');
    this.setFact('Ended', compact.ended ? dateTime(compact.ended) : '');
    this.setFact('Created', compact.started ? '' : dateTime(compact.created));
    this.setFact('Terminating', status.terminating ? count(status.terminating) : '');
    const { suspend, parallelism, retry, rest, delete: remove } = this.buttons;
    const finished = isFinished(job), gone = this.deleted || compact.deleting;
    setText(suspend, spec.suspend ? 'Resume' : 'Suspend');
    suspend.disabled = parallelism.disabled = finished || gone;
    suspend.hidden = parallelism.hidden = finished;
    const retryable = finished && spec.completionMode === 'Indexed' && compact.state === 'failed';
    retry.hidden = !retryable;
    retry.disabled = gone || (retryable && !hasFailedIndexes(job));
    // Where it is not known which have failed, it would be the same.
    rest.hidden = !retryable || !knowsFailed(job) || absent.count === 0;
    rest.disabled = gone;
    remove.disabled = this.deleted === true;
  }

  tick() {
    if (!this.job) return;
    this.now = Date.now();
    this.showHead();
    this.part?.tick?.();
    const finished = isFinished(this.job);
    // Once more after its end: what it waited for is over.
    if ((!finished || !this.explainedEnd) && this.now - this.explanation.last > (finished ? 4000 : this.compact.mayWait ? 5000 : 15000)) {
      this.explainedEnd = finished;
      this.explanation.refresh();
    }
  }

  recolour() { this.part?.recolour?.(); }

  focusSearch() { this.part?.search?.focus(); }

  /** The router calls this if only the tab differs. */
  reopen(tab) {
    this.picked = undefined;
    this.openTab(TABS.some(([id]) => id === tab) ? tab : 'indexes');
  }

  key(event) {
    const at = TABS.findIndex(([id]) => id === this.tab);
    const onTab = event.target.closest?.('[role=tab]');
    const step = { '[': -1, ']': 1, ...(onTab ? { ArrowLeft: -1, ArrowRight: 1 } : {}) }[event.key];
    if (step) {
      const next = (at + step + TABS.length) % TABS.length;
      location.hash = jobHref(this.namespace, this.name, TABS[next][0]);
      if (onTab) this.tabButtons[next].focus();
      return true;
    }
    if (event.key === 'Escape') { location.hash = lastList.hash; return true; }
    return this.part?.key?.(event) ?? false;
  }

  destroy() {
    this.closeTab();
    this.jobs.stop();
    this.podStore?.stop();
    this.eventStore?.stop();
    this.explanation.destroy();
  }
}
