// Nodes and what they run.

import { h, setText, throttled } from './dom.js';
import { bytes, count, duration, quantity } from './format.js';
import { jobHref, listMessage } from './parts.js';
import { podState } from './model.js';
import { useStore } from './stores.js';

/** Jobs that a node shows before "and n more". */
const JOBS_SHOWN = 12;

export class NodesView {
  constructor() {
    this.title = 'Nodes';
    this.message = h('p', { class: 'empty' });
    this.grid = h('div', { class: 'nodes' });
    this.element = h('div', { class: 'view nodes-view' }, this.message, this.grid);
    this.cards = new Map();
    this.open = new Set();
    this.update = throttled(() => this.show(), 500);
    this.nodes = useStore('nodes', '', this.update);
    this.pods = useStore('activePods', '', this.update);
    this.update();
  }

  show() {
    const now = Date.now();
    const { reflector } = this.nodes;
    const text = listMessage(reflector, 'nodes') || (reflector.items.size === 0 ? 'There are no nodes.' : '');
    setText(this.message, text);
    this.message.hidden = text === '';
    const byNode = new Map();
    for (const pod of this.pods.reflector.items.values()) {
      if (!byNode.has(pod.node)) byNode.set(pod.node, []);
      byNode.get(pod.node).push(pod);
    }
    const nodes = [...reflector.items.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
    const cards = nodes.map((node) => this.card(node, byNode.get(node.name) ?? [], now));
    const unassigned = byNode.get('') ?? [];
    if (unassigned.length > 0) cards.push(this.card(null, unassigned, now));
    if (cards.some((card, at) => this.grid.children[at] !== card) || this.grid.children.length !== cards.length) this.grid.replaceChildren(...cards);
  }

  card(node, pods, now) {
    const name = node?.name ?? '';
    const jobs = new Map();
    for (const pod of pods) {
      const key = pod.job ? `${pod.namespace}/${pod.job}` : `${pod.namespace}/${pod.name}`;
      const group = jobs.get(key) ?? { key, job: pod.job, namespace: pod.namespace, running: 0, waiting: 0 };
      group[podState(pod)]++;
      jobs.set(key, group);
    }
    const groups = [...jobs.values()].sort((a, b) => b.running + b.waiting - a.running - a.waiting || (a.key < b.key ? -1 : 1));
    const sum = (resource) => pods.reduce((total, pod) => total + pod.requests.reduce((n, one) => n + quantity(one[resource]), 0), 0);
    const cpu = sum('cpu'), memory = sum('memory');
    const all = this.open.has(name);
    const key = JSON.stringify([node, groups, cpu, memory, all]);
    const known = this.cards.get(name);
    if (known?.key === key) return known.element;
    const problems = (node?.conditions ?? []).filter(({ type, value }) => (type === 'Ready' ? value !== 'True' : value === 'True'));
    const meter = (label, used, has, format) => h('div', { class: 'meter' }, h('span', { class: 'meter-label' }, label), this.meterBar(used, has), h('span', { class: 'num' }, `${format(used)} of ${format(has)}`));
    const plain = (n) => (Number.isInteger(n) ? count(n) : n.toFixed(2));
    const shown = all ? groups : groups.slice(0, JOBS_SHOWN);
    const element = h('section', { class: 'node-card', 'aria-label': name || 'No node' },
      h('div', { class: 'node-head' }, h('h2', null, name || 'Not assigned to a node'),
        node && h('span', { class: 'badge', 'data-state': node.ready ? 'complete' : 'failed' }, h('span', { class: 'badge-symbol', 'aria-hidden': 'true' }, node.ready ? '✓' : '✕'), node.ready ? 'Ready' : 'Not ready'),
        node?.unschedulable && h('span', { class: 'tag' }, 'unschedulable')),
      node && h('p', { class: 'note' }, [node.version, `age ${duration(now - node.created)}`, ...node.taints].filter(Boolean).join(' · ')),
      problems.map(({ type, reason, message }) => h('p', { class: 'problem' }, `${type}: ${[reason, message].filter(Boolean).join(': ')}`)),
      node && [meter('Pods', pods.length, quantity(node.allocatable.pods), plain), meter('CPU requested', cpu, quantity(node.allocatable.cpu), plain),
        meter('Memory requested', memory, quantity(node.allocatable.memory), bytes)],
      groups.length === 0 ? h('p', { class: 'note' }, 'Runs nothing.') : h('ul', { class: 'node-jobs' }, shown.map((group) => h('li', null,
        group.job ? h('a', { href: jobHref(group.namespace, group.job) }, group.key) : h('span', null, `Pod ${group.key}`),
        h('span', { class: 'note' }, [group.running && ` ${count(group.running)} running`, group.waiting && ` ${count(group.waiting)} waiting`].filter(Boolean).join(','))))),
      groups.length > JOBS_SHOWN && h('button', { type: 'button', class: 'small', onclick: () => { if (all) this.open.delete(name); else this.open.add(name); this.show(); } },
        all ? 'Show fewer' : `Show ${count(groups.length - JOBS_SHOWN)} more`));
    this.cards.set(name, { key, element });
    return element;
  }

  meterBar(used, has) {
    const part = h('span', { class: 'bar-part part-running' });
    part.style.width = has > 0 ? `${Math.min(100, (used / has) * 100)}%` : '0%';
    return h('span', { class: 'bar', 'aria-hidden': 'true' }, part);
  }

  tick() {}
  key(event) {
    if (event.key === 'Escape') { location.hash = '#/jobs'; return true; }
    return false;
  }

  destroy() {
    this.nodes.release();
    this.pods.release();
  }
}
