//! The content of a Pod's volumes.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use serde_json::Value;
use tally_core::claims;

use crate::config_error::ContainerConfigError;
use crate::env::{Environment, UnsetVariable};
use crate::facts;
use crate::options::NodeOptions;
use crate::pod::{
    ClaimVolume, ConfigMapVolume, Container, DownwardVolume, Item, Pod, SecretVolume, TokenProjection, Volume, quantity,
};
use crate::port::{self, Content, File, Mount};
use crate::sources::{Source, Sources, TokenSource};

/// Readable by all users, as in the API's default.
const DEFAULT_MODE: u32 = 0o644;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeError {
    /// Something does not exist yet.
    Missing(String),
    /// This node does not support it.
    Unsupported(String),
}

/// All volumes except `without`. Err: the volume and what is wrong with it.
pub fn volumes(
    pod: &Pod,
    without: Option<&str>,
    node: &NodeOptions,
    sources: &Sources,
) -> Result<Vec<port::Volume>, (String, VolumeError)> {
    let each = pod.spec.volumes.iter().filter(|volume| Some(volume.name.as_str()) != without).map(|volume| {
        let content = content(pod, node, sources, volume).map_err(|problem| (volume.name.to_string(), problem))?;
        Ok(port::Volume { name: volume.name.clone(), content })
    });
    each.collect()
}

fn content(pod: &Pod, node: &NodeOptions, sources: &Sources, volume: &Volume) -> Result<Content, VolumeError> {
    let mut files = Files::default();
    if let Some(empty) = &volume.empty_dir {
        let limit = quantity(empty.size_limit.as_ref()).and_then(|limit| u64::try_from(limit.value()).ok());
        let in_memory = empty.medium == "Memory";
        return Ok(Content::Empty { in_memory, limit: limit.filter(|limit| *limit > 0) });
    } else if let Some(host) = &volume.host_path {
        return Ok(Content::Host { path: host.path.clone(), kind: host.kind.clone() });
    } else if let Some(claim) = &volume.persistent_volume_claim {
        return claimed(sources, claim);
    } else if let Some(map) = &volume.config_map {
        files.config_map(sources, map, map.default_mode)?;
    } else if let Some(secret) = &volume.secret {
        files.secret(sources, secret, secret.default_mode)?;
    } else if let Some(downward) = &volume.downward_api {
        files.downward(pod, node, downward, downward.default_mode)?;
    } else if let Some(projected) = &volume.projected {
        let mode = projected.default_mode;
        for source in &projected.sources {
            if let Some(map) = &source.config_map {
                files.config_map(sources, map, mode)?;
            } else if let Some(secret) = &source.secret {
                files.secret(sources, secret, mode)?;
            } else if let Some(downward) = &source.downward_api {
                files.downward(pod, node, downward, mode)?;
            } else if let Some(token) = &source.service_account_token {
                files.token(pod, sources, token, mode)?;
            } else {
                let kind = source.other.keys().next().map_or("an unknown source", String::as_str);
                return Err(VolumeError::Unsupported(format!(
                    "projected volumes of this node have configMap, secret, downwardAPI and serviceAccountToken sources, not {kind}"
                )));
            }
        }
    } else if volume.other.is_empty() {
        // A volume without a source is an empty directory.
        return Ok(Content::Empty { in_memory: false, limit: None });
    } else {
        let kind = volume.other.keys().next().map_or("", String::as_str);
        return Err(VolumeError::Unsupported(format!(
            "this node runs Pods as plain processes and has no {kind} volumes; it offers emptyDir, hostPath, \
             persistentVolumeClaim, configMap, secret, downwardAPI and projected"
        )));
    }
    Ok(Content::Files(files.0.into_iter().map(|(path, (content, mode))| File { path, content, mode }).collect()))
}

/// CLAIM-3: the directory of a claim, once the claim is bound.
fn claimed(sources: &Sources, claim: &ClaimVolume) -> Result<Content, VolumeError> {
    let source = Source::Claim(claim.claim_name.clone());
    let Some(object) = sources.claim(claim.claim_name.clone()) else {
        return Err(VolumeError::Missing(source.not_found()));
    };
    let told = |what: &str| format!("persistentvolumeclaim {:?} {what}", claim.claim_name);
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let uid = text("/metadata/uid");
    if object.pointer("/metadata/deletionTimestamp").is_some() {
        return Err(VolumeError::Missing(told("is being deleted")));
    }
    if let Some(why) = claims::obstacle(uid, object.get("spec").unwrap_or(&Value::Null)) {
        return Err(VolumeError::Unsupported(told(&format!("gets no volume: {why}"))));
    }
    if text("/spec/volumeName").is_empty() {
        return Err(VolumeError::Missing(told("is not bound yet")));
    }
    Ok(Content::Claim { uid: uid.into() })
}

