//! Metadata every object has.

pub fn name_is_dns_subdomain(_name: &str, _prefix: bool) -> Vec<String> {
    Vec::new()
}
