//! Watches: one line of JSON or one frame of protobuf per event, until the client stops reading or the time is over.
//!
//! Events are pulled, never pushed: the connection asks for more when the client has received what was sent. A client
//! that does not read occupies a position in the store's history and nothing else. When the history no longer reaches
//! back to it, its next event is an error that tells it to list again.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::FutureExt;
use futures_util::stream;
use tally_api::kinds::Resource;
use tally_api::options::{Format, ListOptions, WatchOptions};
use tally_api::protobuf;
use tally_api::schema::schema;
use tally_api::status_error::StatusError;
use tally_api::table::{self, Heading};
use tally_registry::{Object, Target, WatchEvent, WatchStream};
use tally_value::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::encode::{Encoder, HttpResponse, answer};
use crate::http::body::Body;
use crate::http::flow::{FlowShare, ShareKind};
use crate::http::handler::ApiHandler;
use crate::http::negotiate::{self, ResponseFormat, View};
use crate::objects::RequestContext;

/// If the client gives no timeout, a watch ends after half an hour plus a random part of another half, so that clients
/// that connected together do not reconnect together.
const SHORTEST: u64 = 30 * 60;
/// The longest timeout that a client may request. A watch occupies a connection, and a client that lost interest
/// without closing it should not keep it forever.
const LONGEST: u64 = 24 * 60 * 60;
/// Events that are already available are sent together, up to this size.
const PIECE: usize = 32 * 1024;

struct WatchResponse {
    events: WatchStream,
    encoder: Encoder<'static>,
    heading: Heading,
    ends_at: Instant,
    stopping: watch::Receiver<bool>,
    ended: bool,
    handler: Arc<ApiHandler>,
    _share: FlowShare,
}

pub fn serve(context: &RequestContext<'_>, mut response_format: ResponseFormat) -> Result<HttpResponse, StatusError> {
    if response_format.format == Format::Yaml {
        // Clients cannot split a stream of YAML documents.
        return Err(negotiate::only_streams());
    }
    if let View::Metadata { version, .. } = response_format.view {
        response_format.view = View::Metadata { version, list: false };
    }
    let resource = context.place.resource;
    let mut options = WatchOptions::parse(context.query, resource.group, resource.plural)?;
    if !context.place.name.is_empty() {
        // The deprecated path to watch one object.
        options.field_selector = format!("metadata.name={}", context.place.name);
    }
    let seconds = options.timeout_seconds.unwrap_or_else(|| SHORTEST + fastrand::u64(..SHORTEST)).min(LONGEST);
    options.timeout_seconds = Some(seconds);
    let share = context.take(ShareKind::Stream)?;
    let mut target = context.target();
    target.name = "";
    let watching = WatchResponse {
        events: context.registry().watch(target, &options)?,
        encoder: context.encoder(ResponseFormat { pretty: false, ..response_format })?,
        heading: heading(context, &response_format, &options),
        ends_at: Instant::now() + Duration::from_secs(seconds),
        stopping: context.handler.stopping.clone(),
        ended: false,
        handler: context.handler.clone(),
        _share: share,
    };
    watching.handler.metrics.watches.add([], 1);
    let pieces = stream::unfold(watching, |mut watching| async move {
        let piece = watching.piece().await?;
        Some((piece, watching))
    });
    Ok(answer(200, response_format.stream_type(), Body::Events(Box::pin(pieces))))
}

/// The columns of a watch are those of the corresponding list, whichever of its objects has the first event.
fn heading(context: &RequestContext<'_>, response_format: &ResponseFormat, watch: &WatchOptions) -> Heading {
    let resource = context.place.resource;
    if !matches!(response_format.view, View::Table { .. }) || !table::depends_on_objects(resource) {
        return Heading::default();
    }
    let (label_selector, field_selector) = (watch.label_selector.clone(), watch.field_selector.clone());
    let options = ListOptions { label_selector, field_selector, ..ListOptions::default() };
    let target = Target { name: "", ..context.target() };
    let Ok(listing) = context.registry().list(target, &options) else { return Heading::default() };
    let may_matter = |object: &&Object| table::may_need_more(&object.bytes);
    let objects: Vec<Value> = listing.items.iter().filter(may_matter).map(Object::parse).collect();
    Heading::after(resource, &objects)
}

impl Drop for WatchResponse {
    fn drop(&mut self) {
        self.handler.metrics.watches.add([], -1);
    }
}

impl WatchResponse {
    /// Waits for something to send. None at the end.
    async fn piece(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        let event = tokio::select! {
            biased;
            _ = self.stopping.wait_for(|stopping| *stopping) => None,
            event = self.events.next() => event,
            () = sleep_until(self.ends_at) => None,
        };
        let mut piece = BytesMut::new();
        self.write(event?, &mut piece);
        while piece.len() < PIECE && !self.ended {
            match self.events.next().now_or_never() {
                Some(Some(event)) => self.write(event, &mut piece),
                Some(None) => self.ended = true,
                None => break,
            }
        }
        Some(piece.freeze())
    }

    fn write(&mut self, event: WatchEvent, out: &mut BytesMut) {
        let (kind, object) = match event {
            WatchEvent::Added(object) => ("ADDED", object),
            WatchEvent::Modified(object) => ("MODIFIED", object),
            WatchEvent::Deleted(object) => ("DELETED", object),
            WatchEvent::Bookmark { revision, initial_events_end } => {
                ("BOOKMARK", bookmark(self.encoder.resource, revision, initial_events_end))
            }
            WatchEvent::Failed(failure) => {
                self.ended = true;
                let status = failure.to_json();
                return match self.encoder.response_format.format {
                    Format::Protobuf => frame("ERROR", &protobuf::document(&status).unwrap_or_default(), out),
                    _ => line("ERROR", status.to_string().as_bytes(), out),
                };
            }
        };
        self.handler.metrics.events.inc([]);
        if self.encoder.response_format.format == Format::Protobuf {
            // Only kinds that can be written in protobuf are offered in it.
            let object = self.encoder.protobuf(&object, &mut self.heading).unwrap_or_default();
            return frame(kind, &object, out);
        }
        if self.encoder.response_format.view == View::Plain {
            out.put_slice(format!("{{\"type\":\"{kind}\",\"object\":").as_bytes());
            self.encoder.whole(&object, out);
            out.put_slice(b"}\n");
        } else {
            self.encoder.now = self.handler.registry.now();
            let shown = self.encoder.view(self.encoder.value(&object), &mut self.heading);
            line(kind, shown.to_string().as_bytes(), out);
        }
    }
}

fn line(kind: &str, object: &[u8], out: &mut BytesMut) {
    out.put_slice(format!("{{\"type\":\"{kind}\",\"object\":").as_bytes());
    out.put_slice(object);
    out.put_slice(b"}\n");
}

fn frame(kind: &str, object: &[u8], out: &mut BytesMut) {
    let mut frame = Vec::with_capacity(object.len() + 32);
    protobuf::event(kind, object, &mut frame);
    out.put_slice(&frame);
}

/// An empty object of the kind. Only its revision is meaningful.
fn bookmark(resource: &Resource, revision: u64, initial_events_end: bool) -> Object {
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if initial_events_end {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    let structure = schema().kind(resource.group, resource.version, resource.kind);
    let mut object = structure.map(|structure| structure.zero().clone()).unwrap_or_else(|| json!({}));
    object["metadata"] = metadata;
    Bytes::from(object.to_string()).into()
}
