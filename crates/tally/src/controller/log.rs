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

/// The levels of `tally controller`, whose log is all that it says.
pub fn begin(format: Format, verbose: u8) {
    let own = match verbose {
        0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    // Libraries log only warnings, unless the highest verbosity is set.
    let others = if verbose > 2 { LevelFilter::DEBUG } else { LevelFilter::WARN };
    init(format, Targets::new().with_default(others).with_target("tally", own).with_target("tally_controllers", own));
}

/// The levels of `tally up`: without `--verbose` only what is wrong with its controllers. A cluster on a terminal does not
/// talk about its Jobs, or about the connections of its page, unless it is asked to.
pub fn begin_quiet(verbose: u8) {
    match verbose.checked_sub(1) {
        None => init(Format::Text, Targets::new().with_target("tally::metrics", LevelFilter::WARN)),
        Some(verbose) => begin(Format::Text, verbose),
    }
}

fn init(format: Format, filter: Targets) {
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let begun = tracing_subscriber::registry().with(filter);
    // Only a second call can fail, and then the first one stays in effect.
    let _ = match format {
        Format::Text => begun.with(layer.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))).try_init(),
        Format::Json => begun.with(layer.json().flatten_event(true)).try_init(),
    };
}
