//! Lists in a text that is not stored: tables, metadata, YAML, and JSON with line breaks.
//!
//! Every object is parsed and written again, which takes seconds for fifty thousand of them. A long list is therefore
//! rendered in pieces, each when the client has received the one before, by threads that serve no connections
//! ([`Renderers`]): neither time nor memory of the server depends on the length of the list, and small requests are
//! served between two pieces. The bytes are those of the whole document.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use tally_api::kinds::Resource;
use tally_api::options::Format;
use tally_api::table::{self, IncludeObject, ListTable};
use tally_core::time::Timestamp;
use tally_registry::Object;
use tally_value::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::encode::{document_text, in_version, item_in_version, yaml};
use crate::http::body::{Body, PIECE};
use crate::http::flow::FlowShare;
use crate::http::negotiate::{ResponseFormat, View};

/// Lists of up to this many items are rendered where the request is served: it takes about a millisecond.
pub const SHORT_LIST: usize = 32;
/// Stands for the items while the text around them is made. No other part of a list contains it.
const PLACEHOLDER: &str = "tally-list-items";

/// The threads for long work: as many at once as leave a core for everything else.
pub struct Renderers(Arc<Semaphore>);

impl Renderers {
    pub fn new() -> Arc<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Arc::new(Self(Arc::new(Semaphore::new(cores.saturating_sub(1).max(1)))))
    }

    /// Runs the work on such a thread, when one is free. A panic of the work continues here.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        // The semaphore is never closed.
        let permit = self.0.clone().acquire_owned().await.ok();
        let done = spawn_blocking(move || {
            let done = work();
            drop(permit);
            done
        });
        match done.await {
            Ok(done) => done,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The runtime is shutting down. The response must not look complete.
            Err(_) => std::future::pending().await,
        }
    }
}

/// What sending a list needs.
pub struct ListSending {
    pub renderers: Arc<Renderers>,
    /// Held until the list is sent.
    pub share: Option<FlowShare>,
}

/// How a list is shown.
pub struct ListForm {
    pub resource: &'static Resource,
    pub response_format: ResponseFormat,
    pub include: IncludeObject,
    pub now: Timestamp,
}

/// A list that is rendered piece by piece.
pub struct ListRenderer {
    form: ListForm,
    metadata: Value,
    items: std::vec::IntoIter<Object>,
    progress: Progress,
}

enum Progress {
    Start,
    Items { table: Option<ListTable<'static>>, is_first: bool, tail: String },
    End,
}

impl ListRenderer {
    pub fn new(form: ListForm, metadata: Value, items: Vec<Object>) -> Self {
        Self { form, metadata, items: items.into_iter(), progress: Progress::Start }
    }

    /// The body of the response.
    pub fn body(mut self, sending: ListSending) -> Body {
        if self.items.len() <= SHORT_LIST {
            let mut text = String::new();
            while self.piece(&mut text) {}
            return Body::Whole(text.into());
        }
        let ListSending { renderers, share } = sending;
        let pieces = stream::unfold((self, renderers, share), |(mut renderer, renderers, share)| async move {
            let (renderer, piece) = renderers
                .run(move || {
                    let mut piece = String::with_capacity(PIECE + PIECE / 4);
                    let piece = renderer.piece(&mut piece).then(|| Bytes::from(piece));
                    (renderer, piece)
                })
                .await;
            piece.map(|piece| (piece, (renderer, renderers, share)))
        });
        Body::Events(Box::pin(pieces))
    }

    /// Writes until the text has the length of a piece, or the list ends. Returns whether there was anything to write.
    fn piece(&mut self, text: &mut String) -> bool {
        let full = text.len() + PIECE;
        if matches!(self.progress, Progress::Start) {
            self.begin(text);
        }
        let Progress::Items { table, is_first, tail } = &mut self.progress else { return false };
        while text.len() < full {
            let Some(object) = self.items.next() else {
                text.push_str(tail);
                self.progress = Progress::End;
                break;
            };
            let item = self.form.item(&object, table.as_ref());
            if !std::mem::take(is_first) {
                text.push_str(self.form.separator());
            }
            self.form.write(&item, text);
        }
        true
    }

    /// Writes what comes before the items.
    fn begin(&mut self, text: &mut String) {
        let metadata = self.metadata.take();
        let items = if self.items.len() == 0 { vec![] } else { vec![Value::from(PLACEHOLDER)] };
        let resource = self.form.resource;
        let (table, document) = match self.form.response_format.view {
            View::Plain => {
                let (kind, version) = (format!("{}List", resource.kind), resource.api_version());
                (None, json!({"kind": kind, "apiVersion": version, "metadata": metadata, "items": items}))
            }
            View::Metadata { version, .. } => {
                let mut list = table::partial_object_metadata_list(&[], metadata);
                list["items"] = items.into();
                (None, in_version(list, version))
            }
            View::Table { version } => {
                let objects = self.items.as_slice().iter();
                let may_matter =
                    |object: &&Object| table::depends_on_objects(resource) && table::may_need_more(&object.bytes);
                let objects: Vec<Value> = objects.filter(may_matter).map(Object::parse).collect();
                let table = ListTable::new(resource, &objects, self.form.include, self.form.now);
                let document = in_version(table.document(items, metadata), version);
                (Some(table), document)
            }
        };
        let document = document_text(&document, self.form.response_format);
        let placeholder = match self.form.response_format.format {
            Format::Yaml => format!("- {PLACEHOLDER}\n"),
            Format::Json | Format::Protobuf => format!("\"{PLACEHOLDER}\""),
        };
        let (head, tail) = document.split_once(&placeholder).unwrap_or((&document, ""));
        text.push_str(head);
        self.progress = Progress::Items { table, is_first: true, tail: tail.to_owned() };
    }
}

impl ListForm {
    fn item(&self, object: &Object, table: Option<&ListTable<'_>>) -> Value {
        let value = object.parse();
        match (self.response_format.view, table) {
            (View::Table { version }, Some(table)) => item_in_version(table.row(&value), version),
            (View::Metadata { version, .. }, _) => item_in_version(table::partial_object_metadata(&value), version),
            _ => value,
        }
    }

