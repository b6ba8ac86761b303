//! Names of users from all sources of the C library, such as /etc/passwd or a directory service.

use uzers::{Users as _, UsersCache};

/// A cache of user names.
pub struct Owners(UsersCache);

impl Owners {
    pub fn new() -> Owners {
        Owners(UsersCache::new())
    }

    /// Returns the user's name, or the number of a user without a name.
    pub fn name(&self, uid: u32) -> String {
        match self.0.get_user_by_uid(uid) {
            Some(user) => user.name().to_string_lossy().into_owned(),
            None => uid.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_name_or_else_a_number() {
        let owners = Owners::new();
        assert_eq!(owners.name(0), "root");
        assert_eq!(owners.name(4_294_967_000), "4294967000");
    }
}
