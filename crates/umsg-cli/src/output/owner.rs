//! Users' names, as /etc/passwd has them. Users known only to a directory service are shown by number.

use std::collections::HashMap;

/// Looks users up, reading the file once.
pub struct Owners(HashMap<u32, String>);

impl Owners {
    pub fn read() -> Owners {
        let file = std::fs::read("/etc/passwd").unwrap_or_default();
        Owners(
            String::from_utf8_lossy(&file)
                .lines()
                .filter_map(entry)
                .collect(),
        )
    }

    pub fn name(&self, uid: u32) -> String {
        self.0.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }
}

/// `name:password:uid:...`
fn entry(line: &str) -> Option<(u32, String)> {
    let mut fields = line.split(':');
    let name = fields.next().filter(|name| !name.is_empty())?;
    let uid = fields.nth(1)?.parse().ok()?;
    Some((uid, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_make_no_sense_are_passed_over() {
        assert_eq!(
            entry("root:x:0:0:root:/root:/bin/sh"),
            Some((0, "root".to_owned()))
        );
        for line in ["", "# comment", "+::::::", "a:b", "a:x:many:0"] {
            assert_eq!(entry(line), None, "{line}");
        }
    }
}
