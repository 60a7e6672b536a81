#![no_main]

#[allow(dead_code, reason = "one target uses a part of it")]
#[path = "../wire_properties.rs"]
mod properties;
#[allow(dead_code, reason = "one target uses a part of it")]
#[path = "../../crates/server/src/protobuf.rs"]
mod protobuf;
#[allow(dead_code, reason = "one target uses a part of it")]
#[path = "../../crates/server/src/route.rs"]
mod route;

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::binary(data));
