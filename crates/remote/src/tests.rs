//! Tests against a server whose responses are defined by each test.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tally_core::blueprint::{NewPod, pod_body};
use tally_core::ids::Revision;
use tally_core::job::JobView;
use tally_runtime::controller::Object;
use tally_runtime::controller::{Call, Kind, Reply, Stream, Verb};
use tally_runtime::driver::api::{Api, Events, Start, StreamEvent, WatchError};
use tokio::net::TcpListener;

use crate::content::{Content, Form, JSON, PROTOBUF, PROTOBUF_OR_JSON};
use crate::fake::{remote, server, server_of};
use crate::{ContentType, Remote};

fn short(heard: &StreamEvent) -> String {
    match heard {
        StreamEvent::Object(object) => String::from_utf8(object.to_vec()).unwrap(),
        StreamEvent::Gone(object) => format!("-{}", String::from_utf8(object.to_vec()).unwrap()),
        StreamEvent::Reached { at, complete } => format!("{at}{}", if *complete { "!" } else { "" }),
        StreamEvent::Failed(WatchError::TooOld) => "too old".to_owned(),
        StreamEvent::Failed(WatchError::Refused(refusal)) => format!("refused {}", refusal.code),
        StreamEvent::Failed(WatchError::Broken(why)) => format!("broken {why}"),
    }
}

async fn all(remote: &Remote, stream: Stream, from: Start) -> Result<Vec<String>, WatchError> {
    let mut events = remote.follow(stream, from).await?;
    let mut heard = Vec::new();
    while let Some(event) = events.next().await {
        heard.push(short(&event));
    }
    Ok(heard)
}

const STATE: Start = Start::State { not_older_than: Revision(0) };
const REFUSED: &str =
    r#"{"kind":"Status","apiVersion":"v1","code":422,"reason":"Invalid","message":"sendInitialEvents: Forbidden"}"#;
const EXPIRED: &str = r#"{"kind":"Status","apiVersion":"v1","code":410,"reason":"Expired"}"#;

fn page(at: u64, token: &str, items: &[u32]) -> String {
    let items: Vec<String> = items.iter().map(u32::to_string).collect();
    format!(
        r#"{{"kind":"JobList","metadata":{{"resourceVersion":"{at}","continue":"{token}"}},"items":[{}]}}"#,
        items.join(",")
    )
}

