//! The page in a real browser, against the real binary and real processes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::browser::{self, Browser, Tab};
use crate::door::link;
use crate::support::client::Call;
use crate::support::server::{self, Server};

/// Every index prints a line that must not become markup; some fail.
const TASK: &str = "echo \"<img src=x onerror=document.title='bad'> $JOB_COMPLETION_INDEX\"; sleep 0.1; \
                    [ $((JOB_COMPLETION_INDEX % 23)) != 7 ]";

/// The hover text and the colour at many points of the field: by the index that the text names, the words and the colours.
const LOOK_AT_FIELD: &str = "(() => {
  const canvas = document.querySelector('.field-canvas'), box = canvas.getBoundingClientRect();
  const context = canvas.getContext('2d'), found = {};
  for (let y = 1; y < box.height; y += 3) for (let x = 1; x < box.width; x += 3) {
    const event = new PointerEvent('pointermove', {clientX: box.left + x, clientY: box.top + y, bubbles: true});
    document.querySelector('.field-scroll').dispatchEvent(event);
    const tip = document.querySelector('.tip');
    if (!tip || tip.hidden) continue;
    const [, index, state] = tip.textContent.match(/^Index (\\d+): (.*?) \\(/) || [];
    if (index === undefined) continue;
    const scale = canvas.width / box.width;
    const colour = context.getImageData(x * scale, y * scale, 1, 1).data.join();
    const one = found[index] ??= {state, colours: {}};
    one.colours[colour] = (one.colours[colour] || 0) + 1;
  }
  return found;
})()";

struct Page {
    browser: Browser,
    tab: Tab,
    server: Server,
    directory: tempfile::TempDir,
}

impl Page {
    /// None: there is no browser on this machine.
    async fn open(options: &[&str]) -> Option<Self> {
        let Some(program) = browser::program() else {
            tally_testing::skip_without("chromium");
            return None;
        };
        let directory = server::directory();
        let data = directory.path().join("data");
        let data = ["--data-dir", data.to_str().expect("a path that can be written down")];
        let server = Server::start_with(directory.path(), &[&data[..], options].concat()).await;
        let mut browser = Browser::start(&program, directory.path());
        let tab = browser.open(&link(&server), None);
        browser.resize(&tab, 1200, 900);
        browser.wait_for(&tab, "document.querySelector('#connection').textContent.startsWith('Live')");
        Some(Self { browser, tab, server, directory })
    }

    fn evaluate(&mut self, expression: &str) -> Value {
        self.browser.evaluate(&self.tab, expression)
    }

    #[track_caller]
    fn wait_for(&mut self, expression: &str) {
        self.browser.wait_for(&self.tab, expression);
    }

    fn go(&mut self, place: &str) {
        self.evaluate(&format!("location.hash = '#/{place}'"));
    }

    /// Presses a button of the Job and confirms.
    fn act(&mut self, button: &str) {
        let press =
            format!("[...document.querySelectorAll('.actions button')].find((it) => it.textContent === '{button}')");
        self.wait_for(&press);
        self.evaluate(&format!("{press}.click()"));
        self.wait_for("document.querySelector('dialog[open] [type=submit]')");
        self.evaluate("document.querySelector('dialog[open] [type=submit]').click()");
        self.wait_for("!document.querySelector('dialog[open]')");
    }

    async fn call(&self, call: Call) -> Value {
        let answer = self.server.api.connection().call(&call).await.expect("an answer");
        assert!((200..300).contains(&answer.code), "{} {}: {}", call.method, call.path, answer.text);
        answer.value()
    }

    async fn job(&self, name: &str) -> Value {
        self.call(Call::get(format!("/apis/batch/v1/namespaces/default/jobs/{name}"))).await
    }

    async fn create(&self, job: &Value) {
        self.call(Call::new("POST", "/apis/batch/v1/namespaces/default/jobs").body(job)).await;
    }

    /// A picture for the documents, if they are asked for: `TALLY_SCREENSHOTS=docs/pictures cargo test -p tally --test web`.
    fn picture(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("TALLY_SCREENSHOTS").map(PathBuf::from) else { return };
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        self.browser.screenshot(&self.tab, &root.join(folder).join(format!("{name}.png")));
    }
}

fn job(name: &str, completions: u32, parallelism: u32, command: &[&str]) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": {"team": "batch"}},
        "spec": {"completions": completions, "parallelism": parallelism, "completionMode": "Indexed",
            "backoffLimitPerIndex": 0, "template": {"spec": {"restartPolicy": "Never", "containers": [
                {"name": "main", "image": "process", "command": command}]}}},
    })
}

