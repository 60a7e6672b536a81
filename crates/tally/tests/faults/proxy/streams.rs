//! Watches: opened late or not at all, delayed, cut, and sometimes started from an earlier state.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{HeaderMap, Response};
use tokio::sync::mpsc;

use super::dice::{Cut, Fault};
use super::past::{Recorder, State};
use super::{Body, Hangup, PortState, Shared, page, refusal, respond};
use crate::support::client::Call;

const EXPIRED: &str = "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\
    \"status\":\"Failure\",\"message\":\"too old resource version\",\"reason\":\"Expired\",\"code\":410}}\n";

type Pieces = mpsc::Sender<Result<Bytes, std::io::Error>>;

impl Shared {
    pub(super) async fn watch(self: &Arc<Self>, port: &Arc<PortState>, call: Call) -> Result<Response<Body>, Hangup> {
        let streaming = call.path.contains("sendInitialEvents=true");
        if streaming && port.by_pages.load(Ordering::SeqCst) {
            self.dice().note("streaming list unknown");
            return Ok(refusal(422));
        }
        let calm = *self.calm.borrow();
        let fault = if calm { Fault::None } else { self.dice().opening() };
        match fault {
            Fault::Delay(before, _) => self.wait(before).await,
            Fault::Refuse(code) => return Ok(refusal(code)),
            Fault::Page(code) => return Ok(page(code)),
            Fault::Silence { .. } => {
                self.is_calm().await;
                return Err(Hangup);
            }
            Fault::Reset { .. } => return Err(Hangup),
            _ => {}
        }
        if !streaming && !calm && self.dice().one_in(25) {
            self.dice().note("watch too old");
            return Ok(refusal(410));
        }
        let past = if streaming && !calm { self.old_state(&call) } else { None };
        let asked = past.as_ref().map_or_else(|| call.clone(), |past| changes_after(&call, past.at));
        let response = self.api.connection().open(&asked).await.map_err(|_| Hangup)?;
        let (head, body) = response.into_parts();
        let (pieces, told) = mpsc::channel(16);
        let recorder = (streaming && past.is_none()).then(Recorder::default);
        let path = path_of(&call);
        tokio::spawn(self.clone().pass_on(body, pieces, past, recorder, path));
        let stream = futures_util::stream::unfold(told, |mut told| async move {
            let piece = told.recv().await?;
            Some((piece.map(Frame::data), told))
        });
        let headers: HeaderMap = head.headers;
        Ok(respond(head.status.as_u16(), &headers, StreamBody::new(stream).boxed_unsync()))
    }

    /// An earlier state that is not older than the requested revision.
    fn old_state(&self, call: &Call) -> Option<State> {
        let at = query(call, "resourceVersion").and_then(|at| at.parse().ok());
        // A request without a revision asks for the newest state.
        let at: u64 = match at {
            Some(at) => at,
            None if self.dice().travels() => 0,
            None => return None,
        };
        let mut states = self.past().not_older_than(&path_of(call), at);
        // The newest recorded state may be the current one.
        states.pop();
        let mut dice = self.dice();
        if states.is_empty() || dice.one_in(4) {
            return None;
        }
        dice.note("old state");
        Some(states.swap_remove(dice.choose(states.len())))
    }

    async fn pass_on(
        self: Arc<Self>,
        mut body: Incoming,
        pieces: Pieces,
        past: Option<State>,
        mut recorder: Option<Recorder>,
        path: String,
    ) {
        if let Some(past) = past
            && pieces.send(Ok(past.text)).await.is_err()
        {
            return;
        }
        let (lives, cut) = self.dice().life();
        let ends = tokio::time::sleep(lives);
        tokio::pin!(ends);
        let mut troubled = !*self.calm.borrow();
        loop {
            let frame = tokio::select! {
                frame = body.frame() => frame,
                () = &mut ends, if troubled => {
                    // A stream that is open when faults are switched off stays open.
                    troubled = !*self.calm.borrow();
                    if troubled {
                        self.cut(cut, &mut body, &pieces).await;
                        return;
                    }
                    continue;
                }
                () = pieces.closed() => return,
            };
            let Some(Ok(frame)) = frame else { return };
            let Ok(data) = frame.into_data() else { continue };
            if let Some(state) = recorder.as_mut().and_then(|recorder| recorder.push(&data)) {
                self.past().keep(&path, state);
                recorder = None;
            }
            let lag = if *self.calm.borrow() { None } else { self.dice().lag() };
            self.wait(lag.unwrap_or(Duration::ZERO)).await;
            if pieces.send(Ok(data)).await.is_err() {
                return;
            }
        }
    }

    async fn cut(&self, cut: Cut, body: &mut Incoming, pieces: &Pieces) {
        self.dice().note(match cut {
            Cut::Clean => "watch ended",
            Cut::Broken => "watch broken",
            Cut::Torn => "watch torn",
            Cut::Expired => "watch expired",
            Cut::NoopObserver => "watch fell silent",
        });
        let broken = || Err(std::io::Error::other("cut"));
        let _ = match cut {
            Cut::Clean => Ok(()),
            Cut::Broken => pieces.send(broken()).await,
            Cut::Torn => {
                let next = tokio::time::timeout(Duration::from_millis(300), body.frame()).await;
                if let Ok(Some(Ok(frame))) = next
                    && let Ok(data) = frame.into_data()
                {
                    let _ = pieces.send(Ok(data.slice(..data.len() / 2))).await;
                }
                pieces.send(broken()).await
            }
            Cut::Expired => pieces.send(Ok(Bytes::from_static(EXPIRED.as_bytes()))).await,
            Cut::NoopObserver => {
                tokio::select! {
                    () = self.is_calm() => {}
                    () = pieces.closed() => {}
                }
                pieces.send(broken()).await
            }
        };
    }
}

fn path_of(call: &Call) -> String {
    call.path.split('?').next().unwrap_or_default().to_owned()
}

fn query(call: &Call, name: &str) -> Option<String> {
    let query = call.path.split_once('?')?.1;
    query.split('&').find_map(|pair| Some(pair.split_once('=').filter(|(key, _)| *key == name)?.1.to_owned()))
}

/// The same watch without the initial events: the changes after this revision.
fn changes_after(call: &Call, at: u64) -> Call {
    let path = path_of(call);
    let seconds = query(call, "timeoutSeconds").unwrap_or_else(|| "300".to_owned());
    let path = format!("{path}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={at}");
    Call { path, ..call.clone() }
}
