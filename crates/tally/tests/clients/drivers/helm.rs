//! Helm: a release of one manifest.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use super::{Answer, Driver, Place, run, write};

pub struct Helm {
    program: PathBuf,
    place: Place,
}

pub fn start(program: PathBuf, place: Place) -> Result<Box<dyn Driver>, String> {
    Ok(Box::new(Helm { program, place }))
}

impl Driver for Helm {
    fn ask(&mut self, request: &Value, _: &dyn Fn(Value)) -> Answer {
        match request["thing"].as_str().unwrap_or_default() {
            "rollback" => {
                let first = self.chart("rolled", &request["first"])?;
                self.helm(request, &["install", "rolled", &first])?;
                let second = self.chart("rolled", &request["second"])?;
                self.helm(request, &["upgrade", "rolled", &second])?;
                self.helm(request, &["rollback", "rolled", "1"])?;
                // What is deployed is not Helm's to say, so there is nothing to tell of the second one.
                Ok(json!({}))
            }
            "job" => {
                let chart = self.chart("job", &request["job"])?;
                self.helm(request, &["install", "job", &chart, "--wait", "--wait-for-jobs", "--timeout", "110s"])?;
                Ok(json!({}))
            }
            other => Err(format!("Helm has no {other}")),
        }
    }
}

impl Helm {
    /// A chart that contains one manifest as it is.
    fn chart(&self, name: &str, manifest: &Value) -> Result<String, String> {
        let directory = self.place.home.join(name);
        std::fs::create_dir_all(directory.join("templates")).map_err(|error| error.to_string())?;
        write(&directory, "Chart.yaml", &format!("apiVersion: v2\nname: {name}\nversion: 0.1.0\n"))?;
        write(&directory, "templates/one.yaml", &manifest.to_string())?;
        directory.into_os_string().into_string().map_err(|path| format!("{path:?}"))
    }

    fn helm(&self, request: &Value, arguments: &[&str]) -> Result<(), String> {
        let mut command = Command::new(&self.program);
        command
            .env("KUBECONFIG", &self.place.kubeconfig)
            .env("HOME", &self.place.home)
            .args(["-n", request["namespace"].as_str().unwrap_or("default")])
            .args(arguments);
        match run(&mut command)? {
            said if said.code == Some(0) => Ok(()),
            said => Err(format!("helm {arguments:?}: {said:?}")),
        }
    }
}
