//! Watches: one line of JSON per event, until the client stops reading or the time is over.
//!
//! Events are pulled, never pushed: the connection asks for more when the client has received what was sent. A client
//! that does not read occupies a position in the store's history and nothing else. When the history no longer reaches
//! back to it, its next event is an error that tells it to list again.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::FutureExt;
use futures_util::stream;
use serde_json::{Value, json};
use tally_api::failure::Failure;
use tally_api::options::{Format, ListOptions, WatchOptions};
use tally_api::table::{self, Heading};
use tally_registry::{Object, Target, WatchEvent, WatchStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::body::Body;
use crate::door::Door;
use crate::forms::{Answer, Dress, answer};
use crate::negotiate::{self, View, Wish};
use crate::objects::Ask;

/// If the client gives no timeout, a watch ends after half an hour plus a random part of another half, so that clients
/// that connected together do not reconnect together.
const SHORTEST: u64 = 30 * 60;
/// The longest timeout that a client may request. A watch occupies a connection, and a client that lost interest
/// without closing it should not keep it forever.
const LONGEST: u64 = 24 * 60 * 60;
/// Events that are already available are sent together, up to this size.
const PIECE: usize = 32 * 1024;

struct Watching {
    events: WatchStream,
    dress: Dress<'static>,
    heading: Heading,
    ends_at: Instant,
    stopping: watch::Receiver<bool>,
    ended: bool,
    door: Arc<Door>,
}

pub fn serve(ask: &Ask<'_>, mut wish: Wish) -> Result<Answer, Failure> {
    if wish.format == Format::Yaml {
        // Clients cannot split a stream of YAML documents.
        return Err(negotiate::only_streams());
    }
    if let View::Metadata { version, .. } = wish.view {
        wish.view = View::Metadata { version, list: false };
    }
    let resource = ask.place.resource;
    let mut options = WatchOptions::parse(ask.query, resource.group, resource.plural)?;
    if !ask.place.name.is_empty() {
        // The deprecated path to watch one object.
        options.field_selector = format!("metadata.name={}", ask.place.name);
    }
    let seconds = options.timeout_seconds.unwrap_or_else(|| SHORTEST + fastrand::u64(..SHORTEST)).min(LONGEST);
    options.timeout_seconds = Some(seconds);
    let mut target = ask.target();
    target.name = "";
    let watching = Watching {
        events: ask.registry().watch(target, &options)?,
        dress: ask.dress(Wish { pretty: false, ..wish })?,
        heading: heading(ask, &wish, &options),
        ends_at: Instant::now() + Duration::from_secs(seconds),
        stopping: ask.door.stopping.clone(),
        ended: false,
        door: ask.door.clone(),
    };
    watching.door.metrics.watches.up();
    let pieces = stream::unfold(watching, |mut watching| async move {
        let piece = watching.piece().await?;
        Some((piece, watching))
    });
    Ok(answer(200, "application/json", Body::Events(Box::pin(pieces))))
}

/// The columns of a watch are those of the corresponding list, whichever of its objects has the first event.
fn heading(ask: &Ask<'_>, wish: &Wish, watch: &WatchOptions) -> Heading {
    let resource = ask.place.resource;
    if !matches!(wish.view, View::Table { .. }) || !table::depends_on_objects(resource) {
        return Heading::default();
    }
    let (label_selector, field_selector) = (watch.label_selector.clone(), watch.field_selector.clone());
    let options = ListOptions { label_selector, field_selector, ..ListOptions::default() };
    let target = Target { name: "", ..ask.target() };
    let Ok(listing) = ask.registry().list(target, &options) else { return Heading::default() };
    let may_matter = |object: &&Object| table::may_need_more(&object.bytes);
    let objects: Vec<Value> = listing.items.iter().filter(may_matter).map(Object::parse).collect();
    Heading::after(resource, &objects)
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.door.metrics.watches.down();
    }
}

impl Watching {
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
                ("BOOKMARK", bookmark(revision, initial_events_end))
            }
            WatchEvent::Failed(failure) => {
                self.ended = true;
                return line("ERROR", failure.to_json().to_string().as_bytes(), out);
            }
        };
        self.door.metrics.events.add(1);
        if self.dress.wish.view == View::Plain {
            out.put_slice(format!("{{\"type\":\"{kind}\",\"object\":").as_bytes());
            self.dress.whole(&object, out);
            out.put_slice(b"}\n");
        } else {
            self.dress.now = self.door.registry.world.now();
            let shown = self.dress.view(self.dress.value(&object), &mut self.heading);
            line(kind, shown.to_string().as_bytes(), out);
        }
    }
}

fn line(kind: &str, object: &[u8], out: &mut BytesMut) {
    out.put_slice(format!("{{\"type\":\"{kind}\",\"object\":").as_bytes());
    out.put_slice(object);
    out.put_slice(b"}\n");
}

/// An object of which only the revision is meaningful.
fn bookmark(revision: u64, initial_events_end: bool) -> Object {
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if initial_events_end {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    let text: Value = json!({"metadata": metadata});
    Object { bytes: text.to_string().into() }
}
