//! The named points of each API, read from the source code: there is no separate list.
//!
//! Every `crash_point!` of the library belongs to the APIs whose calls pass it. Its folder or file decides which APIs these are; an unknown file
//! fails the tests. The tests of an API have to kill at all points of the API, except the points in `NEVER`, each of which has a reason.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use umsg_shm::crash::POINTS;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Face {
    Posix,
    Sysv,
    Ring,
}
use Face::{Posix, Ring, Sysv};

/// The APIs whose calls pass the points of a folder or file. The first match is valid.
const PLACES: &[(&str, &[Face])] = &[
    ("posix/", &[Posix]),
    ("sysv/", &[Sysv]),
    ("sysv_engine/", &[Sysv]),
    ("announcements.rs", &[Sysv]),
    ("ring/", &[Ring]),
    ("posix_engine/wake_word.rs", &[Ring]),
    ("posix_engine/delay.rs", &[Posix]),
    ("posix_engine/fair.rs", &[Posix]),
    ("posix_engine/end_of_stream.rs", &[Posix]),
    ("producers.rs", &[Posix, Sysv]),
    ("posix_engine/held_messages.rs", &[Posix]),
    ("posix_engine/lease.rs", &[Posix]),
    ("posix_engine/reserve.rs", &[Posix]),
    ("posix_engine/policy.rs", &[Posix]),
    ("posix_engine/trace.rs", &[Posix]),
    ("posix_engine/transfer.rs", &[Posix]),
    ("posix_engine/notification", &[Posix]),
    ("posix_engine/watch.rs", &[Posix]),
    ("posix_engine/segment/vacant.rs", &[Posix]),
    ("posix_engine/", &[Posix, Ring]),
    ("leases/", &[Posix, Sysv]),
    ("lock/", &[Posix, Sysv, Ring]),
    ("arena/", &[Posix, Sysv, Ring]),
    ("doorbell/", &[Posix, Sysv]),
    ("namespace/transient/", &[Posix]),
    ("namespace/vacated.rs", &[Posix]),
    // The test `ipc_namespaces_crash` kills at these points, which belong to no API.
    ("namespace/ipc/directories.rs", &[]),
];

/// Crash points that an API never reaches, although it uses the file, with the reason.
const NEVER: &[(Face, &str, &str)] = &[
    (Ring, "SEND_RUN_CHANGED", "its messages have no priorities"),
    (Ring, "SERVE_NOTED", "its receiver leaves no node"),
    (Ring, "SERVE_OFFERED", "its receiver leaves no node"),
    (Ring, "SERVE_TAKEN", "its receiver leaves no node"),
];

/// Crash points that only a repair reaches.
const REPAIRS: [&str; 3] = [
    "posix_engine/recover.rs",
    "sysv_engine/repair.rs",
    "posix_engine/batch/send.rs",
];
const REPAIR_NAMES: [&str; 5] = [
    "REPAIR_",
    "MSG_SURVEYED",
    "MSG_CLEARED",
    "MSG_ORDERED",
    "BATCH_TAKEN_BACK",
];

/// A `crash_point!`: the file below a crate's `src`, and the name.
type Site = (String, String);

/// Returns all crash points of the source code.
pub fn sites() -> Vec<Site> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut sites = Vec::new();
    for src in ["umsg-shm/src", "umsg/src"].map(|src| crates.join(src)) {
        for file in files(&src) {
            let name = file.strip_prefix(&src).unwrap().to_str().unwrap();
            let text = fs::read_to_string(&file).unwrap();
            let uses = text.split("crash_point!(").skip(1);
            let points = uses
                .filter_map(|rest| rest.split_once(')'))
                .map(|(point, _)| point);
            let points = points.filter(|point| POINTS.iter().any(|(_, known, _)| known == point));
            sites.extend(points.map(|point| (name.to_owned(), point.to_owned())));
        }
    }
    assert!(sites.len() >= POINTS.len(), "{sites:?}");
    sites
}

/// Returns the files of a folder and of its sub-folders, except the file that declares the points.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => files(&path),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|ending| ending == "rs"))
        .filter(|path| path.file_name().is_none_or(|name| name != "crash.rs"))
        .collect()
}

fn faces(file: &str) -> &'static [Face] {
    let place = PLACES.iter().find(|(place, _)| file.starts_with(place));
    place
        .unwrap_or_else(|| panic!("{file} has a point: of which faces?"))
        .1
}

/// Returns the points at which a process that uses the API has to be killed.
pub fn of(face: Face) -> BTreeSet<String> {
    let never = |point: &str| {
        let mut never = NEVER.iter();
        never.any(|(other, name, _)| *other == face && *name == point)
    };
    let ours = sites()
        .into_iter()
        .filter(|(file, _)| faces(file).contains(&face));
    ours.map(|(_, point)| point)
        .filter(|point| !never(point))
        .collect()
}

/// Returns the points of an API's repairs: the tests have to kill a second repair at each of these points.
pub fn of_repairs(face: Face) -> BTreeSet<String> {
    let is_repair = |(file, point): &Site| {
        REPAIRS.contains(&&file[..])
            && faces(file).contains(&face)
            && REPAIR_NAMES.iter().any(|name| point.starts_with(name))
    };
    let repairs = sites().into_iter().filter(is_repair);
    repairs.map(|(_, point)| point).collect()
}

/// Returns the points that a test file names. The tests in the file kill at each point, and fail if no process dies.
pub fn killed_in(file: &str) -> Vec<&'static str> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(file);
    let text = fs::read_to_string(path).unwrap();
    let words: BTreeSet<&str> = text.split('"').skip(1).step_by(2).collect();
    let named = POINTS.iter().filter(|(_, name, _)| words.contains(name));
    named.map(|(_, name, _)| *name).collect()
}

/// Fails if the API has a point at which no process is killed, or if `killed` names a point that the API does not have.
#[track_caller]
pub fn expect_all(face: Face, killed: &[&str]) {
    let missing: Vec<String> = of(face)
        .into_iter()
        .filter(|point| !killed.contains(&&point[..]))
        .collect();
    assert!(
        missing.is_empty(),
        "{face:?}: no process is killed at {missing:?}"
    );
    for name in killed {
        let is_known = POINTS.iter().any(|(_, known, _)| known == name);
        assert!(is_known, "{face:?}: there is no point {name}");
        let never = NEVER
            .iter()
            .find(|(other, point, _)| *other == face && point == name);
        assert!(
            never.is_none(),
            "{face:?}: killed at a point that it never passes: {never:?}"
        );
    }
}

/// Fails if a declared point is not used in the code.
pub fn expect_all_to_stand_somewhere() {
    let sites = sites();
    for (_, name, what) in POINTS {
        let stands = sites.iter().any(|(_, point)| point == name);
        assert!(stands, "{name} ({what}) stands nowhere in the code");
    }
}
