//! The declaration of bridges: a TOML file, or the flags of one bridge.
//!
//! ```
//! let text = r#"
//!     [server]
//!     url = "tls://nats.example.net"
//!     credentials_file = "/etc/umsg/bridge.creds"
//!
//!     [[bridge]]
//!     name = "orders"
//!     direction = "export"
//!     queue = "/orders"
//!     stream = "ORDERS"
//!     subject = "orders"
//! "#;
//! let config = umsg_bridge::config::Config::parse(text).unwrap();
//! assert_eq!(config.bridges[0].window, 512);
//! ```

mod end;
mod rules;
mod values;

pub use end::End;
pub use rules::MOST_MESSAGES;
pub use values::{Pause, Size};

use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// The configuration of a process: its bridges, and their common settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The servers, and the way to sign in.
    #[serde(default)]
    pub server: Server,
    /// The directory for the window files and the state files of the bridges. The default is `bridge.UID` in the namespace.
    pub state_dir: Option<PathBuf>,
    /// The bridges.
    #[serde(default, rename = "bridge")]
    pub bridges: Vec<Bridge>,
}

/// The servers, and the way to sign in. Secrets are in files or in the environment, never here.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "a table of settings: write [server]"
)]
pub struct Server {
    /// The URL of one server, or the URLs of a cluster: `nats://host:4222`, `tls://host:4222`.
    #[serde(deserialize_with = "values::one_or_more")]
    pub url: Vec<String>,
    /// A credentials file made by `nsc`, with a JWT and a seed.
    pub credentials_file: Option<PathBuf>,
    /// A file with the seed of an nkey (`SU...`).
    pub nkey_file: Option<PathBuf>,
    /// A file with a token.
    pub token_file: Option<PathBuf>,
    /// The environment variable that contains the token.
    pub token_env: Option<String>,
    /// The user that signs in with a password.
    pub user: Option<String>,
    /// A file with the password.
    pub password_file: Option<PathBuf>,
    /// The environment variable that contains the password.
    pub password_env: Option<String>,
    /// True to require TLS, as a `tls://` URL does.
    pub tls: bool,
    /// The certificates of further certificate authorities, in addition to those of the system.
    pub ca_file: Option<PathBuf>,
    /// A file with the certificate of this client.
    pub certificate_file: Option<PathBuf>,
    /// A file with the private key of the client's certificate.
    pub key_file: Option<PathBuf>,
    /// The JetStream domain, for a leaf node.
    pub domain: Option<String>,
    /// The time that a publish or a request waits for its answer.
    pub timeout: Pause,
}

impl Default for Server {
    fn default() -> Server {
        Server {
            url: vec!["nats://127.0.0.1:4222".to_owned()],
            credentials_file: None,
            nkey_file: None,
            token_file: None,
            token_env: None,
            user: None,
            password_file: None,
            password_env: None,
            tls: false,
            ca_file: None,
            certificate_file: None,
            key_file: None,
            domain: None,
            timeout: Pause(Duration::from_secs(5)),
        }
    }
}

/// The direction of a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Messages go from the queue to the stream.
    Export,
    /// Messages go from the stream to the queue.
    Import,
    /// Messages go from the queue `inbox` to the stream, and then to `queue`. A message stays in the stream until a receiver has acknowledged it.
    Durable,
}

/// The treatment of a message that its destination, the queue or the stream, can never take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnReject {
    /// The message stays where it is, and the bridge tries it again later.
    #[default]
    Wait,
    /// The message goes to the queue `dead_letter`.
    DeadLetter,
}

/// The tokens at the end of the subject of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SubjectBy {
    /// The subject gets no further token.
    #[default]
    Nothing,
    /// `.p.PRIORITY`, of a POSIX queue.
    Priority,
    /// `.t.TYPE`, of a System V queue.
    Type,
}

/// The machines that get a message of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// Of all machines with a bridge of this name, one gets each message.
    #[default]
    Share,
    /// Every machine gets each message.
    Mirror,
}

/// A declared bridge.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table of settings: write [[bridge]]"
)]
pub struct Bridge {
    /// The name in logs, states and metrics: letters, digits, `-` and `_`.
    pub name: String,
    /// The direction of the messages.
    pub direction: Direction,
    /// The local end: `/orders`, `key:0x1234`, `id:5`, `ring:/jobs`, `kernel:/orders`.
    pub queue: End,
    /// The queue of a durable bridge to which programs send.
    pub inbox: Option<End>,
    /// The name of the stream.
    pub stream: String,
    /// The subject of the messages of an export, or the filter of an import. By default, the filter passes all subjects of the stream.
    pub subject: Option<String>,
    /// The tokens at the end of the subject of an export.
    #[serde(default)]
    pub subject_by: SubjectBy,
    /// The subject for replies: the value of the header `Umsg-Reply-To` of exported messages.
    pub reply_to: Option<String>,
    /// True if the first line of local messages is a subject, see [`envelope`](crate::envelope).
    #[serde(default)]
    pub envelope: bool,
    /// The maximum number of unacknowledged messages: publishes of an export, or deliveries of an import.
    #[serde(default = "values::window")]
    pub window: usize,
    /// The treatment of a message that its destination can never take: the message waits, or goes to the dead-letter queue.
    #[serde(default)]
    pub on_reject: OnReject,
    /// The local POSIX queue for messages that the destination can never take, and for expired messages of an import.
    pub dead_letter: Option<String>,
    /// The machines that get a message of an import.
    #[serde(default)]
    pub delivery: Delivery,
    /// The durable consumer of an import. The default is `umsg-NAME`, for `mirror` with the host's name.
    pub consumer: Option<String>,
    /// The time after which the server delivers an unacknowledged message of an import again.
    #[serde(default = "values::ack_wait")]
    pub ack_wait: Pause,
    /// The number of stream sequences for which an import recognises redeliveries.
    #[serde(default = "values::dedupe")]
    pub dedupe: usize,
    /// The stream that the bridge makes if the stream is missing.
    pub create_stream: Option<NewStream>,
    /// The local queue that the bridge makes if the queue is missing.
    pub create_queue: Option<NewQueue>,
}

