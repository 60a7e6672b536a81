//! `tally version`: the version, and the feature gates with their defaults.

use serde_json::{Map, Value, json};
use tally_core::gates::{FeatureGates, Gate};

use crate::look::LookForm;

#[derive(clap::Args)]
pub struct Args {
    /// Output format; json has the feature gates
    #[arg(long, short = 'o', value_name = "FORM", value_enum, default_value_t)]
    output: LookForm,
    /// Show the gates as this list sets them, as NAME=true|false, separated by commas
    #[arg(long, value_name = "LIST", default_value = "", hide_default_value = true)]
    feature_gates: FeatureGates,
}

pub fn text(args: &Args) -> String {
    match args.output {
        LookForm::Text => format!("tally {}\n", env!("CARGO_PKG_VERSION")),
        LookForm::Json => {
            let gates = Gate::ALL.into_iter().map(|gate| {
                // Metrics have the empty text for this stage.
                let stage = if gate.stage().is_empty() { "GA" } else { gate.stage() };
                let on = json!({"enabled": args.feature_gates.enabled(gate), "default": true, "stage": stage});
                (gate.name().to_owned(), on)
            });
            let gates: Map<String, Value> = gates.collect();
            format!("{:#}\n", json!({"version": env!("CARGO_PKG_VERSION"), "featureGates": gates}))
        }
    }
}
