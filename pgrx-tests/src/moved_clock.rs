//! A cluster whose clock a test moves: Debian's faketime stands between the server and the system's clock.

use crate::cluster::Cluster;
use crate::paths;
use crate::process;
use std::fs;
use std::path::{Path, PathBuf};

const LIBRARIES: [&str; 2] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
];

/// The cluster, and the file that says what time it is.
pub struct MovedClock {
    pub cluster: Cluster,
    file: PathBuf,
}

impl MovedClock {
    /// A cluster that starts at this time, in UTC: `2027-06-01 10:00:00`.
    ///
    /// # Panics
    /// Where faketime is not installed.
    pub fn start(name: &str, time: &str) -> MovedClock {
        let folder = paths::scratch(&format!("{name}-clock"));
        process::remove_at_the_end(&folder);
        fs::create_dir_all(&folder).expect("a folder for the clock");
        let file = folder.join("time");
        set(&file, time);
        let library = LIBRARIES.iter().find(|library| Path::new(library).exists());
        let library = library.expect("faketime is missing: run `make setup`");
        let wrapper = vec![
            "/usr/bin/env".to_owned(),
            format!("LD_PRELOAD={library}"),
            format!("FAKETIME_TIMESTAMP_FILE={}", file.display()),
            "FAKETIME_NO_CACHE=1".to_owned(),
            "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
            "TZ=UTC".to_owned(),
        ];
        MovedClock { cluster: Cluster::start_by(name, wrapper), file }
    }

    /// It is this time now, and time goes on from here.
    pub fn set(&self, time: &str) {
        set(&self.file, time);
    }
}

fn set(file: &Path, time: &str) {
    // Renamed, so that nobody reads half a time.
    let new = file.with_extension("new");
    fs::write(&new, format!("@{time}\n")).expect("the time");
    fs::rename(&new, file).expect("the time");
}
