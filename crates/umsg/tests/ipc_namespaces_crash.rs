//! A real SIGKILL while the directory of another IPC namespace is made or removed.

mod support;

use std::os::unix::fs::PermissionsExt;

use support::child::{Child, Exit};
use support::place::Place;
use umsg::Namespace;
use umsg_shm::crash;

/// Finds the namespace in a child that is outside of the IPC namespace of `$UMSG_DIR`. If `point` is given, the child dies at this point.
#[track_caller]
fn resolve(place: &Place, point: Option<&str>) {
    let mut child = Child::run(|| {
        // SAFETY: the child has one thread.
        unsafe {
            std::env::set_var("UMSG_DIR", place.namespace.path());
            std::env::set_var("UMSG_IPC_NAMESPACE", "1-1");
        }
        if let Some(point) = point {
            crash::arm(point, 1);
        }
        let found = Namespace::resolve().unwrap();
        assert_eq!(found.path().parent(), Some(place.namespace.path()));
        0
    });
    let (exit, what) = match point {
        Some(point) => (Exit::Signal(libc::SIGKILL), point),
        None => (Exit::Code(0), "the next process"),
    };
    child.expect(exit, what);
}

fn names(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(place.namespace.path()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains("ipc-")).collect()
}

#[test]
fn a_half_made_directory_is_used_by_the_next_process() {
    let place = Place::new();
    resolve(&place, Some("IPC_DIRECTORY_MADE"));
    let left = names(&place);
    assert_eq!(left.len(), 1);
    resolve(&place, None);
    assert_eq!(names(&place), left);
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode();
    let base = place.namespace.path();
    assert_eq!(mode(&base.join(&left[0])), mode(base));
}

#[test]
fn a_half_removed_directory_is_removed_by_the_next_sweep() {
    let place = Place::new();
    let ended = place.namespace.path().join("ipc-18446744073709551615");
    std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
        .create(&ended)
        .unwrap();
    Namespace::at(&ended).unwrap();
    std::fs::write(ended.join("mq/q"), b"").unwrap();
    let mut killed = Child::run(|| {
        crash::arm("IPC_DIRECTORY_GOING", 1);
        let _ = place.namespace.sweep();
        0
    });
    killed.expect(Exit::Signal(libc::SIGKILL), "IPC_DIRECTORY_GOING");
    let left = names(&place);
    assert!(left.len() == 1 && left[0].starts_with(".ipc-"), "{left:?}");
    place.namespace.sweep().unwrap();
    assert_eq!(names(&place), [""; 0]);
}
