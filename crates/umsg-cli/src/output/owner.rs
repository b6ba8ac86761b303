//! Names of users, from any source that the C library knows: /etc/passwd, a directory service.

use uzers::{Users as _, UsersCache};

/// Looks each user up once.
pub struct Owners(UsersCache);

impl Owners {
    pub fn new() -> Owners {
        Owners(UsersCache::new())
    }

    /// A user without a name is shown by number.
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
