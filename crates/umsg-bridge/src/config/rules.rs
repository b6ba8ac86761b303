//! The rules for settings that depend on each other.

use async_nats::ServerAddr;

use super::{Bridge, Config, Delivery, Direction, End, NewQueue, OnReject, Retention, Server};
use super::{NewStream, SubjectBy};
use crate::local::FIELDS;

/// Checks a configuration.
///
/// # Errors
/// The error is a sentence about the first broken rule, with the bridge and the setting.
pub fn check(config: &Config) -> Result<(), String> {
    check_server(&config.server)?;
    if config
        .state_dir
        .as_ref()
        .is_some_and(|path| path.as_os_str().is_empty())
    {
        return Err("`state_dir` is empty: name a directory, or remove the setting".to_owned());
    }
    if config.bridges.is_empty() {
        return Err("no bridge is declared: write a table [[bridge]]".to_owned());
    }
    for (n, bridge) in config.bridges.iter().enumerate() {
        check_bridge(bridge).map_err(|why| format!("bridge {:?}: {why}", bridge.name))?;
        if config.bridges[..n]
            .iter()
            .any(|other| other.name == bridge.name)
        {
            return Err(format!(
                "two bridges have the name {:?}: give each bridge a different `name`",
                bridge.name
            ));
        }
    }
    check_ends(config)
}

/// Checks that no message can circulate. Two exports of one queue are permitted, and share its messages. Two imports into one queue are
/// permitted, too.
fn check_ends(config: &Config) -> Result<(), String> {
    let parts = config.one_way();
    for export in parts
        .iter()
        .filter(|part| part.direction == Direction::Export)
    {
        for import in parts
            .iter()
            .filter(|part| part.direction != Direction::Export)
        {
            let may_meet = match (&export.subject, &import.subject) {
                (Some(subject), Some(filter)) => meets(subject, filter),
                _ => true,
            };
            if export.queue == import.queue && export.stream == import.stream && may_meet {
                return Err(format!(
                    "{:?} and {:?} send messages of {} in a circle: use two queues, or a `subject` for each direction",
                    export.name, import.name, export.queue
                ));
            }
        }
    }
    Ok(())
}

/// Returns whether messages with the export's subject, or with a subject below it, pass the filter of an import.
fn meets(subject: &str, filter: &str) -> bool {
    let mut words = subject.split('.');
    for word in filter.split('.') {
        match (word, words.next()) {
            (">", _) => return true,
            ("*", _) | (_, None) => {}
            (word, Some(known)) if word == known => {}
            _ => return false,
        }
    }
    words.next().is_none()
}

/// The rule for the names of streams, consumers and domains.
const IS_NAME: &str = "must be a name without dots, spaces, slashes and wildcards";

/// Returns whether JetStream accepts a text as the name of a stream, a consumer or a domain.
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['.', '*', '>', ' ', '/', '\\', '\t', '\n', '\r', '\0'])
}

/// Returns whether a text is a subject or a filter: words with dots between them.
fn is_subject(subject: &str) -> bool {
    let is_space = |c: char| c.is_whitespace() || c == '\0';
    !subject.contains(is_space) && !subject.split('.').any(str::is_empty)
}