    fn separator(&self) -> &'static str {
        match (self.response_format.format, self.response_format.pretty) {
            (Format::Yaml, _) => "",
            (_, true) => ",\n    ",
            (_, false) => ",",
        }
    }

    fn write(&self, item: &Value, text: &mut String) {
        match (self.response_format.format, self.response_format.pretty) {
            (Format::Yaml, _) => yaml::write_item(item, text),
            // A line break is never inside a string: there it is escaped.
            (_, true) => text.push_str(&format!("{item:#}").replace('\n', "\n    ")),
            (_, false) => text.push_str(&item.to_string()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tally_api::catalog;

    use super::*;

    /// The whole document at once, as it was before lists were rendered in pieces.
    fn whole(form: &ListForm, metadata: Value, items: &[Object]) -> String {
        let parsed: Vec<Value> = items.iter().map(Object::parse).collect();
        let document = match form.response_format.view {
            View::Plain => {
                let (kind, version) = (format!("{}List", form.resource.kind), form.resource.api_version());
                json!({"kind": kind, "apiVersion": version, "metadata": metadata, "items": parsed})
            }
            View::Table { version } => {
                in_version(table::table(form.resource, &parsed, metadata, form.include, form.now), version)
            }
            View::Metadata { version, .. } => {
                in_version(table::partial_object_metadata_list(&parsed, metadata), version)
            }
        };
        document_text(&document, form.response_format)
    }

    fn objects(plural: &str, count: usize) -> Vec<Object> {
        let object = |number: usize| {
            let mut object = json!({
                "metadata": {
                    "name": format!("{plural}-{number}"), "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z",
                    "labels": {"a": "true", "b": "x: y"},
                    "annotations": {
                        "lines": "one\n two\n\nthree\n", "long": "a long line that has to be folded ".repeat(7),
                        "odd": "\u{85}\"\\\t tally-list-items", "empty": "",
                    },
                },
                "spec": {"containers": [{"name": "c", "args": [], "env": [{"name": "n", "value": "ü"}]}], "x": null},
                "status": {"phase": "Succeeded"},
            });
            if plural == "jobs" && number == count - 1 {
                object["spec"]["managedBy"] = "example.com/other".into();
            }
            Bytes::from(object.to_string()).into()
        };
        (0..count).map(object).collect()
    }

    #[test]
    fn a_list_in_pieces_has_the_bytes_of_the_whole_document() {
        let views = [
            View::Plain,
            View::Table { version: "v1" },
            View::Table { version: "v1beta1" },
            View::Metadata { version: "v1", list: true },
            View::Metadata { version: "v1beta1", list: true },
        ];
        let metadata = json!({"resourceVersion": "7", "continue": "abc", "remainingItemCount": 3});
        for plural in ["pods", "jobs", "configmaps"] {
            let group = if plural == "jobs" { "batch" } else { "" };
            let resource = catalog::find(group, "v1", plural).unwrap();
            for count in [0, 1, 2, SHORT_LIST + 1, 120] {
                let items = objects(plural, count);
                for view in views {
                    for (format, pretty) in [(Format::Json, false), (Format::Json, true), (Format::Yaml, false)] {
                        let includes = [IncludeObject::Object, IncludeObject::Metadata, IncludeObject::None];
                        let matters = if matches!(view, View::Table { .. }) { 3 } else { 1 };
                        for include in includes.into_iter().take(matters) {
                            let response_format = ResponseFormat { format, view, pretty };
                            let now = Timestamp::from_seconds(1_800_000_000);
                            let form = || ListForm { resource, response_format, include, now };
                            let mut list = ListRenderer::new(form(), metadata.clone(), items.clone());
                            let (mut text, mut pieces) = (String::new(), 0);
                            while list.piece(&mut text) {
                                pieces += 1;
                            }
                            let expected = whole(&form(), metadata.clone(), &items);
                            assert!(text == expected, "{count} {plural}, {response_format:?}, {include:?}");
                            assert!(pieces <= text.len() / PIECE + 1, "{pieces} pieces for {} bytes", text.len());
                        }
                    }
                }
            }
        }
    }

    #[tokio::test]
    async fn a_panic_of_the_work_is_not_lost() {
        let renderers = Renderers::new();
        let broken = tokio::spawn(async move { renderers.run(|| panic!("a bug")).await });
        assert!(broken.await.unwrap_err().is_panic());
    }
}
