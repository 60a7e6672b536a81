//! The one driver that connects controllers to an API: streams in, requests out.

pub mod api;
