// The lists that several views share. A list is watched while a view uses it; afterwards its items stay, and the watch
// continues from them.

import { Reflector, listPath } from './api.js';
import { compactCronJob, compactJob, compactNode, compactNodePod, observeRate } from './model.js';
import { askWhichWait, withWait } from './waits.js';

const KINDS = {
  jobs: { group: 'batch/v1', resource: 'jobs', compact: (job, earlier) => withWait(observeRate(compactJob(job), earlier, Date.now())) },
  cronjobs: { group: 'batch/v1', resource: 'cronjobs', compact: compactCronJob },
  nodes: { group: '', resource: 'nodes', compact: compactNode },
  activePods: {
    group: '', resource: 'pods', compact: compactNodePod, query: { fieldSelector: 'status.phase!=Succeeded,status.phase!=Failed' },
  },
};

const stores = new Map();

/** Uses a list: {reflector, release}. `namespace` '' means all. */
export function useStore(kind, namespace, onChange) {
  const key = `${kind}/${namespace}`;
  let store = stores.get(key);
  if (!store) {
    const { group, resource, compact, query = {} } = KINDS[kind];
    const listeners = new Set();
    const reflector = new Reflector({
      path: listPath(group, namespace, resource), query, compact, onChange: () => listeners.forEach((listener) => listener()),
    });
    store = { reflector, listeners };
    stores.set(key, store);
  }
  store.listeners.add(onChange);
  store.reflector.start();
  return {
    reflector: store.reflector,
    release() {
      store.listeners.delete(onChange);
      if (store.listeners.size === 0) store.reflector.stop();
    },
  };
}

/** Every second: asks which of the Jobs wait that views show, and shows what was learned. */
export async function explainJobs() {
  for (const [key, { reflector, listeners }] of stores) {
    if (!key.startsWith('jobs/') || listeners.size === 0 || !(await askWhichWait(reflector.items.values()))) continue;
    for (const job of reflector.items.values()) withWait(job);
    listeners.forEach((listener) => listener());
  }
}

/**
 * The scope of a user who may not list all namespaces: views then list the one that the user enters. Remembered so that a
 * reload does not ask for all namespaces again.
 */
const SCOPED = 'tally.scoped';
export const scope = {
  get isLimited() { return sessionStorage.getItem(SCOPED) === '1'; },
  limit() { sessionStorage.setItem(SCOPED, '1'); },
};