fn event(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

#[tokio::test]
async fn a_stream_has_the_state_and_then_its_changes() {
    let end = r#"{"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}"#;
    let text = [event("ADDED", "1"), event("ADDED", "2"), event("BOOKMARK", end), event("DELETED", "2")].concat();
    let (remote, asked) = server(move |_| Some((200, text.clone()))).await;
    assert_eq!(all(&remote, Stream::metadata(Kind::POD), STATE).await.unwrap(), ["1", "2", "7!", "-2"]);
    let asked = asked.lock().unwrap().concat();
    assert!(asked.starts_with("/api/v1/pods?watch=true") && asked.contains("sendInitialEvents=true"), "{asked}");
    assert!(asked.contains("as=PartialObjectMetadata"), "{asked}");
}

/// Only the bookmark that says so ends the state.
#[tokio::test]
async fn a_bookmark_inside_the_state_does_not_end_it() {
    let plain = r#"{"metadata":{"resourceVersion":"9"}}"#;
    let end = |at: u32, value: &str| {
        format!(
            r#"{{"metadata":{{"resourceVersion":"{at}","annotations":{{"k8s.io/initial-events-end":"{value}"}}}}}}"#
        )
    };
    let bookmark = |object: &str| event("BOOKMARK", object);
    let no = bookmark(&end(9, "false"));
    let text = [event("ADDED", "1"), bookmark(plain), no, event("ADDED", "2"), bookmark(&end(7, "true"))].concat();
    let (remote, _) = server(move |_| Some((200, text.clone()))).await;
    assert_eq!(all(&remote, Stream::of(Kind::POD), STATE).await.unwrap(), ["1", "9", "9", "2", "7!"]);
}

#[tokio::test]
async fn servers_without_streaming_lists_are_read_page_by_page() {
    let (remote, asked) = server(|target| {
        Some(match target {
            target if target.contains("sendInitialEvents") => (422, REFUSED.to_owned()),
            target if target.contains("watch=true") => (200, event("MODIFIED", "9")),
            target if target.contains("continue=more") => (200, page(5, "", &[3])),
            _ => (200, page(5, "more", &[1, 2])),
        })
    })
    .await;
    for _ in 0..2 {
        assert_eq!(all(&remote, Stream::of(Kind::JOB), STATE).await.unwrap(), ["1", "2", "3", "5!", "9"]);
    }
    let asked = asked.lock().unwrap();
    assert_eq!(
        asked.iter().filter(|asked| asked.contains("sendInitialEvents")).count(),
        1,
        "once is enough: {asked:?}"
    );
    let watch = asked.last().unwrap();
    assert!(watch.contains("resourceVersion=5"), "the changes follow the list: {watch}");
}

/// Kubernetes 1.36 on an etcd before 3.4.25 accepts the watch, and fails it by an event: the controller asked
/// for the same watch again and again, and read nothing.
#[tokio::test]
async fn a_stream_that_fails_by_an_event_is_read_page_by_page_from_then_on() {
    let failure = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"a watch stream was requested by the client but the required storage feature RequestWatchProgress is disabled","code":500}"#;
    let (remote, _) = server(move |target| {
        Some(match target {
            target if target.contains("sendInitialEvents") => (200, event("ERROR", failure)),
            target if target.contains("watch=true") => (200, event("MODIFIED", "9")),
            _ => (200, page(5, "", &[1, 2])),
        })
    })
    .await;
    assert_eq!(all(&remote, Stream::of(Kind::JOB), STATE).await.unwrap(), ["refused 500"]);
    assert_eq!(all(&remote, Stream::of(Kind::JOB), STATE).await.unwrap(), ["1", "2", "5!", "9"]);
}

#[tokio::test]
async fn a_list_from_the_past_is_not_told() {
    let (remote, _) = server(|target| {
        let streaming = target.contains("sendInitialEvents");
        Some(if streaming { (422, REFUSED.to_owned()) } else { (200, page(9, "", &[1])) })
    })
    .await;
    let from = |seen| Start::State { not_older_than: Revision(seen) };
    let told = all(&remote, Stream::of(Kind::JOB), from(10)).await;
    assert!(matches!(&told, Err(WatchError::Broken(why)) if why.contains("revision 9, but 10")), "{told:?}");
    assert!(all(&remote, Stream::of(Kind::JOB), from(9)).await.is_ok());
}

#[tokio::test]
async fn what_the_server_has_forgotten_is_begun_again() {
    let (remote, _) = server(|target| {
        Some(match target {
            target if target.contains("sendInitialEvents") => (422, REFUSED.to_owned()),
            target if target.contains("continue=") || target.contains("watch=true") => (410, EXPIRED.to_owned()),
            _ => (200, page(5, "more", &[1])),
        })
    })
    .await;
    assert_eq!(all(&remote, Stream::of(Kind::JOB), STATE).await.unwrap(), ["1", "too old"]);
    let after = all(&remote, Stream::of(Kind::JOB), Start::Changes { after: Revision(3) }).await;
    assert!(matches!(after, Err(WatchError::TooOld)), "{after:?}");
}

/// A list has one revision: the pages of an expired list are discarded.
#[tokio::test]
async fn lists_are_whole_and_consistent() {
    let lists = Arc::new(Mutex::new(0));
    let (remote, asked) = server(move |target| {
        let mut lists = lists.lock().unwrap();
        if !target.contains("continue=") {
            *lists += 1;
            return Some((200, page(*lists, "more", &[1, 2])));
        }
        Some(if *lists < 3 { (410, EXPIRED.to_owned()) } else { (200, page(*lists, "", &[3])) })
    })
    .await;
    let call = Call { label_selector: "a=b".into(), ..Call::new(Verb::List, Kind::POD, "ns", "") };
    let Reply::Listed { items, at } = remote.call(&call).await.reply else { panic!("a list") };
    assert_eq!((items, at), (["1", "2", "3"].map(Object::from).to_vec(), Revision(3)));
    let first = asked.lock().unwrap()[0].clone();
    assert!(first.starts_with("/api/v1/namespaces/ns/pods?labelSelector=a%3Db&limit=500 "), "{first}");
}

