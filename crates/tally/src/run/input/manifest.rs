//! `--dry-run`: the objects as a manifest, for `kubectl create -f -`.

use std::io::{self, Write};

use serde_json::{Value, json};
use tally_node::env::ENVIRONMENT_ANNOTATION;

use super::documents::Document;
use super::flags::{Flags, TAKEN_OVER};
use crate::run::Form;

/// What a Job of flags takes from this machine does not exist in an image: the working directory and the variables of
/// the shell, unless they were given explicitly.
pub fn use_image(job: &mut Value, image: &str, flags: &Flags) {
    let template = &mut job["spec"]["template"];
    if let Some(annotations) = template["metadata"]["annotations"].as_object_mut() {
        annotations.remove(ENVIRONMENT_ANNOTATION);
        if annotations.is_empty()
            && let Some(template) = template.as_object_mut()
        {
            template.remove("metadata");
        }
    }
    let container = &mut job["spec"]["template"]["spec"]["containers"][0];
    container["image"] = image.into();
    let given = |name: &str| flags.env.iter().any(|given| given.split('=').next() == Some(name));
    if let Some(env) = container["env"].as_array_mut() {
        env.retain(|row| row["name"].as_str().is_some_and(|name| given(name) || !TAKEN_OVER.contains(&name)));
    }
    if let Some(fields) = container.as_object_mut()
        && flags.workdir.is_none()
    {
        fields.remove("workingDir");
    }
}

/// Writes the objects to standard output.
pub fn print<'a>(documents: impl ExactSizeIterator<Item = &'a Document>, form: Form) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    if form == Form::Json {
        let items: Vec<&Value> = documents.map(|document| &document.object).collect();
        match items.as_slice() {
            [only] => writeln!(out, "{only:#}")?,
            items => writeln!(out, "{:#}", json!({"apiVersion": "v1", "kind": "List", "items": items}))?,
        }
    } else {
        for (at, document) in documents.enumerate() {
            if at > 0 {
                out.write_all(b"---\n")?;
            }
            out.write_all(tally_server::yaml(&document.object.clone().into()).as_bytes())?;
        }
    }
    out.flush()
}