/// The numbers of a text such as `1,3-5`.
fn numbers(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        from.parse::<u32>().unwrap()..=to.parse::<u32>().unwrap()
    };
    text.split(',').filter(|part| !part.is_empty()).flat_map(range).collect()
}

/// WEB-4: login by the link, live progress, and the colours of the field against the status of the Job.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_300_indexes_is_followed_to_its_end() {
    let Some(mut page) = Page::open(&[]).await else { return };
    assert_eq!(page.evaluate("location.search"), "", "the token is not in the address any more");
    page.create(&job("sum", 300, 8, &["sh", "-c", TASK])).await;
    page.wait_for("[...document.querySelectorAll('.vrow .name')].some((it) => it.textContent === 'sum')");
    page.picture("jobs");
    page.go("jobs/default/sum");
    let progress = "document.querySelector('.facts dd').textContent";
    page.wait_for(&format!("parseInt({progress}) > 0"));
    let before = page.evaluate(progress);
    page.wait_for(&format!("{progress} !== {before}"));
    page.picture("running");

    page.wait_for("document.querySelector('.job-title .badge').textContent.includes('Failed')");
    let status = page.job("sum").await["status"].clone();
    let failed = numbers(status["failedIndexes"].as_str().unwrap());
    assert_eq!(failed.len(), 13, "{status}");
    page.wait_for("document.querySelectorAll('.legend .num')[3].textContent === '13'");
    let counts = page.evaluate("[...document.querySelectorAll('.legend .num')].map((it) => +it.textContent)");
    assert_eq!(counts, json!([0, 0, 287, 13, 0, 0]));
    page.picture("job");

    let field = page.evaluate(LOOK_AT_FIELD);
    let field = field.as_object().unwrap();
    assert_eq!(field.len(), 300, "every index can be pointed at");
    let mut colours: BTreeMap<&str, BTreeMap<String, usize>> = BTreeMap::new();
    for (index, found) in field {
        let expected = if failed.contains(&index.parse().unwrap()) { "failed" } else { "succeeded" };
        assert_eq!(found["state"], expected, "index {index}");
        let most = found["colours"].as_object().unwrap().iter().max_by_key(|(_, count)| count.as_u64());
        *colours.entry(expected).or_default().entry(most.unwrap().0.clone()).or_default() += 1;
    }
    let [failed, succeeded] = ["failed", "succeeded"].map(|state| colours[state].keys().collect::<Vec<_>>());
    assert!(failed.len() == 1 && succeeded.len() == 1 && failed != succeeded, "one colour for each state: {colours:?}");
    assert_eq!(page.browser.errors(&page.tab), [""; 0]);
}

/// What a Job that was ended has not run is shown, and is run with what has failed.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_run_is_shown_and_run() {
    let Some(mut page) = Page::open(&[]).await else { return };
    let go = page.directory.path().join("go");
    let script = format!("[ $JOB_COMPLETION_INDEX != 2 ] || [ -e {} ]", go.display());
    let mut halted = job("halted", 9, 1, &["sh", "-c", &script]);
    halted["spec"]["maxFailedIndexes"] = 0.into();
    page.create(&halted).await;
    page.go("jobs/default/halted");
    page.wait_for("document.querySelector('.facts').textContent.includes('Not run to the end6 (3-8)')");
    std::fs::write(&go, "").unwrap();
    page.act("Run what is left");
    page.wait_for("document.querySelector('.job-title').textContent.includes('halted-retry-1')");
    page.wait_for("document.querySelector('.job-title .badge').textContent.includes('Complete')");
    let made = page.job("halted-retry-1").await;
    assert_eq!(made["metadata"]["annotations"]["tally.dev/retry-indexes"], "2-8");
    assert_eq!(made["status"]["succeeded"], 7);
    assert_eq!(page.browser.errors(&page.tab), [""; 0]);
}

