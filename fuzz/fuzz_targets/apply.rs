#![no_main]

#[allow(dead_code)]
#[path = "../api_properties.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::apply(data));
