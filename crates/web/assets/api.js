// Requests to the API server: lists, watches and streams of lines.

export class ApiError extends Error {
  constructor(status, message, reason = '') {
    super(message);
    this.status = status;
    this.reason = reason;
  }
}

const sessionOverListeners = new Set();
/** Calls the listener once the server answers 401. */
export function onSessionOver(listener) { sessionOverListeners.add(listener); }

/** Sends a request and returns the Response. A status that is not 2xx throws an ApiError with the server's message. */
export async function send(method, path, { body, type = 'application/json', signal } = {}) {
  const headers = {};
  if (body !== undefined) headers['Content-Type'] = type;
  if (method !== 'GET') headers['X-Tally-Page'] = '1';
  const response = await fetch(path, {
    method, headers, signal, cache: 'no-store', credentials: 'same-origin', redirect: 'error',
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (response.ok) return response;
  if (response.status === 401) sessionOverListeners.forEach((listener) => listener());
  // If the connection ends before the body, the status is sufficient.
  throw refused(response.status, await response.text().catch(() => ''));
}

function refused(status, text) {
  let message = '', reason = '';
  try {
    ({ message = '', reason = '' } = JSON.parse(text));
  } catch {
    message = text.slice(0, 300);
  }
  return new ApiError(status, message || `the server answered ${status}`, reason);
}

/**
 * A GET that goes on, such as a watch: a Response, of which the body arrives through a WebSocket. A browser has six connections
 * for each server, with all its tabs; WebSockets are not among them. The first message is the status, the others are the body. If
 * no WebSocket can be opened, an ordinary request says why, or does the same.
 */
export function openStream(path, signal) {
  const url = new URL(path, location.href);
  url.protocol = url.protocol.replace('http', 'ws');
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url);
    socket.binaryType = 'arraybuffer';
    let status = 0, body, refusal = '';
    const stream = new ReadableStream({ start: (controller) => { body = controller; }, cancel: () => socket.close() });
    const decoder = new TextDecoder();
    const abort = () => {
      socket.onmessage = socket.onclose = null;
      socket.close();
      const error = new DOMException('the view was closed', 'AbortError');
      if (status === 200) body.error(error);
      else reject(error);
    };
    if (signal?.aborted) return abort();
    signal?.addEventListener('abort', abort, { once: true });
    socket.onmessage = ({ data }) => {
      if (status === 0) {
        status = Number(data) || 500;
        if (status === 200) resolve(new Response(stream));
      } else if (status === 200) {
        body.enqueue(new Uint8Array(data));
      } else {
        refusal += decoder.decode(data, { stream: true });
      }
    };
    socket.onclose = () => {
      signal?.removeEventListener('abort', abort);
      if (status === 0) resolve(send('GET', path, { signal }));
      else if (status === 200) body.close();
      else reject(refused(status, refusal));
    };
  });
}

export async function getJson(path, signal) {
  return (await send('GET', path, { signal })).json();
}

/** A path with query parameters; empty ones are left out. */
export function withQuery(path, query) {
  const text = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== '' && value !== undefined)).toString();
  return text ? `${path}?${text}` : path;
}

/** Path of a list. An empty namespace means all namespaces. */
export function listPath(group, namespace, resource) {
  const root = group === '' ? '/api/v1' : `/apis/${group}`;
  return namespace ? `${root}/namespaces/${encodeURIComponent(namespace)}/${resource}` : `${root}/${resource}`;
}

export function objectPath(group, namespace, resource, name) {
  return `${listPath(group, namespace, resource)}/${encodeURIComponent(name)}`;
}

/** The first page is small, so that the first rows appear soon; then few round trips matter more. */
const PAGE_FIRST = 200, PAGE = 2500;

/** All pages of a list; `each(item)` for every item. Returns the resourceVersion of the list. */
export async function listAll(path, query, signal, each, onPage = () => {}) {
  let token = '';
  for (;;) {
    const limit = token === '' ? PAGE_FIRST : PAGE;
    // Servers write indented JSON to browsers, twice as long, unless the request says no.
    const page = await getJson(withQuery(path, { ...query, limit, continue: token, pretty: false }), signal);
    page.items?.forEach(each);
    onPage();
    token = page.metadata?.continue ?? '';
    if (token === '') return page.metadata?.resourceVersion ?? '';
  }
}

/** The longest line of a log, and of a watch: an object has at most a few megabytes. */
const LINE_MAX = 8 << 20;

/** Passes the lines of a response to `onLines(array)` as they arrive, the last one also without a newline. */
export async function readLines(response, onLines) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  // The parts of a line whose end has not arrived, and their length. What is longer than a line may be is dropped.
  let parts = [], length = 0;
  const add = (part) => {
    if (length < LINE_MAX) parts.push(part.slice(0, LINE_MAX - length));
    length += part.length;
  };
  const take = () => {
    const line = parts.join('') + (length > LINE_MAX ? ' …' : '');
    [parts, length] = [[], 0];
    return line;
  };
  for (;;) {
    const { done, value } = await reader.read();
    const pieces = (done ? decoder.decode() : decoder.decode(value, { stream: true })).split('\n');
    const lines = [];
    for (const [at, piece] of pieces.entries()) {
      if (at > 0) lines.push(take());
      add(piece);
    }
    if (done && length > 0) lines.push(take());
    if (lines.length > 0) onLines(lines);
    if (done) return;
  }
}

const WAIT_FIRST = 1000, WAIT_MAX = 30000;

/** The wait before attempt `failures` + 1, with jitter: many pages must not come back at the same time. */
export function backoff(failures) {
  return Math.min(WAIT_MAX, WAIT_FIRST * 2 ** (failures - 1)) * (0.5 + Math.random() / 2);
}