/// A stream that the bridge makes if the stream is missing.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table of settings, such as { max_age = \"7d\" }, or {} for the defaults"
)]
pub struct NewStream {
    /// The subjects of the stream. The default is the bridge's subject and all subjects below it.
    #[serde(default)]
    pub subjects: Vec<String>,
    /// `limits`, `work-queue` or `interest`.
    #[serde(default)]
    pub retention: Retention,
    /// `file` or `memory`.
    #[serde(default)]
    pub storage: Storage,
    /// The number of servers that store each message.
    #[serde(default = "values::one")]
    pub replicas: usize,
    /// The maximum number of messages.
    pub max_messages: Option<i64>,
    /// The maximum number of bytes.
    pub max_bytes: Option<Size>,
    /// The maximum age of a message.
    pub max_age: Option<Pause>,
    /// The time in which JetStream recognises repeated messages.
    pub duplicate_window: Option<Pause>,
}

/// The retention policy of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Retention {
    #[default]
    Limits,
    WorkQueue,
    Interest,
}

/// The place in which a stream keeps messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Storage {
    #[default]
    File,
    Memory,
}

/// A queue that the bridge makes if the queue is missing.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table of settings, such as { max_messages = 1000 }, or {} for the defaults"
)]
pub struct NewQueue {
    /// The maximum number of messages; for a ring, the number of entries.
    #[serde(default = "values::messages")]
    pub max_messages: u32,
    /// The maximum length of a message; for a ring, of a payload.
    #[serde(default = "values::message_size")]
    pub message_size: Size,
}

/// Returns the number of the line, its setting and the parser's message, in words of the configuration. The parser's own error also shows the text of
/// the line, which may contain a secret by mistake.
fn in_words(text: &str, error: &toml::de::Error) -> String {
    let mut why = error.message().to_owned();
    let words = [
        ("expected a sequence", "expected a list"),
        ("expected usize", "expected a whole number"),
        ("expected u32", "expected a whole number"),
        ("expected i64", "expected a whole number"),
        ("expected a string", "expected a string in quotes"),
        ("expected a boolean", "expected true or false"),
        ("duplicate key", "the setting is given twice"),
    ];
    for (parsers, ours) in words {
        why = why.replace(parsers, ours);
    }
    let span = error.span();
    let Some(before) = span.and_then(|span| text.get(..span.start)) else {
        return why;
    };
    let line = before.matches('\n').count();
    let written = text.lines().nth(line).unwrap_or_default();
    if written.trim() == "[bridge]" {
        return format!("line {}: write [[bridge]], with two brackets", line + 1);
    }
    let setting = setting_of(written);
    let setting = setting.map_or(String::new(), |name| format!(", `{name}`"));
    format!("line {}{setting}: {why}", line + 1)
}

/// Returns the name of the setting in a line, without its value, which may be a secret.
fn setting_of(line: &str) -> Option<&str> {
    let (name, _) = line.split_once('=')?;
    let name = name.trim();
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (!name.is_empty() && name.chars().all(fits)).then_some(name)
}

impl Config {
    /// Reads a configuration and checks it as a whole.
    ///
    /// # Errors
    /// The error is a sentence that names the line or the bridge, and the setting.
    pub fn parse(text: &str) -> Result<Config, String> {
        let config: Config = toml::from_str(text).map_err(|error| in_words(text, &error))?;
        rules::check(&config)?;
        Ok(config)
    }

    /// Checks a configuration that was made from flags.
    ///
    /// # Errors
    /// The errors of [`parse`](Self::parse).
    pub fn checked(self) -> Result<Config, String> {
        rules::check(&self)?;
        Ok(self)
    }

    /// Returns the exports and the imports. A durable bridge consists of an export and an import.
    #[must_use]
    pub fn one_way(&self) -> Vec<Bridge> {
        self.bridges.iter().flat_map(Bridge::one_way).collect()
    }
}

impl Default for NewStream {
    fn default() -> NewStream {
        NewStream {
            subjects: Vec::new(),
            retention: Retention::default(),
            storage: Storage::default(),
            replicas: values::one(),
            max_messages: None,
            max_bytes: None,
            max_age: None,
            duplicate_window: None,
        }
    }
}

