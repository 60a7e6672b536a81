// The frame of the page: routes, theme, keys, and whether it is connected.

import { connection, onConnection, onSessionOver, pauseAll, resumeAll, retryNow } from './api.js';
import { CronJobView, CronJobsView } from './cronjobs-view.js';
import { h, setText, throttled } from './dom.js';
import { JobView } from './job-view.js';
import { JobsView } from './jobs-view.js';
import { NodesView } from './nodes-view.js';
import { explainJobs } from './stores.js';

const main = document.getElementById('main');
let view = null;
let route = '';
/** Whether the server has ended the session: nothing is requested any more. */
let over = false;

// --- Routes ---

const NAV = [['jobs', 'Jobs'], ['cronjobs', 'CronJobs'], ['nodes', 'Nodes']];
const links = NAV.map(([id, name]) => h('a', { href: `#/${id}` }, name));
document.getElementById('nav').append(...links);

function parseHash() {
  const path = location.hash.replace(/^#\/?/, '').split('?')[0];
  try {
    const parts = path.split('/').map(decodeURIComponent);
    // A browser would resolve these in the path of a request.
    return parts.some((part) => part === '.' || part === '..') ? ['jobs'] : parts;
  } catch {
    return ['jobs'];
  }
}

function openRoute() {
  if (over) return;
  const [kind, namespace, name, tab] = parseHash();
  const key = [kind, namespace, name].join('/');
  // Only the tab differs: the view keeps its connections.
  if (key === route && view?.reopen) view.reopen(tab);
  else {
    view?.destroy();
    if (kind === 'jobs' && name) view = new JobView(namespace, name, tab);
    else if (kind === 'cronjobs' && name) view = new CronJobView(namespace, name);
    else if (kind === 'cronjobs') view = new CronJobsView();
    else if (kind === 'nodes') view = new NodesView();
    else view = new JobsView();
    route = key;
    main.replaceChildren(view.element);
    document.title = `${view.title} · Tally`;
  }
  links.forEach((link, at) => {
    if (NAV[at][0] === (kind || 'jobs')) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  });
}

// --- Theme ---

const THEMES = ['auto', 'light', 'dark'];
const themeButton = document.getElementById('theme');

function setTheme(theme) {
  if (theme === 'auto') document.documentElement.removeAttribute('data-theme');
  else document.documentElement.setAttribute('data-theme', theme);
  setText(themeButton, { auto: '◐', light: '○', dark: '●' }[theme]);
  themeButton.setAttribute('aria-label', `Colours: ${theme}`);
  themeButton.title = `Colours: ${theme}`;
  localStorage.setItem('tally.theme', theme);
  view?.recolour?.();
}
const storedTheme = () => (THEMES.includes(localStorage.getItem('tally.theme')) ? localStorage.getItem('tally.theme') : 'auto');
const nextTheme = () => setTheme(THEMES[(THEMES.indexOf(storedTheme()) + 1) % THEMES.length]);
themeButton.addEventListener('click', nextTheme);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => view?.recolour?.());

// --- Connection ---

const connectionText = document.getElementById('connection');

function showConnection() {
  if (over) return;
  const { state, error, retryAt } = connection();
  const isDown = state === 'disconnected';
  connectionText.dataset.state = state;
  const seconds = Math.max(0, Math.ceil((retryAt - Date.now()) / 1000));
  const text = isDown ? `Not connected. Next attempt in ${seconds} s.` : state === 'loading' ? 'Loading…' : 'Live';
  setText(connectionText.firstElementChild, text);
  connectionText.title = isDown ? error?.message ?? '' : '';
  connectionText.lastElementChild.hidden = !isDown;
}
connectionText.lastElementChild.addEventListener('click', retryNow);
onConnection(throttled(showConnection, 100));

onSessionOver(() => {
  if (over) return;
  over = true;
  pauseAll();
  view?.destroy();
  connectionText.dataset.state = 'disconnected';
  setText(connectionText.firstElementChild, 'Session over');
  main.replaceChildren(h('div', { class: 'over', role: 'alert' }, h('h1', null, 'The session is over'),
    h('p', null, 'Run ', h('code', null, 'tally web'), ' again and open the new link that it prints.')));
});

// A hidden page gives its connections back: a browser opens only six to one server, for all tabs together.
let hideTimer = 0;
document.addEventListener('visibilitychange', () => {
  clearTimeout(hideTimer);
  if (document.hidden) hideTimer = setTimeout(pauseAll, 20000);
  else if (!over) resumeAll();
});

// --- Keys ---

const HELP = [
  ['/', 'Search'], ['↑ ↓ or k j', 'Move in a list'], ['Enter', 'Open'], ['Esc', 'Clear the filters, or go back'], ['[ and ]', 'Previous and next tab of a Job'],
  ['f', 'In the field of indexes: the next failed index'], ['+ and −', 'In the field and the timeline: zoom'], ['1 2 3', 'Jobs, CronJobs, Nodes'],
  ['t', 'Light, dark or automatic colours'], ['?', 'This help'],
];

function showHelp() {
  const close = () => { dialog.close(); dialog.remove(); };
  const dialog = h('dialog', { class: 'ask', 'aria-label': 'Keys', oncancel: close, onclick: (event) => { if (event.target === dialog) close(); } },
    h('h2', null, 'Keys'), h('table', { class: 'keys' }, h('tbody', null, HELP.map(([key, text]) => h('tr', null, h('th', { scope: 'row' }, h('kbd', null, key)), h('td', null, text))))),
    h('div', { class: 'buttons' }, h('button', { type: 'button', onclick: close }, 'Close')));
  document.body.append(dialog);
  dialog.showModal();
}
document.getElementById('help').addEventListener('click', showHelp);
document.getElementById('skip').addEventListener('click', () => (main.querySelector('[tabindex]') ?? main).focus());

document.addEventListener('keydown', (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]') || over) return;
  const typing = event.target.closest('input,select,textarea');
  if (typing) {
    // From the search, arrows and Enter go on in the list.
    if (event.key === 'Escape') typing.blur();
    else if (typing.type === 'search' && ['ArrowDown', 'ArrowUp', 'Enter'].includes(event.key) && view?.list?.key(event)) return;
    else return;
    event.preventDefault();
    return;
  }
  if (event.key === '/') view?.focusSearch?.();
  else if (event.key === '?') showHelp();
  else if (event.key === 't') nextTheme();
  else if (['1', '2', '3'].includes(event.key)) location.hash = `#/${NAV[Number(event.key) - 1][0]}`;
  else if (!view?.key?.(event)) return;
  event.preventDefault();
});

setInterval(() => {
  if (document.hidden || over) return;
  showConnection();
  explainJobs();
  view?.tick?.();
}, 1000);

setTheme(storedTheme());
window.addEventListener('hashchange', openRoute);
openRoute();