/// By path: of two files with the same path the later one wins.
#[derive(Default)]
struct Files(BTreeMap<String, (Vec<u8>, u32)>);

impl Files {
    fn config_map(&mut self, sources: &Sources, map: &ConfigMapVolume, mode: Option<u32>) -> Result<(), VolumeError> {
        self.held(sources, Source::ConfigMap(map.name.clone()), &map.items, map.optional, mode)
    }

    fn secret(&mut self, sources: &Sources, secret: &SecretVolume, mode: Option<u32>) -> Result<(), VolumeError> {
        self.held(sources, Source::Secret(secret.secret_name.clone()), &secret.items, secret.optional, mode)
    }

    fn token(
        &mut self,
        pod: &Pod,
        sources: &Sources,
        token: &TokenProjection,
        mode: Option<u32>,
    ) -> Result<(), VolumeError> {
        let wanted = TokenSource::of(pod, token);
        let Some(issued) = sources.token(wanted.clone()) else {
            return Err(VolumeError::Missing(Source::Token(wanted).not_found()));
        };
        self.0.insert(token.path.clone(), (issued.into(), mode.unwrap_or(DEFAULT_MODE)));
        Ok(())
    }

    fn held(
        &mut self,
        sources: &Sources,
        source: Source,
        items: &[Item],
        optional: bool,
        mode: Option<u32>,
    ) -> Result<(), VolumeError> {
        let mode = mode.unwrap_or(DEFAULT_MODE);
        let Some(held) = sources.get(source.clone()) else {
            return if optional { Ok(()) } else { Err(VolumeError::Missing(source.not_found())) };
        };
        let files = held.files();
        if items.is_empty() {
            self.0.extend(files.into_iter().map(|(key, content)| (key.to_owned(), (content, mode))));
            return Ok(());
        }
        for item in items {
            match files.get(item.key.as_str()) {
                Some(content) => {
                    self.0.insert(item.path.clone(), (content.clone(), item.mode.unwrap_or(mode)));
                }
                None if optional => {}
                None => {
                    let (name, key) = (source.name(), &item.key);
                    let why =
                        format!("{name} has no key {key:?}; add it there, or mark the volume's source as optional");
                    return Err(VolumeError::Missing(why));
                }
            }
        }
        Ok(())
    }

    fn downward(
        &mut self,
        pod: &Pod,
        node: &NodeOptions,
        downward: &DownwardVolume,
        mode: Option<u32>,
    ) -> Result<(), VolumeError> {
        for item in &downward.items {
            let told = match (&item.field_ref, &item.resource_field_ref) {
                (Some(field), _) => facts::field(pod, node, &field.field_path),
                (None, Some(resource)) => facts::resource(pod, node, None, resource),
                (None, None) => Ok(String::new()),
            };
            let told = told.map_err(|error| VolumeError::Unsupported(error.to_string()))?;
            let mode = item.mode.or(mode).unwrap_or(DEFAULT_MODE);
            self.0.insert(item.path.clone(), (told.into_bytes(), mode));
        }
        Ok(())
    }
}

/// `/`, also if it is written in another way. Symlinks to it are found when it is mounted.
fn is_root(path: &str) -> bool {
    path.starts_with('/') && Path::new(path).components().all(|part| part == Component::RootDir)
}

/// The mounts of a container. Err: a variable in a path is not set, and any other path would be wrong; or a volume
/// would hide the whole file system.
pub fn mounts(container: &Container, env: &Environment) -> Result<Vec<Mount>, ContainerConfigError> {
    let each = container.volume_mounts.iter().map(|mount| {
        let sub_path = match mount.sub_path_expr.as_str() {
            "" => mount.sub_path.clone(),
            expression => env.expand_all(expression).map_err(|UnsetVariable(variable)| {
                ContainerConfigError::UnsetVariable { mount: mount.name.clone(), variable }
            })?,
        };
        let (volume, path) = (mount.name.clone(), mount.mount_path.clone());
        if is_root(&path) {
            return Err(ContainerConfigError::RootMount(volume));
        }
        // This node can always: the kernel that isolates can.
        let recursive = matches!(mount.recursive_read_only.as_deref(), Some("Enabled" | "IfPossible"));
        Ok(Mount { volume, path, sub_path, read_only: mount.read_only, recursive: mount.read_only && recursive })
    });
    each.collect()
}