impl Default for NewQueue {
    fn default() -> NewQueue {
        NewQueue {
            max_messages: values::messages(),
            message_size: values::message_size(),
        }
    }
}

impl Bridge {
    /// Returns a bridge whose other settings have the defaults of the configuration file.
    #[must_use]
    pub fn new(name: &str, direction: Direction, (queue, stream): (End, &str)) -> Bridge {
        Bridge {
            name: name.to_owned(),
            direction,
            queue,
            inbox: None,
            stream: stream.to_owned(),
            subject: None,
            subject_by: SubjectBy::default(),
            reply_to: None,
            envelope: false,
            window: values::window(),
            on_reject: OnReject::default(),
            dead_letter: None,
            delivery: Delivery::default(),
            consumer: None,
            ack_wait: values::ack_wait(),
            dedupe: values::dedupe(),
            create_stream: None,
            create_queue: None,
        }
    }

    /// Returns the exports and imports of this bridge: one, or for a durable bridge an export and an import.
    #[must_use]
    pub fn one_way(&self) -> Vec<Bridge> {
        let Direction::Durable = self.direction else {
            return vec![self.clone()];
        };
        let mut both = self.clone();
        if let Some(stream) = &mut both.create_stream {
            // A message leaves the stream when a local receiver has acknowledged it.
            stream.retention = Retention::WorkQueue;
            if let (true, Some(subject)) = (stream.subjects.is_empty(), &self.subject) {
                stream.subjects = vec![subject.clone(), format!("{subject}.>")];
            }
        }
        let mut export = both.clone();
        export.name = format!("{}.in", self.name);
        export.direction = Direction::Export;
        export.queue = self.inbox.clone().unwrap_or_else(|| self.queue.clone());
        let mut import = both;
        import.name = format!("{}.out", self.name);
        import.subject = None;
        import.consumer = Some(self.consumer_name(""));
        vec![export, import]
    }

    /// Returns the name of the durable consumer.
    #[must_use]
    pub fn consumer_name(&self, host: &str) -> String {
        let fitting = |name: &str| name.replace(['.', '*', '>', ' ', '/', '\\'], "_");
        match (&self.consumer, self.delivery) {
            (Some(consumer), _) => consumer.clone(),
            (None, Delivery::Share) => fitting(&format!("umsg-{}", self.name)),
            (None, Delivery::Mirror) => fitting(&format!("umsg-{}-{host}", self.name)),
        }
    }

    /// Returns whether messages stay in the stream until a local receiver has acknowledged them.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.direction == Direction::Durable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str =
        "[[bridge]]\nname='a'\ndirection='export'\nqueue='/q'\nstream='S'\nsubject='s'\n";

    #[test]
    fn an_unknown_setting_names_its_line() {
        let error = Config::parse(&format!("{WHOLE}windows=3\n")).unwrap_err();
        assert!(
            error.contains("line 7") && error.contains("windows"),
            "{error}"
        );
    }

    #[test]
    fn a_value_of_another_kind_is_explained() {
        for (setting, why) in [
            (
                "window='x'",
                "line 7, `window`: invalid type: string \"x\", expected a whole number",
            ),
            (
                "envelope=1",
                "line 7, `envelope`: invalid type: integer `1`, expected true or false",
            ),
            (
                "create_stream=true",
                "expected a table of settings, such as { max_age = \"7d\" }",
            ),
            (
                "create_queue=true",
                "expected a table of settings, such as { max_messages = 1000 }",
            ),
            (
                "ack_wait=30",
                "line 7, `ack_wait`: expected a time in quotes, such as \"30s\"",
            ),
            (
                "create_stream={subjects='a'}",
                "line 7, `create_stream`: invalid type: string \"a\", expected a list",
            ),
            ("stream='T'", "line 7, `stream`: the setting is given twice"),
        ] {
            let error = Config::parse(&format!("{WHOLE}{setting}\n")).unwrap_err();
            assert!(error.contains(why), "{setting}: {error}");
        }
        let error = Config::parse(&WHOLE.replace("[[bridge]]", "[bridge]")).unwrap_err();
        assert!(
            error.contains("line 1: write [[bridge]], with two brackets"),
            "{error}"
        );
    }

    #[test]
    fn an_error_does_not_show_its_line() {
        let text = format!("[server]\npassword='hunter2'\n{WHOLE}");
        let error = Config::parse(&text).unwrap_err();
        assert!(
            error.contains("line 2") && error.contains("password"),
            "{error}"
        );
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[test]
    fn a_durable_queue_is_an_export_and_an_import() {
        let durable = WHOLE.replace("'export'", "'durable'\ninbox='/q.in'");
        let parts = Config::parse(&durable).unwrap().one_way();
        let names: Vec<_> = parts
            .iter()
            .map(|part| (&*part.name, part.queue.to_string()))
            .collect();
        assert_eq!(
            names,
            [("a.in", "/q.in".to_owned()), ("a.out", "/q".to_owned())]
        );
        assert_eq!(parts[1].consumer_name("host"), "umsg-a");
    }
}
