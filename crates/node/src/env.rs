//! What a container is started with: its environment and command, with all references resolved.

use std::collections::BTreeMap;

use crate::config_error::ContainerConfigError;
use crate::facts;
use crate::options::NodeOptions;
use crate::pod::{Container, EnvSource, Pod};
use crate::sources::{Source, SourceObject, Sources};

/// On a Pod: `shell` means that its containers get the environment of the process that runs the node, if that is a
/// program which a user has started for these Pods (`NodeOptions::shares_env`).
pub const ENVIRONMENT_ANNOTATION: &str = "tally.dev/environment";

/// The name of a variable that a text refers to and that is not set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsetVariable(pub String);

/// The environment of a container, in the order in which the names first occurred.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    variables: Vec<(String, String)>,
    at: BTreeMap<String, usize>,
}

impl Environment {
    /// A later value replaces an earlier one.
    pub fn set(&mut self, name: &str, value: String) {
        match self.at.get(name).and_then(|at| self.variables.get_mut(*at)) {
            Some((_, known)) => *known = value,
            None => {
                self.at.insert(name.to_owned(), self.variables.len());
                self.variables.push((name.to_owned(), value));
            }
        }
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.at.get(name).and_then(|at| self.variables.get(*at)).map(|(_, value)| value.as_str())
    }

    pub fn into_variables(self) -> Vec<(String, String)> {
        self.variables
    }

    /// Expands `$(NAME)`. `$$` is one `$`; a reference to an unknown name stays as it is written.
    pub fn expand(&self, text: &str) -> String {
        self.fill_in(text).0
    }

    /// Err: the first unknown name.
    pub fn expand_all(&self, text: &str) -> Result<String, UnsetVariable> {
        match self.fill_in(text) {
            (text, None) => Ok(text),
            (_, Some(name)) => Err(UnsetVariable(name)),
        }
    }

    fn fill_in(&self, text: &str) -> (String, Option<String>) {
        let mut missing = None;
        let mut result = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            result.push_str(before);
            rest = after;
            if let Some(after) = rest.strip_prefix('$') {
                result.push('$');
                rest = after;
            } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
                match self.get(name) {
                    Some(value) => result.push_str(value),
                    None => {
                        result.extend(["$(", name, ")"]);
                        missing.get_or_insert_with(|| name.to_owned());
                    }
                }
                rest = after;
            } else {
                result.push('$');
            }
        }
        result.push_str(rest);
        (result, missing)
    }

    /// The argument vector of a container: its command, then its arguments.
    pub fn argv(&self, container: &Container) -> Vec<String> {
        container.command.iter().chain(&container.args).map(|word| self.expand(word)).collect()
    }
}

pub fn environment(
    pod: &Pod,
    container: &Container,
    node: &NodeOptions,
    sources: &Sources,
) -> Result<Environment, ContainerConfigError> {
    let mut env = Environment::default();
    for from in &container.env_from {
        let named = [
            from.config_map_ref.as_ref().map(|named| (Source::ConfigMap(named.name.clone()), named.optional)),
            from.secret_ref.as_ref().map(|named| (Source::Secret(named.name.clone()), named.optional)),
        ];
        for (source, optional) in named.into_iter().flatten() {
            let Some(held) = held(sources, source, optional)? else { continue };
            for key in held.keys() {
                let name = format!("{}{key}", from.prefix);
                // An environment variable cannot have such a name.
                if !name.is_empty() && !name.contains(['=', '\0']) {
                    env.set(&name, held.text(key).unwrap_or_default().into_owned());
                }
            }
        }
    }
    for variable in &container.env {
        let value = match &variable.value_from {
            None => Some(env.expand(&variable.value)),
            Some(from) => looked_up(pod, container, node, sources, from)?,
        };
        if let Some(value) = value {
            env.set(&variable.name, value);
        }
    }
    Ok(env)
}

/// None: an optional key does not exist; the variable is not set.
fn looked_up(
    pod: &Pod,
    container: &Container,
    node: &NodeOptions,
    sources: &Sources,
    from: &EnvSource,
) -> Result<Option<String>, ContainerConfigError> {
    if let Some(field) = &from.field_ref {
        return facts::field(pod, node, &field.field_path).map(Some);
    }
    if let Some(resource) = &from.resource_field_ref {
        return facts::resource(pod, node, Some(container), resource).map(Some);
    }
    let (key, source, kind) = match (&from.config_map_key_ref, &from.secret_key_ref) {
        (Some(key), _) => (key, Source::ConfigMap(key.name.clone()), "ConfigMap"),
        (None, Some(key)) => (key, Source::Secret(key.name.clone()), "Secret"),
        (None, None) => return Err(ContainerConfigError::UnknownSource),
    };
    let Some(held) = held(sources, source, key.optional)? else { return Ok(None) };
    match held.text(&key.key) {
        Some(value) => Ok(Some(value.into_owned())),
        None if key.optional => Ok(None),
        None => Err(ContainerConfigError::MissingKey {
            key: key.key.to_string(),
            kind,
            namespace: pod.metadata.namespace.clone(),
            name: key.name.clone(),
        }),
    }
}

fn held(sources: &Sources, source: Source, optional: bool) -> Result<Option<SourceObject<'_>>, ContainerConfigError> {
    match sources.get(source.clone()) {
        None if !optional => Err(ContainerConfigError::NotFound(source)),
        held => Ok(held),
    }
}