fn check_server(server: &Server) -> Result<(), String> {
    if server.url.is_empty() {
        return Err(
            "server: `url` is empty: name a server, as in \"nats://127.0.0.1:4222\"".to_owned(),
        );
    }
    for url in &server.url {
        // A URL with a password would be in logs and in the list of processes.
        if url
            .split_once("://")
            .map_or(&**url, |(_, rest)| rest)
            .contains('@')
        {
            return Err("server: `url` must not contain a user or a password: use `credentials_file`, `nkey_file`, `token_file`, or `user` with `password_file`".to_owned());
        }
        let scheme = url.split_once("://").map(|(scheme, _)| scheme);
        if !matches!(scheme, None | Some("nats" | "tls")) {
            return Err(format!("server: `url` {url:?}: use nats:// or tls://"));
        }
        let address = url.parse::<ServerAddr>();
        if !address.is_ok_and(|address| !address.host().is_empty()) {
            // The text is not shown: it may be a user and a password without a host.
            return Err("server: `url` is not an address: write nats://HOST:PORT".to_owned());
        }
    }
    let ways = [
        ("credentials_file", server.credentials_file.is_some()),
        ("nkey_file", server.nkey_file.is_some()),
        ("token_file", server.token_file.is_some()),
        ("token_env", server.token_env.is_some()),
        ("user", server.user.is_some()),
    ];
    let used: Vec<_> = ways.iter().filter(|way| way.1).map(|way| way.0).collect();
    if used.len() > 1 {
        return Err(format!(
            "server: `{}` and `{}` are two ways to sign in: use one",
            used[0], used[1]
        ));
    }
    let has_password = server.password_file.is_some() || server.password_env.is_some();
    if server.user.is_some() != has_password {
        return Err(
            "server: `user` needs `password_file` or `password_env`, and they need `user`"
                .to_owned(),
        );
    }
    if server.password_file.is_some() && server.password_env.is_some() {
        return Err(
            "server: `password_file` and `password_env` both name the password: use one".to_owned(),
        );
    }
    if server.domain.as_deref().is_some_and(|name| !is_name(name)) {
        return Err(format!("server: `domain` {IS_NAME}"));
    }
    if server.certificate_file.is_some() != server.key_file.is_some() {
        return Err("server: `certificate_file` and `key_file` need each other".to_owned());
    }
    Ok(())
}

fn check_bridge(bridge: &Bridge) -> Result<(), String> {
    let is_word = |name: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        !name.is_empty() && name.len() <= 64 && name.bytes().all(fits)
    };
    if !is_word(&bridge.name) {
        return Err("`name` must have 1 to 64 letters, digits, - and _".to_owned());
    }
    if !is_name(&bridge.stream) {
        return Err(format!("`stream` {IS_NAME}"));
    }
    if bridge
        .consumer
        .as_deref()
        .is_some_and(|name| !is_name(name))
    {
        return Err(format!("`consumer` {IS_NAME}"));
    }
    if bridge
        .reply_to
        .as_deref()
        .is_some_and(|subject| !is_subject(subject) || subject.contains(['*', '>']))
    {
        return Err(
            "`reply_to` must be a subject without wildcards: words with dots between them"
                .to_owned(),
        );
    }
    if !(1..=65_536).contains(&bridge.window) {
        return Err("`window` must be 1 to 65536 messages".to_owned());
    }
    if !(1..=1 << 24).contains(&bridge.dedupe) || bridge.dedupe < bridge.window {
        return Err("`dedupe` must be from 1 to 16777216 sequence numbers of the stream, and not below `window`".to_owned());
    }
    if bridge.on_reject == OnReject::DeadLetter && bridge.dead_letter.is_none() {
        return Err(
            "`on_reject = \"dead-letter\"` needs `dead_letter`, the name of a queue".to_owned(),
        );
    }
    if let Some(name) = &bridge.dead_letter {
        let end = name.parse::<End>();
        if !matches!(end, Ok(End::Posix(_))) || end.as_ref() == Ok(&bridge.queue) {
            return Err(
                "`dead_letter` must be another POSIX queue, as in \"/orders.failed\"".to_owned(),
            );
        }
    }
    if let Some(new) = &bridge.create_queue {
        check_new_queue(bridge, new)?;
    }
    if let Some(new) = &bridge.create_stream {
        check_new_stream(bridge, new)?;
    }
    check_direction(bridge)
}

/// The maximum number of messages of a queue.
pub const MOST_MESSAGES: u32 = 1 << 20;
/// The maximum length of a message of a queue, in bytes.
const MOST_BYTES: u64 = 16 << 20;

fn check_new_queue(bridge: &Bridge, new: &NewQueue) -> Result<(), String> {
    if !(1..=MOST_MESSAGES).contains(&new.max_messages) {
        return Err(format!(
            "`create_queue`: `max_messages` must be 1 to {MOST_MESSAGES}, not {}",
            new.max_messages
        ));
    }
    // The spool queue of an export puts the fields of a ring's message before its payload.
    let fields = match bridge.direction == Direction::Export && !bridge.queue.leases() {
        true => FIELDS as u64,
        false => 0,
    };
    let most = MOST_BYTES - fields;
    if !(1..=most).contains(&new.message_size.0) {
        return Err(format!(
            "`create_queue`: `message_size` must be 1 to {most} bytes, not {}",
            new.message_size.0
        ));
    }
    Ok(())
}

