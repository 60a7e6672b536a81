#![no_main]

#[allow(dead_code, reason = "one target uses a part of it")]
#[path = "../wire_properties.rs"]
mod properties;
#[allow(dead_code, reason = "one target uses a part of it")]
#[path = "../wire_modules.rs"]
mod modules;
use modules::{http, sessions};

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::binary(data));
