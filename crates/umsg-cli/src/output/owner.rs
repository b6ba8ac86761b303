//! Names of users from all sources of the C library, such as /etc/passwd or a directory service.

use std::cell::RefCell;
use std::collections::HashMap;

/// A cache of user names. A user without a name is not cached: a directory service may answer later, or the user may be created later.
#[derive(Default)]
pub struct Owners(RefCell<HashMap<u32, String>>);

impl Owners {
    pub fn new() -> Owners {
        Owners::default()
    }

    /// Returns the user's name, or the user id if the user has no name.
    pub fn name(&self, uid: u32) -> String {
        if let Some(name) = self.0.borrow().get(&uid) {
            return name.clone();
        }
        let Some(user) = uzers::get_user_by_uid(uid) else {
            return uid.to_string();
        };
        let name = user.name().to_string_lossy().into_owned();
        self.0.borrow_mut().insert(uid, name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_name_or_else_a_number() {
        let owners = Owners::new();
        for _ in 0..2 {
            assert_eq!(owners.name(0), "root");
        }
        assert_eq!(owners.name(4_294_967_000), "4294967000");
    }
}
