//! The files of the page, which are in `assets/`.

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        const FILES: &[(&str, &[u8])] = &[$(($name, include_bytes!(concat!("../assets/", $name)))),*];
    };
}

files![
    "actions.js",
    "ansi.js",
    "api.js",
    "app.js",
    "charts.js",
    "cron.js",
    "cronjobs-view.js",
    "dom.js",
    "field.js",
    "format.js",
    "icon.svg",
    "index.html",
    "job-view.js",
    "jobs-view.js",
    "logs.js",
    "model.js",
    "nodes-view.js",
    "parts.js",
    "ranges.js",
    "retry.js",
    "stores.js",
    "style.css",
    "vlist.js",
    "waits.js",
    "yaml.js",
];

/// The media type and the content of a file.
pub fn find(path: &str) -> Option<(&'static str, &'static [u8])> {
    let (name, content) = FILES.iter().find(|(name, _)| *name == path)?;
    let media_type = match name.rsplit_once('.').map_or("", |(_, ending)| ending) {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => return None,
    };
    Some((media_type, content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_file_of_the_folder_is_served() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
        let there = std::fs::read_dir(folder).unwrap();
        let there: BTreeSet<String> = there.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        let served: BTreeSet<String> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(served, there);
        for (name, _) in FILES {
            assert!(find(name).is_some(), "{name} has no media type");
        }
    }
}