/// WEB-5: logs are followed and are text; actions work, behind a confirmation.
#[tokio::test(flavor = "multi_thread")]
async fn logs_are_text_and_a_job_is_suspended_and_resumed() {
    let Some(mut page) = Page::open(&[]).await else { return };
    let script = "echo \"<img src=x onerror=document.title='bad'>\"; while :; do echo tick; sleep 0.2; done";
    page.create(&job("slow", 1, 1, &["sh", "-c", script])).await;
    page.go("jobs/default/slow/logs");
    page.wait_for("document.querySelectorAll('.log-line').length > 3");
    let lines = page.evaluate("document.querySelectorAll('.log-line').length");
    page.wait_for(&format!("document.querySelectorAll('.log-line').length > {lines} + 2"));
    let shown = page.evaluate(
        "[...document.querySelectorAll('.log-line')].some((it) => it.textContent.includes('<img src=x')) \
         && !document.querySelector('.log-body img')",
    );
    assert_eq!(shown, true);
    assert_ne!(page.evaluate("document.title"), "bad");

    page.act("Suspend");
    page.wait_for("document.querySelector('.job-title .badge').textContent.includes('Suspended')");
    assert_eq!(page.job("slow").await["spec"]["suspend"], true);
    page.act("Resume");
    page.wait_for("document.querySelector('.job-title .badge').textContent.includes('Running')");
    assert_eq!(page.job("slow").await["spec"]["suspend"], false);
    page.act("Delete");
    page.wait_for("document.querySelector('.notice').textContent.includes('deleted')");
    assert_eq!(page.browser.errors(&page.tab), [""; 0]);
}

/// WEB-7: a Job that cannot start is not drawn as if it ran, and says why; a failed one says how.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_cannot_start_waits_with_its_reason_and_a_failed_one_says_how() {
    let Some(mut page) = Page::open(&[]).await else { return };
    let mut gpu = job("gpu", 1, 1, &["sleep", "1000"]);
    gpu["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": "1"}});
    page.create(&gpu).await;
    page.create(&job("runs", 1, 1, &["sleep", "1000"])).await;
    page.create(&job("three", 1, 1, &["sh", "-c", "echo '<b>cannot open the door</b>'; exit 3"])).await;
    page.create(&job("nothing", 1, 1, &["no-such-program"])).await;
    let row = |name: &str, part: &str| {
        format!(
            "[...document.querySelectorAll('.vrow:not([hidden])')]\
             .find((it) => it.querySelector('.name').textContent === '{name}')?.querySelector('{part}')"
        )
    };
    let reason = "fits on no node: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu.";
    page.wait_for(&format!("{}?.textContent.includes('{reason}')", row("gpu", ".why")));
    page.wait_for(&format!("{}?.textContent.includes('Running')", row("runs", ".badge")));
    page.wait_for(&format!("{}?.textContent.includes('Failed')", row("three", ".badge")));
    assert_eq!(page.evaluate(&format!("{}.textContent.includes('Waiting')", row("gpu", ".badge"))), true);
    // The bar of the one that runs is full, that of the one that waits is empty.
    let bar = |name: &str| format!("{}.style.width", row(name, ".part-running"));
    page.wait_for(&format!("{} === '100%'", bar("runs")));
    assert_eq!(page.evaluate(&bar("gpu")), "0%");
    // The sentence is readable: on lines of its own, and not cut off, on a wide page and on a phone. Rows do not overlap.
    for (width, height) in [(1200, 900), (400, 800)] {
        page.browser.resize(&page.tab, width, height);
        let whole = format!(
            "(() => {{ const why = {}; const rows = [...document.querySelectorAll('.vrow:not([hidden])')]\
             .map((it) => it.getBoundingClientRect()).sort((a, b) => a.top - b.top); \
             return innerWidth === {width} && why.scrollHeight <= why.clientHeight && why.clientHeight > 10 \
             && rows.every((it, at) => at === 0 || it.top >= rows[at - 1].bottom - 1); }})()",
            row("gpu", ".why")
        );
        page.wait_for(&whole);
        page.picture(if width > 400 { "waiting" } else { "waiting-narrow" });
    }
    page.browser.resize(&page.tab, 1200, 900);

    page.go("jobs/default/gpu");
    page.wait_for(&format!("document.querySelector('.explanation .summary')?.textContent.includes('{reason}')"));
    page.wait_for("document.querySelector('.job-title .badge:not([hidden])')?.textContent.includes('Waiting')");
    page.wait_for("document.querySelector('.progress-line .part-running').style.width === '0%'");
    let facts = page.evaluate("[...document.querySelectorAll('.facts div:not([hidden])')].map((it) => it.innerText)");
    assert!(facts.to_string().contains("0 of at most 1"), "{facts}");
    page.picture("waiting-job");

    page.go("jobs/default/three");
    page.wait_for("document.querySelector('.explanation .failure')?.textContent.includes('exit code 3.')");
    let log = page.evaluate("document.querySelector('.explanation .failure pre').textContent");
    assert_eq!(log, "<b>cannot open the door</b>");
    page.wait_for("document.querySelector('.job-title .badge:not([hidden])')?.textContent.includes('Failed')");
    page.picture("failed-job");
    page.go("jobs/default/nothing");
    let missing = "the command \\\"no-such-program\\\" was not found in PATH=";
    page.wait_for(&format!("document.querySelector('.explanation .failure')?.textContent.includes(\"{missing}\")"));
    assert_eq!(page.browser.errors(&page.tab), [""; 0]);
}