#[tokio::test]
async fn what_may_have_been_done_is_told_apart_from_what_was_not() {
    let call = Call::new(Verb::Create, Kind::POD, "ns", "").body(&serde_json::json!({}));
    let (hangs_up, asked) = server(|_| None).await;
    assert!(matches!(hangs_up.call(&call).await.reply, Reply::Unknown));
    assert_eq!(asked.lock().unwrap().len(), 1, "nothing is sent twice");
    assert!(hangs_up.is_reachable());

    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let nobody = remote(&format!("http://127.0.0.1:{port}"));
    let reply = nobody.call(&call).await.reply;
    assert!(matches!(&reply, Reply::Refused(refusal) if refusal.code == 503), "{reply:?}");
    assert!(!nobody.is_reachable());
}

/// Nothing that was received is lost when a wait for more is cancelled.
#[tokio::test]
async fn a_wait_that_is_given_up_loses_nothing() {
    let (remote, _) = server(|target| {
        let streaming = target.contains("sendInitialEvents");
        let watch = target.contains("watch=true");
        Some(match (streaming, watch) {
            (true, _) => (422, REFUSED.to_owned()),
            (_, true) => (200, [event("ADDED", "4"), event("ADDED", "5")].concat()),
            _ if target.contains("continue=more") => (200, page(5, "", &[3])),
            _ => (200, page(5, "more", &[1, 2])),
        })
    })
    .await;
    let mut events = remote.follow(Stream::of(Kind::JOB), STATE).await.unwrap();
    let mut heard = Vec::new();
    loop {
        // Polled once and dropped if nothing is ready: the next future continues.
        let event = tokio::select! {
            biased;
            event = events.next() => event,
            () = tokio::task::yield_now() => continue,
        };
        match event {
            Some(event) => heard.push(short(&event)),
            None => break,
        }
    }
    assert_eq!(heard, ["1", "2", "3", "5!", "4", "5"]);
}

