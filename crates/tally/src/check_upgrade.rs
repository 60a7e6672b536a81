//! `tally check-upgrade`: which Jobs an upgrade, or switching feature gates off, would affect. What affects a Job is decided in
//! `tally_core::gates`.

use std::process::ExitCode;

use serde_json::{Value, json};
use tally_core::gates::{FeatureGates, affected};
use tally_core::job::JobView;

use crate::look::LookForm;
use crate::place::{Place, PlaceError, PlaceFlags};
use crate::terminal;

#[derive(clap::Args)]
#[command(after_help = "Examples:
  tally check-upgrade --context test         the Jobs of a cluster that are not tracked with finalizers
  tally check-upgrade --data-dir ./d         the same for the data directory of tally up or tally run
  tally check-upgrade --context test --feature-gates=JobManagedBy=false
                                             also the Jobs that another controller manages
  tally check-upgrade -o json | jq -r '.jobs[].name'

A release without the old tracking creates Pods again for a Job that is not tracked with finalizers: wait until such Jobs have
ended. All namespaces are looked at unless --namespace names one.

Exit code 0: no Job is affected; 1: some are; 2: bad usage; 3: the data directory or the cluster cannot be read.")]
pub struct Args {
    #[command(flatten)]
    place: PlaceFlags,
    /// The gates after the change, as NAME=true|false, separated by commas
    #[arg(long, value_name = "LIST", default_value = "", hide_default_value = true)]
    feature_gates: FeatureGates,
    /// Output format
    #[arg(long, short = 'o', value_name = "FORM", value_enum, default_value_t)]
    output: LookForm,
}

pub fn run(args: &Args) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            terminal::tell(format_args!("cannot start threads: {error}"));
            return ExitCode::from(3);
        }
    };
    match runtime.block_on(look(args)) {
        Ok(false) => ExitCode::SUCCESS,
        Ok(true) => ExitCode::from(1),
        Err(PlaceError::Usage(why)) => {
            terminal::tell(why);
            ExitCode::from(2)
        }
        Err(PlaceError::Unreadable(why)) => {
            terminal::tell(why);
            ExitCode::from(3)
        }
    }
}

/// Returns whether a Job is affected.
async fn look(args: &Args) -> Result<bool, PlaceError> {
    let place = Place::open(&args.place).await?;
    let jobs = place.jobs(args.place.given_namespace().unwrap_or("")).await?;
    let mut found: Vec<(String, String, Vec<String>)> = Vec::new();
    for job in &jobs {
        let text = |field: &str| job["metadata"][field].as_str().unwrap_or_default().to_owned();
        let reasons = match JobView::from_json(job.to_string().as_bytes()) {
            Ok(view) => affected(&view, args.feature_gates),
            Err(error) => vec![format!("it cannot be read: {error}")],
        };
        if !reasons.is_empty() {
            found.push((text("namespace"), text("name"), reasons));
        }
    }
    found.sort();
    match args.output {
        LookForm::Json => {
            let rows: Vec<Value> = found
                .iter()
                .map(|(namespace, name, reasons)| json!({"namespace": namespace, "name": name, "reasons": reasons}))
                .collect();
            terminal::print(&format!("{:#}\n", json!({"checked": jobs.len(), "jobs": rows})));
        }
        LookForm::Text => {
            for (namespace, name, reasons) in &found {
                reasons.iter().for_each(|reason| terminal::print(&format!("{namespace}/{name}: {reason}\n")));
            }
            terminal::tell(format_args!(
                "{} of {} Jobs in {} would be affected",
                found.len(),
                jobs.len(),
                place.title()
            ));
        }
    }
    Ok(!found.is_empty())
}