/// WEB-1, WEB-2: what a browser without a session gets, and one with a link that was used or has expired.
#[tokio::test(flavor = "multi_thread")]
async fn another_browser_and_a_used_or_expired_link_are_refused() {
    let Some(mut page) = Page::open(&["--no-node"]).await else { return };
    let link = link(&page.server);
    let context = page.browser.context();
    let (address, _) = link.split_once("?token").unwrap();
    for url in [address, &link] {
        let other = page.browser.open(url, Some(&context));
        page.browser.wait_for(&other, "document.body.innerText.includes('tally web')");
        let got = page.browser.evaluate(&other, "fetch('/apis/batch/v1/jobs').then((it) => it.status)");
        assert_eq!(got, 401, "{url}");
    }
    let own = page.evaluate("fetch('/apis/batch/v1/jobs').then((it) => it.status)");
    assert_eq!(own, 200);
    // A link that was not used in time.
    let (mut web, link) = crate::door::tally_web(&page.server, &["--link-for", "1s"]);
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    let late = page.browser.open(&link, Some(&context));
    page.browser.wait_for(&late, "document.body.innerText.includes('is older than 1 second.')");
    assert_eq!(page.browser.evaluate(&late, "fetch('/apis/batch/v1/jobs').then((it) => it.status)"), 401);
    web.kill().unwrap();
    web.wait().unwrap();
}

/// WEB-6: the figures are printed; a machine that is busy must not fail the test.
#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_jobs_and_a_hundred_thousand_indexes_are_shown() {
    let Some(mut page) = Page::open(&["--no-node", "--controllers", ""]).await else { return };
    let mut big = job("big", 100_000, 1, &["true"]);
    big["spec"]["suspend"] = true.into();
    page.create(&big).await;
    let ranges: Vec<String> = (0..100_000).step_by(10).map(|from| format!("{from}-{}", from + 6)).collect();
    let status = json!({"status": {"succeeded": 70_000, "completedIndexes": ranges.join(",")}});
    let path = "/apis/batch/v1/namespaces/default/jobs/big/status";
    let patch = Call::new("PATCH", path).body(&status).header("content-type", "application/merge-patch+json");
    page.call(patch).await;
    let mut creating = Vec::new();
    for part in 0..4 {
        let api = page.server.api.clone();
        creating.push(tokio::spawn(async move {
            let mut connection = api.connection();
            for number in 0..1_250 {
                let mut job = job(&format!("j-{part}-{number}"), 3, 1, &["true"]);
                job["spec"]["suspend"] = true.into();
                let call = Call::new("POST", "/apis/batch/v1/namespaces/default/jobs").body(&job);
                assert_eq!(connection.call(&call).await.expect("an answer").code, 201);
            }
        }));
    }
    for creating in creating {
        creating.await.unwrap();
    }
    let address = page.evaluate("location.origin").as_str().unwrap().to_owned();
    let open = |page: &mut Page, place: &str, ready: &str| {
        page.browser.go(&page.tab, "about:blank");
        let began = std::time::Instant::now();
        page.browser.go(&page.tab, &format!("{address}/#/{place}"));
        page.wait_for(ready);
        began.elapsed()
    };
    let count = "parseInt(document.querySelector('.chip-count').textContent.replace(',', '')) > 5000";
    let list = open(&mut page, "jobs", count);
    let list_memory = page.browser.memory(&page.tab);
    page.picture("many");
    let field =
        open(&mut page, "jobs/default/big", "document.querySelectorAll('.legend .num')[2].textContent === '70,000'");
    let field_memory = page.browser.memory(&page.tab);
    page.picture("large");
    let megabytes = |bytes: u64| bytes / 1_000_000;
    println!("5,001 Jobs: {list:?}, {} MB", megabytes(list_memory));
    println!("100,000 indexes: {field:?}, {} MB", megabytes(field_memory));
    assert!(megabytes(list_memory.max(field_memory)) < 300);
    assert_eq!(page.browser.errors(&page.tab), [""; 0]);
    drop(page.directory);
}

/// The parts without a browser.
#[test]
fn the_modules_of_the_page_pass_their_own_tests() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../web/assets-tests");
    match Command::new("node").arg("--test").arg(&folder).output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout)),
        Err(_) => tally_testing::skip_without("Node.js"),
    }
}