/// A Pod has all fields of the template of its Job, also those that the schema does not contain.
#[tokio::test]
async fn fields_of_a_newer_server_reach_the_pods_of_a_job() {
    let job = r#"{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"j","namespace":"ns","uid":"u","resourceVersion":"7"},
        "spec":{"template":{"metadata":{"labels":{"a":"b"}},"spec":{"fieldOfANewerServer":{"a":1},"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}"#;
    let (remote, asked) = server_of("application/json", move |_| Some((200, job.into()))).await;
    let Reply::Done(read) = remote.call(&Call::new(Verb::Get, Kind::JOB, "ns", "j")).await.reply else {
        panic!("a Job")
    };
    assert!(asked.lock().unwrap()[0].ends_with(" application/json"), "{asked:?}");
    let pod = NewPod { name: "j-x".into(), index: None, failure_count: None, ignored_failure_count: 0 };
    let body = pod_body(&JobView::from_json(&read.bytes).unwrap(), &pod, false).unwrap();
    assert_eq!(body["spec"]["fieldOfANewerServer"]["a"], 1);
    let create = Call::new(Verb::Create, Kind::POD, "ns", "j-x").body(&body);
    assert_eq!(Content::new(ContentType::Protobuf).form(&create).document, None, "it is sent in JSON");
}

/// Whatever claims to be protobuf and cannot be read: the outcome is unknown, the stream is broken, and JSON is asked for
/// from then on.
#[tokio::test]
async fn protobuf_that_cannot_be_read_proves_nothing() {
    for garbage in [&b"<html>"[..], b"k8s\0\x0a\x7f", b"k8s\0"] {
        let (remote, asked) = server_of(PROTOBUF, move |_| Some((200, Bytes::from_static(garbage)))).await;
        let create = Call::new(Verb::Create, Kind::POD, "ns", "p").body(&serde_json::json!({}));
        assert!(matches!(remote.call(&create).await.reply, Reply::Unknown), "{garbage:?}");
        assert!(matches!(remote.call(&Call::new(Verb::Get, Kind::POD, "ns", "p")).await.reply, Reply::Refused(_)));
        let asked: Vec<bool> = asked.lock().unwrap().iter().map(|asked| asked.contains("protobuf")).collect();
        assert_eq!(asked, [true, false], "{garbage:?}");

        let (remote, _) = server_of(PROTOBUF, move |_| Some((200, Bytes::from_static(garbage)))).await;
        let list = remote.call(&Call::new(Verb::List, Kind::POD, "ns", "")).await.reply;
        assert!(matches!(&list, Reply::Refused(refusal) if refusal.code == 503), "{garbage:?}: {list:?}");
    }
    let frame = b"\0\0\0\x02\xff\xff";
    let (remote, asked) = server_of(PROTOBUF, move |_| Some((200, Bytes::from_static(frame)))).await;
    let broken = all(&remote, Stream::of(Kind::POD), STATE).await.unwrap();
    assert!(broken.len() == 1 && broken[0].starts_with("broken the stream has a frame that is no event"), "{broken:?}");
    let _ = all(&remote, Stream::of(Kind::POD), STATE).await;
    assert!(!asked.lock().unwrap()[1].contains("protobuf"), "{asked:?}");
}

/// A reader that takes all that is ready must come to an end, wherever in a piece the bad frame is.
#[tokio::test]
async fn a_bad_frame_after_a_good_one_ends_the_stream() {
    let pod = tally_value::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "1"}});
    let mut good = Vec::new();
    tally_api::protobuf::event("ADDED", &tally_api::protobuf::document(&pod).unwrap(), &mut good);
    for bad in [&b"<html>"[..], b"\xff\xff\xff\xff", b"\0\0\0\0\0\0\0\0", b"\0\0\0\x02\xff\xff", b"\0\0\0\x01"] {
        let body = Bytes::from([&good[..], bad, &good[..]].concat());
        let (remote, _) = server_of(PROTOBUF, move |_| Some((200, body.clone()))).await;
        let heard = tokio::time::timeout(Duration::from_secs(60), all(&remote, Stream::of(Kind::POD), STATE)).await;
        let heard = heard.expect("it ends").unwrap();
        assert!(
            heard.len() == 2 && heard[0].contains(r#""name":"1""#) && heard[1].starts_with("broken "),
            "{bad:?}: {heard:?}"
        );
    }
}

/// A server, or a proxy, that names protobuf and sends something else would break every watch.
#[tokio::test]
async fn garbage_instead_of_the_first_event_of_a_watch_ends_protobuf() {
    for garbage in [&b"<html>"[..], b"\xff\xff\xff\xff", b"\0\0\0\x02\xff\xff", b"\0\0\0\x09short", b"\0\0"] {
        let (remote, asked) = server_of(PROTOBUF, move |_| Some((200, Bytes::from_static(garbage)))).await;
        let told = all(&remote, Stream::of(Kind::POD), STATE).await.unwrap();
        assert!(told.len() == 1 && told[0].starts_with("broken "), "{garbage:?}: {told:?}");
        assert!(remote.0.content.form(&Call::new(Verb::Create, Kind::POD, "ns", "p")) == Form::JSON, "{garbage:?}");
        let _ = all(&remote, Stream::of(Kind::POD), STATE).await;
        let asked: Vec<bool> = asked.lock().unwrap().iter().map(|asked| asked.contains("protobuf")).collect();
        assert_eq!(asked, [true, false], "{garbage:?}");
    }
}

/// Streams end at any time: before their first event, and between events or within a later one.
#[tokio::test]
async fn a_watch_that_ends_does_not_end_protobuf() {
    let pod = tally_value::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "1"}});
    let mut event = Vec::new();
    tally_api::protobuf::event("ADDED", &tally_api::protobuf::document(&pod).unwrap(), &mut event);
    for body in [vec![], event.clone(), [&event[..], &event[..20]].concat()] {
        let body = Bytes::from(body);
        let (remote, _) = server_of(PROTOBUF, move |_| Some((200, body.clone()))).await;
        let told = all(&remote, Stream::of(Kind::POD), STATE).await.unwrap();
        assert!(!told.iter().any(|told| told.starts_with("broken")), "{told:?}");
        assert_eq!(remote.0.content.accept(Kind::POD), PROTOBUF_OR_JSON);
    }
}

