//! Why a container cannot be created as its spec says.

use compact_str::CompactString;

use crate::sources::Source;

/// The message of the waiting reason `CreateContainerConfigError`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContainerConfigError {
    #[error("{0} is not a field that a Pod can be told")]
    UnknownField(String),
    #[error("{0:?} is not a resource that a Pod can be told")]
    UnknownResource(String),
    #[error("there is no container {:?}", .0.as_str())]
    UnknownContainer(CompactString),
    #[error("this node knows no such source of a variable")]
    UnknownSource,
    #[error("{}", .0.not_found())]
    NotFound(Source),
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    MissingKey { key: String, kind: &'static str, namespace: CompactString, name: CompactString },
    #[error("subPathExpr of volume mount {:?}: missing value for {variable:?}", mount.as_str())]
    UnsetVariable { mount: CompactString, variable: String },
    #[error("mountPath of volume mount {:?}: a volume cannot be mounted at /, choose a directory", .0.as_str())]
    RootMount(CompactString),
}
