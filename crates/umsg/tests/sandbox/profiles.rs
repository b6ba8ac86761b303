//! All paths work under the default seccomp profiles of container engines.

use super::containers::{DOCKER, PODMAN, Profile};
use super::paths::{self, LONG, Path};
use crate::support::child::{Child, Exit};
use crate::support::place::Place;
use crate::support::seccomp::{allow_only, refuse};
use umsg::Namespace;

fn walk_in_a_container(path: &Path, profile: &Profile) {
    let place = Place::new();
    path.furnish(&place);
    let mut child = Child::run(|| {
        for (call, errno) in profile.answers {
            refuse(&[(*call).into()], *errno);
        }
        // Of two filters that refuse a call, the one that was installed last answers.
        allow_only(&profile.lets_pass(), profile.others);
        let namespace = Namespace::at(place.path()).expect("a namespace");
        (path.walk)(&namespace).expect("all that the path calls");
        0
    });
    let end = child.wait(LONG + LONG);
    assert_eq!(end, Some(Exit::Code(0)), "{}", path.name);
}

#[test]
fn all_paths_work_under_the_default_profile_of_docker() {
    for path in paths::all() {
        walk_in_a_container(path, &DOCKER);
    }
}

#[test]
fn all_paths_work_under_the_default_profile_of_podman() {
    for path in paths::all() {
        walk_in_a_container(path, &PODMAN);
    }
}