/// Checks that a stream does not become full of acknowledged messages.
fn check_new_stream(bridge: &Bridge, new: &NewStream) -> Result<(), String> {
    // The stream of a durable queue removes acknowledged messages.
    let keeps = new.retention == Retention::Limits && !bridge.is_durable();
    // To JetStream, 0 and -1 are no limits.
    let limits_messages = new.max_messages.is_some_and(|most| most > 0);
    let limit = match (
        limits_messages,
        new.max_bytes.is_some_and(|most| most.0 > 0),
    ) {
        (true, _) => "max_messages",
        (false, true) => "max_bytes",
        (false, false) => return Ok(()),
    };
    match keeps && new.max_age.is_none() {
        true => Err(format!(
            "`create_stream`: `{limit}` needs `max_age`, because the stream keeps acknowledged messages. Set `max_age`, or `retention = \"work-queue\"`"
        )),
        false => Ok(()),
    }
}

fn check_direction(bridge: &Bridge) -> Result<(), String> {
    let sends = bridge.direction != Direction::Import;
    match (&bridge.subject, sends) {
        (None, true) => return Err("an export needs `subject`".to_owned()),
        (Some(subject), true) if subject.contains(['*', '>']) => {
            return Err("`subject` of an export must not have wildcards".to_owned());
        }
        (Some(subject), _) if !is_subject(subject) => {
            return Err("`subject` must be words with dots between them".to_owned());
        }
        _ => {}
    }
    let is_only = |is_used: bool, wanted: bool, setting: &str, of: &str| match is_used && !wanted {
        true => Err(format!(
            "`{setting}` is permitted only for {of}: remove the setting"
        )),
        false => Ok(()),
    };
    is_only(
        bridge.subject_by != SubjectBy::Nothing,
        sends,
        "subject_by",
        "exports",
    )?;
    is_only(bridge.reply_to.is_some(), sends, "reply_to", "exports")?;
    is_only(
        bridge.delivery == Delivery::Mirror,
        bridge.direction == Direction::Import,
        "delivery = \"mirror\"",
        "imports",
    )?;
    is_only(
        bridge.consumer.is_some(),
        bridge.direction != Direction::Export,
        "consumer",
        "imports",
    )?;
    is_only(
        bridge.inbox.is_some(),
        bridge.is_durable(),
        "inbox",
        "durable queues",
    )?;
    if bridge.is_durable() {
        let Some(End::Posix(inbox)) = &bridge.inbox else {
            return Err(
                "a durable queue needs `inbox`, the POSIX queue to which programs send".to_owned(),
            );
        };
        match &bridge.queue {
            End::Posix(queue) if queue != inbox => {}
            _ => {
                return Err(
                    "`queue` of a durable queue must be a POSIX queue other than `inbox`"
                        .to_owned(),
                );
            }
        }
    }
    match bridge.subject_by {
        SubjectBy::Type if !bridge.queue.is_sysv() => {
            Err("`subject_by = \"type\"` needs a System V queue".to_owned())
        }
        SubjectBy::Priority if !matches!(bridge.queue, End::Posix(_) | End::Kernel(_)) => {
            Err("`subject_by = \"priority\"` needs a POSIX queue".to_owned())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(server: &str, bridge: &str) -> String {
        let text = format!("[server]\n{server}\n[[bridge]]\nname='a'\nstream='S'\n{bridge}\n");
        Config::parse(&text).unwrap_err()
    }

    #[test]
    fn a_refusal_names_the_setting() {
        let export = "direction='export'\nqueue='/q'\nsubject='s'\n";
        for (server, bridge, setting) in [
            ("url='nats://u:p@h'", export, "`url`"),
            ("url='http://h'", export, "`url`"),
            ("url=[]", export, "`url`"),
            ("url=['']", export, "`url`"),
            ("url='nats://'", export, "`url`"),
            ("url='nats://h:99999'", export, "`url`"),
            ("domain='a b'", export, "`domain`"),
            (
                "user='u'\npassword_file='a'\npassword_env='b'",
                export,
                "`password_env`",
            ),
            ("", &format!("{export}delivery='mirror'"), "`delivery"),
            ("", &format!("{export}reply_to='a..b'"), "`reply_to`"),
            (
                "",
                "direction='import'\nqueue='/q'\nconsumer='a b'",
                "`consumer`",
            ),
            ("user='u'", export, "`password_file`"),
            ("nkey_file='a'\ntoken_env='b'", export, "`nkey_file`"),
            ("key_file='a'", export, "`certificate_file`"),
            ("", "direction='export'\nqueue='/q'", "`subject`"),
            (
                "",
                "direction='export'\nqueue='/q'\nsubject='a.*'",
                "`subject`",
            ),
            ("", &format!("{export}window=0"), "`window`"),
            ("", &format!("{export}dedupe=5"), "`dedupe`"),
            (
                "",
                &format!("{export}on_reject='dead-letter'"),
                "`dead_letter`",
            ),
            ("", &format!("{export}dead_letter='/q'"), "`dead_letter`"),
            ("", &format!("{export}subject_by='type'"), "`subject_by"),
            ("", &format!("{export}consumer='c'"), "`consumer`"),
            ("", &format!("{export}inbox='/i'"), "`inbox`"),
            (
                "",
                "direction='durable'\nqueue='/q'\nsubject='s'",
                "`inbox`",
            ),
            (
                "",
                "direction='import'\nqueue='/q'\nreply_to='s'",
                "`reply_to`",
            ),
            ("", "direction='import'\nqueue='q'", "is not a queue"),
            (
                "",
                &format!("{export}create_queue={{max_messages=0}}"),
                "`max_messages` must be 1 to 1048576",
            ),
            (
                "",
                &format!("{export}create_queue={{max_messages=1048577}}"),
                "`max_messages` must be 1 to 1048576",
            ),
            (
                "",
                &format!("{export}create_queue={{message_size=0}}"),
                "`message_size` must be 1 to 16777216",
            ),
            (
                "",
                &format!("{export}create_queue={{message_size=16777217}}"),
                "`message_size` must be 1 to 16777216",
            ),
            (
                "",
                "direction='export'\nqueue='ring:/r'\nsubject='s'\ncreate_queue={message_size='16M'}",
                "`message_size` must be 1 to 16777200",
            ),
            (
                "",
                &format!("{export}create_stream={{max_messages=5}}"),
                "`max_messages` needs `max_age`",
            ),
            (
                "",
                &format!("{export}create_stream={{max_bytes='1G'}}"),
                "`max_bytes` needs `max_age`",
            ),
        ] {
            let why = refusal(server, bridge);
            assert!(why.contains(setting), "{setting}: {why}");
            assert!(!why.contains("u:p"), "{why}");
        }
    }

    #[test]
    fn the_limits_of_queues_and_streams_are_accepted() {
        let export = "direction='export'\nqueue='/q'\nsubject='s'";
        for accepted in [
            &format!("{export}\ncreate_queue={{max_messages=1048576, message_size='16M'}}"),
            &format!("{export}\ncreate_stream={{max_messages=5, max_age='7d'}}"),
            &format!("{export}\ncreate_stream={{max_bytes='1G', retention='work-queue'}}"),
            "direction='durable'\nqueue='/q'\ninbox='/i'\nsubject='s'\ncreate_stream={max_messages=5}",
        ] {
            let text = format!("[[bridge]]\nname='a'\nstream='S'\n{accepted}\n");
            Config::parse(&text).unwrap();
        }
    }

    #[test]
    fn a_circle_is_refused_and_two_subjects_are_none() {
        let two = |filter: &str| {
            Config::parse(&format!(
                "[[bridge]]\nname='a'\nstream='S'\ndirection='export'\nqueue='/q'\nsubject='s.x'\n\
                 [[bridge]]\nname='b'\nstream='S'\ndirection='import'\nqueue='/q'\n{filter}"
            ))
        };
        assert!(two("").unwrap_err().contains("circle"));
        for circle in ["s.>", "s.*", "s.x", "*.x", ">", "s.x.p.*"] {
            assert!(two(&format!("subject='{circle}'")).is_err(), "{circle}");
        }
        for other in ["t.>", "s.y", "s"] {
            assert!(two(&format!("subject='{other}'")).is_ok(), "{other}");
        }
    }
}
