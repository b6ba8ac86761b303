//! Envelopes, which carry the address of a reply: the first line of a local message is a NATS subject.
//!
//! A message in a queue has no field for the address of a reply. An import with `envelope` writes the reply's subject as a line before the message.
//! The local program that answers the message puts the same line before its reply. An export with `envelope` publishes the reply to that subject.

use bytes::Bytes;

/// Puts the subject of the reply before a message. An empty line means that no reply is expected.
#[must_use]
pub fn wrap(reply_to: &str, message: &[u8]) -> Bytes {
    let mut wrapped = Vec::with_capacity(reply_to.len() + 1 + message.len());
    wrapped.extend_from_slice(reply_to.as_bytes());
    wrapped.push(b'\n');
    wrapped.extend_from_slice(message);
    wrapped.into()
}

/// The maximum length of a subject, in bytes. A server ends the connection at a line that is longer than `max_control_line`, 4,096 bytes by default.
const LONGEST: usize = 1024;

/// Splits a message into its subject and its contents. The subject must be `below` or a subject under `below`: a local process must not reach other
/// subjects.
///
/// # Errors
/// The error is a sentence that names the fault of the envelope.
pub fn unwrap(message: &Bytes, below: &str) -> Result<(String, Bytes), String> {
    let end = message.iter().position(|byte| *byte == b'\n');
    let line = end.and_then(|end| std::str::from_utf8(&message[..end]).ok());
    let (Some(end), Some(subject)) = (end, line) else {
        return Err("the message has no envelope: its first line must be a subject".to_owned());
    };
    if subject.len() > LONGEST {
        return Err(format!(
            "the envelope's subject has {} bytes, more than {LONGEST}",
            subject.len()
        ));
    }
    let rest = subject.strip_prefix(below);
    let is_below = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let is_subject = subject
        .split('.')
        .all(|token| !token.is_empty() && !token.bytes().any(|byte| b"*> \t\r".contains(&byte)));
    match is_below && is_subject {
        true => Ok((subject.to_owned(), message.slice(end + 1..))),
        false => Err(format!(
            "the envelope's subject {subject:?} must be {below}, or begin with {below} and a dot, see `subject`"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_comes_back_with_the_message() {
        let wrapped = wrap("replies.a", b"one\ntwo");
        let (subject, message) = unwrap(&wrapped, "replies").unwrap();
        assert_eq!((&*subject, &message[..]), ("replies.a", &b"one\ntwo"[..]));
        assert_eq!(
            unwrap(&wrap("replies", b""), "replies").unwrap().1,
            Bytes::new()
        );
    }

    #[test]
    fn a_subject_elsewhere_is_refused() {
        for bad in [
            "other",
            "repliesx",
            "replies.*",
            "replies.>",
            "replies..a",
            "",
            "replies.a b",
        ] {
            assert!(unwrap(&wrap(bad, b"m"), "replies").is_err(), "{bad}");
        }
        let long = format!("replies.{}", "a".repeat(LONGEST));
        assert!(unwrap(&wrap(&long, b"m"), "replies").is_err());
        assert!(unwrap(&Bytes::from_static(b"no line"), "replies").is_err());
        assert!(unwrap(&Bytes::from_static(b"\xff\n"), "replies").is_err());
    }
}
