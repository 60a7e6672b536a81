// client-node, the client of Kubernetes for JavaScript. The protocol is that of protocol.py.

import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { PassThrough, Writable } from 'node:stream';
import { pathToFileURL } from 'node:url';

// The library is not beside this file: the test says where it is.
const place = createRequire(pathToFileURL(process.argv[3] + '/x.js'));
const k8s = await import(pathToFileURL(place.resolve('@kubernetes/client-node')));

const config = new k8s.KubeConfig();
config.loadFromFile(process.argv[2]);
const core = config.makeApiClient(k8s.CoreV1Api);
const batch = config.makeApiClient(k8s.BatchV1Api);

const say = (line) => process.stdout.write(JSON.stringify(line) + '\n');
const note = (what) => say({ note: what });
const names = (listed) => listed.items.map((item) => item.metadata.name).sort();

function apply(namespace, body, fieldManager, force) {
    const parameters = { name: body.metadata.name, namespace, body, fieldManager, force };
    const asApply = k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.ServerSideApply);
    return body.kind === 'Job'
        ? batch.patchNamespacedJob(parameters, asApply)
        : core.patchNamespacedConfigMap(parameters, asApply);
}

async function objects({ namespace, make }) {
    for (const body of make) await core.createNamespacedConfigMap({ namespace, body });
    const got = (await core.readNamespacedConfigMap({ name: 'red-1', namespace })).data.colour;
    const red = names(await core.listNamespacedConfigMap({ namespace, labelSelector: 'colour=red' }));
    const field = names(await core.listNamespacedConfigMap({ namespace, fieldSelector: 'metadata.name=blue-1' }));
    await core.deleteNamespacedConfigMap({ name: 'red-2', namespace });
    const left = names(await core.listNamespacedConfigMap({ namespace, labelSelector: 'suite=objects' }));
    return { got, red, field, left };
}

async function conflict({ namespace, alice, bob }) {
    await apply(namespace, alice, 'alice');
    let said = null;
    try {
        await apply(namespace, bob, 'bob');
    } catch (error) {
        if (!(error instanceof k8s.ApiException)) throw error;
        said = `${error.code} ${error.body}`;
    }
    await apply(namespace, bob, 'bob', true);
    return { conflict: said };
}

async function owners({ namespace, steps }) {
    for (const [manager, manifest] of steps) await apply(namespace, manifest, manager);
}

async function rollback({ namespace, first, second }) {
    await apply(namespace, first, 'user');
    const after = await apply(namespace, second, 'user');
    await apply(namespace, first, 'user');
    return { second: after.data };
}

async function paging({ namespace, limit }) {
    const found = [];
    const versions = new Set();
    let pages = 0;
    let _continue;
    do {
        const page = await core.listNamespacedConfigMap({ namespace, limit, _continue, labelSelector: 'suite=paging' });
        for (const item of page.items) found.push([item.metadata.name, item.data?.n ?? null]);
        versions.add(page.metadata.resourceVersion);
        pages += 1;
        _continue = page.metadata._continue;
    } while (_continue);
    return { found, versions: [...versions], pages };
}

// The client's informer ends with an error if its connection breaks; its documentation starts it again.
async function watching({ namespace }) {
    const labelSelector = 'suite=watch';
    const path = `/api/v1/namespaces/${namespace}/configmaps`;
    let lists = 0;
    const list = () => {
        lists += 1;
        return core.listNamespacedConfigMap({ namespace, labelSelector });
    };
    const informer = k8s.makeInformer(config, path, list, labelSelector);
    const state = () => Object.fromEntries(informer.list().map((item) => [item.metadata.name, item.data.v]));
    const deleted = [];
    const ended = new Promise((resolve) => {
        const changed = () => {
            note({ seen: state() });
            if ('end' in state()) resolve();
        };
        informer.on('add', changed);
        informer.on('update', changed);
        informer.on('delete', (item) => deleted.push(item.metadata.name));
        informer.on('error', () => setTimeout(() => informer.start(), 100));
    });
    await informer.start();
    await ended;
    const result = { state: state(), deleted, expired: lists > 1 };
    await informer.stop();
    return result;
}

async function terminal({ namespace, pod, command, input }) {
    let out = '';
    const screen = new Writable({
        write(chunk, _encoding, done) {
            out += chunk;
            done();
        },
    });
    Object.assign(screen, { rows: 17, columns: 91 });
    const keys = new PassThrough();
    const session = new k8s.Exec(config);
    const code = await new Promise((resolve, reject) => {
        const ended = (status) => {
            const cause = status.details?.causes?.find((one) => one.reason === 'ExitCode');
            resolve(status.status === 'Success' ? 0 : Number(cause?.message));
        };
        session.exec(namespace, pod, 'main', command, screen, null, keys, true, ended).then(() => keys.write(input), reject);
    });
    return { out, code };
}

async function logs({ namespace, pod }) {
    let text = '';
    const sink = new PassThrough();
    sink.on('data', (chunk) => (text += chunk));
    const ended = new Promise((resolve) => sink.on('end', resolve));
    await new k8s.Log(config).log(namespace, pod, 'main', sink, { follow: true });
    await ended;
    return { lines: text.split('\n').filter((line) => line) };
}

async function job({ namespace, job }) {
    await batch.createNamespacedJob({ namespace, body: job });
    const path = `/apis/batch/v1/namespaces/${namespace}/jobs`;
    const fieldSelector = `metadata.name=${job.metadata.name}`;
    await new Promise((resolve, reject) => {
        let request;
        const seen = (_kind, object) => {
            const conditions = object.status?.conditions ?? [];
            if (!conditions.some((one) => one.type === 'Complete' && one.status === 'True')) return;
            resolve();
            request?.abort();
        };
        new k8s.Watch(config).watch(path, { fieldSelector }, seen, (error) => reject(error ?? new Error('the watch ended')))
            .then((opened) => (request = opened), reject);
    });
}

const things = { objects, conflict, owners, rollback, paging, watch: watching, terminal, logs, job };
for await (const line of createInterface({ input: process.stdin })) {
    const request = JSON.parse(line);
    try {
        say({ answer: (await things[request.thing](request)) ?? {} });
    } catch (error) {
        say({ error: String(error?.stack ?? error) });
    }
}
process.exit(0);