/** A wait that `wake` or the signal ends early. */
function sleep(milliseconds, signal, onWake = () => {}) {
  return new Promise((resolve) => {
    const end = () => { clearTimeout(timer); signal?.removeEventListener('abort', end); resolve(); };
    const timer = setTimeout(end, milliseconds);
    signal?.addEventListener('abort', end);
    onWake(end);
  });
}

/** Reflectors that run now. A hidden page pauses them. */
const running = new Set();
const stateListeners = new Set();
export function onConnection(listener) { stateListeners.add(listener); }

/** The worst state of all reflectors that run: {state: 'live' | 'loading' | 'disconnected', error, retryAt}. */
export function connection() {
  let worst = { state: 'live' };
  for (const one of running) {
    if (one.state === 'disconnected') return one;
    if (one.state === 'loading') worst = one;
  }
  return worst;
}

export function pauseAll() { running.forEach((one) => one.pause()); }
export function resumeAll() { running.forEach((one) => one.resume()); }
export function retryNow() { running.forEach((one) => one.wake?.()); }

/**
 * A list and a watch of one kind: keeps `items` (uid to compact object) equal to what the server has.
 * `compact(object, earlier)` makes what is kept, or null to keep nothing; `onChange()` is called after every batch of changes.
 * `listQuery`: parameters of the list alone. The watch then also reports objects that the list leaves out.
 */
export class Reflector {
  constructor({ path, query = {}, compact, onChange = () => {}, onObject = () => {}, listQuery = {} }) {
    Object.assign(this, { path, query, compact, onChange, onObject, listQuery });
    this.items = new Map();
    this.version = '';
    /** idle, loading, live, disconnected or denied. */
    this.state = 'idle';
    this.error = null;
    this.retryAt = 0;
    this.loaded = false;
  }

  start() {
    if (this.control) return this;
    running.add(this);
    this.resume();
    return this;
  }

  stop() {
    running.delete(this);
    this.pause();
    this.setState('idle');
  }

  pause() {
    this.control?.abort();
    this.control = null;
  }

  resume() {
    if (this.control || !running.has(this)) return;
    this.control = new AbortController();
    this.run(this.control.signal);
  }

  setState(state, error = null) {
    if (this.state === state && this.error === error) return;
    [this.state, this.error] = [state, error];
    stateListeners.forEach((listener) => listener());
    this.onChange();
  }

  async run(signal) {
    let failures = 0;
    while (!signal.aborted) {
      const watchedFrom = Date.now();
      try {
        if (this.version === '') await this.list(signal);
        await this.watch(signal);
        failures = 0;
        // A server that ends every watch at once must not be asked without a pause.
        if (Date.now() - watchedFrom < 1000) await sleep(1000, signal);
      } catch (error) {
        if (signal.aborted) return;
        if (error.status === 401) { this.setState('denied', error); return; }
        if (error.status === 410 && Date.now() - watchedFrom > 1000) { this.version = ''; continue; }
        if (error.status === 410) this.version = '';
        failures++;
        const denied = error.status === 403 || error.status === 404;
        const wait = denied ? WAIT_MAX : backoff(failures);
        this.retryAt = Date.now() + wait;
        this.setState(denied ? 'denied' : 'disconnected', error);
        await sleep(wait, signal, (wake) => { this.wake = wake; });
        this.wake = null;
      }
    }
  }

  async list(signal) {
    if (!this.loaded) this.setState('loading');
    // The first list appears page by page; a later one replaces the items when it is complete.
    const items = this.loaded ? new Map() : this.items;
    items.clear();
    const version = await listAll(this.path, { ...this.query, ...this.listQuery }, signal, (object) => this.keep(items, object), () => {
      if (!this.loaded) this.onChange();
    });
    this.items = items;
    this.version = version;
    this.loaded = true;
    this.setState('live');
    this.onChange();
  }

  keep(items, object) {
    const uid = object.metadata.uid;
    const kept = this.compact(object, this.items.get(uid));
    if (kept === null) items.delete(uid);
    else items.set(uid, kept);
    this.onObject(object);
  }

  async watch(signal) {
    // The server ends the watch after this time. A connection that is dead without notice is given up a little later.
    const seconds = 240 + Math.floor(Math.random() * 60);
    const control = new AbortController();
    const abort = () => control.abort();
    signal.addEventListener('abort', abort);
    const timer = setTimeout(abort, (seconds + 20) * 1000);
    try {
      const query = { ...this.query, watch: 1, allowWatchBookmarks: true, resourceVersion: this.version, timeoutSeconds: seconds };
      const response = await openStream(withQuery(this.path, query), control.signal);
      this.setState('live');
      await readLines(response, (lines) => this.apply(lines));
    } catch (error) {
      // The timer has ended it: watch again.
      if (!(control.signal.aborted && !signal.aborted)) throw error;
    } finally {
      // Closes the connection if an event could not be applied.
      control.abort();
      clearTimeout(timer);
      signal.removeEventListener('abort', abort);
    }
  }

  apply(lines) {
    for (const line of lines) {
      if (line === '') continue;
      const { type, object } = JSON.parse(line);
      if (type === 'ERROR') throw new ApiError(object.code ?? 500, object.message ?? 'the watch failed', object.reason);
      this.version = object.metadata.resourceVersion;
      if (type === 'BOOKMARK') continue;
      if (type === 'DELETED') {
        this.items.delete(object.metadata.uid);
        this.onObject(object, true);
      } else {
        this.keep(this.items, object);
      }
    }
    this.onChange();
  }
}
