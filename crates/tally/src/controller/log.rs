//! What it says while it runs: one line a message, on standard error.

use clap::ValueEnum;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Format {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

pub fn begin(format: Format, verbose: u8) {
    let own = match verbose {
        0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    // Libraries only when something is wrong, or when everything is wanted.
    let others = if verbose > 2 { LevelFilter::DEBUG } else { LevelFilter::WARN };
    let filter = Targets::new().with_default(others).with_target("tally", own).with_target("tally_controllers", own);
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let begun = tracing_subscriber::registry().with(filter);
    // Only a second call could fail, and then the first one holds.
    let _ = match format {
        Format::Text => begun.with(layer.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))).try_init(),
        Format::Json => begun.with(layer.json().flatten_event(true)).try_init(),
    };
}
