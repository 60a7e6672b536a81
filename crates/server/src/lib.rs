//! The Kubernetes API over HTTPS, in front of a registry.
//!
//! A connection is accepted and its certificate verified (`http::listen`). For each request the server determines the user
//! (`auth`), the resource and verb (`http::route`) and the response format (`http::negotiate`), and limits what one user can
//! occupy (`http::flow`). The verbs (`objects`, `objects::watch`, `objects::logs`) pass it to the registry and encode the stored bytes as the response (`encode`, `http::body`).
//! There is no rule about Jobs or Pods here.
//!
//! The caller owns the listener and decides when to stop.

mod audit;
mod auth;
mod encode;
mod env;
#[cfg(test)]
mod fuzz_corpus;
mod http;
mod objects;
mod sessions;

pub use audit::policy::{AuditPolicy, AuditPolicyError};
pub use audit::{AuditError, AuditLog, AuditOptions, AuditReport};
pub use auth::clients::{ClientError, NewClient};
pub use auth::kubeconfig;
pub use auth::pki::{self, Pki};
pub use auth::roles::install_roles;
pub use encode::yaml::write as yaml;
pub use env::SystemEnv;
pub use http::connections::{ConnectionPlace, ConnectionTable};
pub use http::flow::{FlowLimits, ShareLimits};
pub use http::idle::Requests;
pub use http::listen::{Deadlines, MOST_CONNECTIONS, Server, ServerOptions};
pub use http::local::{BackupFiles, LocalServer};
pub use objects::logs::{Log, LogEnded, LogError, LogRequest, Logs};
pub use objects::usage::{UsageFigure, UsageFigures, UsageSource};
pub use sessions::{
    BoxFuture, PodSession, PodSessionControl, PodSessionError, PodSessionKind, PodSessionRequest, PodSessions,
};
