//! Explains why a queue's mode denies an access: names the mode and the owner.

use std::path::Path;

use rustix::fs::FileType;
use umsg::posix::OpenError;
use umsg::{Namespace, sysv};

use crate::address::Label;
use crate::elsewhere;
use crate::failure::{Code, Failure};
use crate::names::Name;
use crate::output::owner::Owners;

/// Returns the failure for a POSIX queue that could not be opened.
pub fn refused(namespace: &Namespace, name: &Name, error: OpenError) -> Failure {
    let rights = match error {
        OpenError::NotFound => return elsewhere::no_name(namespace, name),
        OpenError::PermissionDenied => of_file(namespace.path(), name),
        _ => None,
    };
    match rights {
        Some(rights) => Failure::new(Code::Failed, format_args!("{name}: {}", rights.denied())),
        None => Failure::of(name, error),
    }
}

/// Returns the failure for a System V queue that could not be opened.
pub fn refused_labelled(namespace: &Namespace, label: Label, error: sysv::OpenError) -> Failure {
    let why = match error {
        sysv::OpenError::NotFound | sysv::OpenError::NoSuchId => {
            return elsewhere::no_label(namespace, label, &error);
        }
        sysv::OpenError::PermissionDenied => denied(namespace, label),
        _ => None,
    };
    match why {
        Some(why) => Failure::new(Code::Failed, format_args!("{label}: {why}")),
        None => Failure::of(label, error),
    }
}

/// Explains that the mode of a System V queue denies an access. Returns None if the list of queues does not have the queue.
pub fn denied(namespace: &Namespace, label: Label) -> Option<String> {
    let mut queues = sysv::list(namespace).ok()?.into_iter();
    let queue = queues.find(|queue| match label {
        Label::Key(key, _) => queue.key == key,
        Label::Id(id) => queue.id == id,
    })?;
    let (mode, uid) = (queue.mode, queue.uid);
    Some(Rights { mode, uid }.denied())
}

/// The mode and the owner of a queue.
struct Rights {
    mode: u32,
    uid: u32,
}

impl Rights {
    fn denied(&self) -> String {
        let (mode, owner) = (self.mode, Owners::new().name(self.uid));
        let advice = match self.uid {
            0 => "run the command as root".to_owned(),
            _ => format!("ask {owner}, or run the command as {owner} or root"),
        };
        format!("permission denied (mode {mode:04o}, owner {owner}); {advice}")
    }
}

/// Reads the mode and the owner of a queue's file. Returns None for a queue with --remove-on-last-close, because the file of such a queue is in its
/// own directory.
fn of_file(namespace: &Path, name: &Name) -> Option<Rights> {
    let path = namespace.join("mq").join(name.file()?);
    let stat = rustix::fs::lstat(path).ok()?;
    let is_file = FileType::from_raw_mode(stat.st_mode).is_file();
    is_file.then_some(Rights {
        mode: stat.st_mode & 0o777,
        uid: stat.st_uid,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_the_one_to_ask() {
        let told = |uid| Rights { mode: 0o600, uid }.denied();
        let owner = 4_294_967_000;
        assert_eq!(
            told(owner),
            format!(
                "permission denied (mode 0600, owner {owner}); ask {owner}, or run the command as {owner} or root"
            )
        );
        assert!(told(0).ends_with("owner root); run the command as root"));
    }
}
