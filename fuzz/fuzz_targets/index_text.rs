#![no_main]

#[allow(dead_code, reason = "one target uses a part of it")]
#[path = "../properties.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::index_text(data));
