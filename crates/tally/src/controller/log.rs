//! Log output: one line per message on standard error.

use clap::ValueEnum;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Format {
    /// Human-readable lines
    Text,
    /// One JSON object per line
    Json,
}

pub fn begin(format: Format, verbose: u8) {
    let own = match verbose {
        0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    // Libraries log only warnings, unless the highest verbosity is set.
    let others = if verbose > 2 { LevelFilter::DEBUG } else { LevelFilter::WARN };
    let filter = Targets::new().with_default(others).with_target("tally", own).with_target("tally_controllers", own);
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let begun = tracing_subscriber::registry().with(filter);
    // Only a second call can fail, and then the first one stays in effect.
    let _ = match format {
        Format::Text => begun.with(layer.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))).try_init(),
        Format::Json => begun.with(layer.json().flatten_event(true)).try_init(),
    };
}
