//! One client of the cluster, with the credentials of a kubeconfig.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use serde_json::Value;
// All of kubeconfig works, as for the controller, and no request is sent twice.
use tally_remote::connect;
use tower::ServiceExt;

const MERGE: &str = "application/merge-patch+json";
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// Maximum number of attempts: a request is repeated after 429, a read also without a response.
const ATTEMPTS: u32 = 30;

#[derive(Clone)]
pub struct Api(connect::Service);

pub struct Answer {
    pub code: u16,
    pub body: Value,
}

impl Answer {
    /// The object, if it exists.
    pub fn found(self) -> Option<Value> {
        (self.code != 404).then(|| self.ok())
    }

    pub fn ok(self) -> Value {
        assert!((200..300).contains(&self.code), "{} {:#}", self.code, self.body);
        self.body
    }
}

impl Api {
    pub async fn to(kubeconfig: &Path) -> Self {
        let place = connect::KubeconfigSource { kubeconfig: Some(kubeconfig.to_owned()), context: None };
        let access = connect::access(&place).expect("a kubeconfig that can be used");
        Self(connect::service(&access).expect("a way to the server"))
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, "", &Value::Null).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Value {
        self.call(Method::POST, path, "application/json", body).await.ok()
    }

    pub async fn patch(&self, path: &str, body: &Value) -> Answer {
        self.call(Method::PATCH, path, MERGE, body).await
    }

    pub async fn delete(&self, path: &str, options: &Value) -> Answer {
        self.call(Method::DELETE, path, "application/json", options).await
    }

    pub async fn call(&self, method: Method, path: &str, content_type: &str, body: &Value) -> Answer {
        let mut attempts = 0;
        loop {
            let answered = tokio::time::timeout(ANSWER_WITHIN, self.once(&method, path, content_type, body)).await;
            attempts += 1;
            match answered {
                Ok(Ok(answer)) if answer.code != 429 || attempts == ATTEMPTS => return answer,
                Ok(Err(why)) if method != Method::GET || attempts == ATTEMPTS => panic!("{method} {path}: {why}"),
                Err(_) if method != Method::GET || attempts == ATTEMPTS => panic!("{method} {path}: no answer"),
                _ => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        }
    }

    async fn once(&self, method: &Method, path: &str, content_type: &str, body: &Value) -> Result<Answer, String> {
        let response = self.open(method, path, content_type, body).await?;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
        let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
        Ok(Answer { code, body: serde_json::from_slice(&bytes).unwrap_or_else(|_| text()) })
    }

    /// The head of a response, for example of a watch.
    pub async fn open(
        &self,
        method: &Method,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Result<Response<Incoming>, String> {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let mut request = Request::builder().method(method).uri(path).header("accept", "application/json");
        if !text.is_empty() {
            request = request.header("content-type", content_type);
        }
        let request = request.body(Full::new(Bytes::from(text))).map_err(|error| error.to_string())?;
        self.0.clone().oneshot(request).await.map_err(|error| connect::reasons(&*error))
    }
}
