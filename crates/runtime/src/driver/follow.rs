//! Follows one stream as long as the driver runs. `Reflector` decides what its events mean.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::api::{Api, Events, WatchError};
use super::reflector::{Next, Reflector, Word};
use super::{Caller, jittered};
use crate::controller::{Input, Stream};

/// Ends when the controller has dropped its receiver.
pub(super) async fn follow<A: Api>(
    caller: Arc<Caller<A>>,
    controller: &'static str,
    stream: Stream,
    told: mpsc::Sender<Input>,
) {
    let mut reflector = Reflector::new(stream);
    while !told.is_closed() {
        let asked_at = tokio::time::Instant::now();
        let end = match caller.api.follow(stream, reflector.start()).await {
            Ok(events) => listen(&caller, controller, events, &mut reflector, &told).await,
            Err(trouble) => End::Broken(trouble),
        };
        let trouble = match end {
            End::Unheard => return,
            End::Over => None,
            End::Broken(trouble) => Some(trouble),
        };
        let next = reflector.ends(trouble.as_ref(), asked_at.elapsed());
        if next == Next::Again {
            continue;
        }
        let silent = || WatchError::Broken("the stream ended before it brought anything".to_owned());
        caller.observer.stream_broken(controller, stream, &trouble.unwrap_or_else(silent));
        if let Next::After(wait) = next {
            tokio::time::sleep(jittered(wait)).await;
        }
    }
}

enum End {
    Over,
    Broken(WatchError),
    /// The controller has ended.
    Unheard,
}

async fn listen<A: Api>(
    caller: &Caller<A>,
    controller: &'static str,
    mut events: A::Events,
    reflector: &mut Reflector,
    told: &mpsc::Sender<Input>,
) -> End {
    if let Some(input) = reflector.opened()
        && told.send(input).await.is_err()
    {
        return End::Unheard;
    }
    while let Some(heard) = events.next().await {
        let input = match reflector.hears(heard) {
            Word::Tell(input) => input,
            Word::Synced(input) => {
                caller.observer.synced(controller, reflector.stream());
                input
            }
            Word::Ignore => continue,
            Word::Broken(trouble) => return End::Broken(trouble),
        };
        if told.send(input).await.is_err() {
            return End::Unheard;
        }
    }
    End::Over
}