/// A webhook chooses the code of its denial, which then says nothing about the form of the request.
#[tokio::test]
async fn a_denial_by_a_webhook_does_not_end_protobuf() {
    let pod = tally_value::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns"}});
    for (code, reason) in [(406, "NotAcceptable"), (415, "UnsupportedMediaType"), (406, ""), (415, "NoSuchImage")] {
        let message = "admission webhook \"w.example.com\" denied the request: no";
        let status = tally_value::json!({
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "message": message,
            "reason": reason, "code": code,
        });
        let document = |object| Bytes::from(tally_api::protobuf::document(object).unwrap());
        let (answered, denied) = (document(&pod), document(&status));
        let (remote, asked) = server_of(PROTOBUF, move |target| {
            Some(if target.ends_with("/p") { (200, answered.clone()) } else { (code, denied.clone()) })
        })
        .await;
        // Now it is known that the server has protobuf, and Pods are created in it.
        let read = remote.call(&Call::new(Verb::Get, Kind::POD, "ns", "p")).await.reply;
        assert!(matches!(read, Reply::Done(_)), "{read:?}");
        let create = Call::new(Verb::Create, Kind::POD, "ns", "q").body(&pod);
        assert!(remote.0.content.form(&create).document.is_some());
        let reply = remote.call(&create).await.reply;
        assert!(matches!(&reply, Reply::Refused(refusal) if refusal.message == message), "{reply:?}");
        assert_eq!(asked.lock().unwrap().len(), 2, "what was denied is not sent again");
        assert!(remote.0.content.form(&create).document.is_some(), "{code} {reason}");
    }
}

/// Each item can be two bytes, and becomes an object with fields and a text.
#[tokio::test]
async fn a_list_in_protobuf_has_a_bounded_number_of_items_and_parts() {
    // Lengths in the form of the format, seven bits to a byte.
    let field = |tag: u8, bytes: &[u8]| {
        let (mut head, mut length) = (vec![tag], bytes.len());
        while length > 0x7f {
            head.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        head.push(length as u8);
        [&head[..], bytes].concat()
    };
    let list = |item: &[u8], times| {
        let about = b"\x0a\x02v1\x12\x07PodList";
        let raw = [&b"\x0a\x03\x12\x019"[..], &item.repeat(times)].concat();
        Bytes::from([tally_api::protobuf::MAGIC, &field(0x0a, about), &field(0x12, &raw)].concat())
    };
    // Tolerations, which are empty objects: with the list and the objects above it there are three more.
    let pod = field(0x12, &field(0x12, &[0xb2, 0x01, 0].repeat(4_997)));
    for (body, items) in [
        (list(b"\x12\x00", 10_000), Ok(10_000)),
        (list(b"\x12\x00", 10_001), Err("more than 10000 items")),
        (list(&pod, 200), Ok(200)),
        (list(&pod, 201), Err("more than 1000000 objects and lists")),
        // The length of an item is that of all memory.
        (list(b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 1), Err("breaks off")),
    ] {
        let read = crate::content::read_list(&body).map(|list| list.items.len()).map_err(|error| error.to_string());
        match (&read, items) {
            (Ok(read), Ok(items)) => assert_eq!(*read, items),
            (Err(error), Err(why)) => assert!(error.contains(why), "{error}"),
            _ => panic!("{read:?} instead of {items:?}"),
        }
        if body.len() > 1_000_000 {
            // Once is slow enough.
            continue;
        }
        let ends = items.is_err();
        let (remote, _) = server_of(PROTOBUF, move |_| Some((200, body.clone()))).await;
        let _ = remote.call(&Call::new(Verb::List, Kind::POD, "ns", "")).await;
        assert_eq!(remote.0.content.accept(Kind::POD) == JSON, ends, "the next list is read in JSON");
    }
}
