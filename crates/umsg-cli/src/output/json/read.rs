//! Parses a message from a line of JSON.

use data_encoding::BASE64;
use serde::Deserialize;

use crate::inlet::Rank;

/// A message that was parsed from a line of JSON. The line has the form of [`super::Message`].
#[derive(Debug, PartialEq, Eq)]
pub struct Read {
    pub rank: Option<Rank>,
    pub data: Vec<u8>,
}

/// The fields of a message that are sent. Other fields are ignored.
#[derive(Deserialize)]
struct Fields {
    priority: Option<u32>,
    #[serde(rename = "type")]
    mtype: Option<i64>,
    size: Option<usize>,
    #[serde(default)]
    encoding: Encoding,
    data: String,
}

#[derive(Deserialize, Default)]
enum Encoding {
    #[default]
    #[serde(rename = "utf-8")]
    Text,
    #[serde(rename = "base64")]
    Base64,
}

impl Read {
    /// Parses a line. Fails with the reason.
    pub fn of(line: &[u8]) -> Result<Read, String> {
        let fields: Fields = serde_json::from_slice(line)
            .map_err(|error| format!("not a message of `umsg recv --json`: {error}"))?;
        let data = match fields.encoding {
            Encoding::Text => fields.data.into_bytes(),
            Encoding::Base64 => BASE64
                .decode(fields.data.as_bytes())
                .map_err(|error| format!("\"data\" is not base64: {error}"))?,
        };
        if let Some(size) = fields.size.filter(|&size| size != data.len()) {
            let there = data.len();
            return Err(format!(
                "\"size\" is {size}, but \"data\" has {there} bytes; receive the message without --truncate"
            ));
        }
        let rank = match (fields.priority, fields.mtype) {
            (Some(priority), _) if priority > 32_767 => {
                return Err("\"priority\" must be from 0 to 32767".to_owned());
            }
            (_, Some(mtype)) if mtype < 1 => return Err("\"type\" must be from 1 up".to_owned()),
            (Some(_), Some(_)) => {
                return Err("a message can't have both \"priority\" and \"type\"".to_owned());
            }
            (priority, mtype) => priority.map(Rank::Priority).or(mtype.map(Rank::Type)),
        };
        Ok(Read { rank, data })
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::Data;
    use super::*;

    #[test]
    fn a_printed_message_is_read_as_it_was() {
        for bytes in [&b"text\n"[..], b"\xff\0", b""] {
            let printed = serde_json::to_string(&Data::of(bytes)).unwrap();
            let line = printed.replacen('{', "{\"priority\":3,\"queue\":\"/q\",", 1);
            let read = Read::of(line.as_bytes()).unwrap();
            let rank = Some(Rank::Priority(3));
            assert_eq!(
                read,
                Read {
                    rank,
                    data: bytes.to_owned()
                }
            );
        }
        for wrong in [
            "",
            "{}",
            "[]",
            r#"{"data":"x","encoding":"base64"}"#,
            r#"{"data":"x","encoding":"latin-1"}"#,
            r#"{"data":"x","size":2}"#,
            r#"{"data":"x","priority":32768}"#,
            r#"{"data":"x","type":0}"#,
            r#"{"data":"x","type":1,"priority":1}"#,
            r#"{"data":"x"} y"#,
        ] {
            assert!(Read::of(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
