//! The connection to the servers, and the secrets of the connection.
//!
//! Secrets are read from files and from the environment at each connection, so that the next connection uses a changed secret. Secrets are in no
//! message, no log, no state and no command line.

use crate::backoff;
use crate::config::Server;
use crate::log::{self, Level};
use crate::status::Board;
use crate::{reason, window};
use async_nats::connection::State;
use async_nats::{Auth, AuthError, Client, ConnectOptions, Event};
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;

/// The state of a bridge without a connection, in words.
pub const WAITING: &str = "waiting for the server";

/// The interval at which the bridge checks the state of the client. The client drops events if many come at once, so the bridge can't rely on events
/// alone.
const LOOK: Duration = Duration::from_millis(300);

/// The connection of a bridge.
#[derive(Clone, Debug)]
pub struct Link {
    /// The client, which connects again by itself after a failure.
    pub client: Client,
    /// A channel whose number changes with each event of the connection. The sender of the channel lives as long as the client's tasks.
    events: watch::Receiver<u64>,
    /// The servers' last refusal that no call returns as its error, such as a missing permission.
    refusal: Arc<Mutex<Option<String>>>,
}

impl Link {
    /// Makes the link of a client. The client's event callback owns the sender of `events`, and sends a new value at each event.
    #[must_use]
    pub fn new(client: Client, events: watch::Receiver<u64>) -> Link {
        Link {
            client,
            events,
            refusal: Arc::default(),
        }
    }

    /// Returns the last refusal of the servers, and removes it from the link.
    pub fn take_refusal(&self) -> Option<String> {
        self.refusal.lock().ok()?.take()
    }

    /// Returns the last refusal of the servers.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        self.refusal.lock().ok()?.clone()
    }

    /// Returns whether there is a connection.
    #[must_use]
    pub fn holds(&self) -> bool {
        // A client that has ended still reports its last state.
        self.is_alive() && self.client.connection_state() == State::Connected
    }

    /// Returns the number of connections so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        // Relaxed: the number is only compared with earlier values, and publishes no other data.
        self.client.statistics().connects.load(Ordering::Relaxed)
    }

    /// Returns whether the client still tries to connect.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.events.has_changed().is_ok()
    }

    /// Waits for an event, or until the next check of the client's state.
    async fn event_or_look(&mut self) -> Result<(), String> {
        match tokio::time::timeout(LOOK, self.events.changed()).await {
            Ok(Err(_)) => Err(ENDED.to_owned()),
            Ok(Ok(())) | Err(_) => Ok(()),
        }
    }

    /// Waits until there is a connection.
    ///
    /// # Errors
    /// The error is a sentence: the client has ended, and does not connect again.
    pub async fn wait(&mut self) -> Result<(), String> {
        while !self.holds() {
            self.event_or_look().await?;
        }
        Ok(())
    }

    /// Waits until the number of connections differs from `connections`, or until there is no connection.
    ///
    /// # Errors
    /// The error of [`wait`](Self::wait).
    pub async fn changed(&mut self, connections: u64) -> Result<(), String> {
        while self.holds() && self.connections() == connections {
            self.event_or_look().await?;
        }
        Ok(())
    }

    /// Waits until there is a connection. Shows on the board why there is none.
    ///
    /// # Errors
    /// The error of [`wait`](Self::wait).
    pub async fn wait_shown(&self, board: &Board) -> Result<(), String> {
        let mut link = self.clone();
        while !link.holds() {
            board.become_(WAITING, link.refusal());
            link.event_or_look().await?;
        }
        Ok(())
    }
}

/// The error of a bridge whose client does not connect again. The bridge then makes a new client.
pub const ENDED: &str = "server: the connection has ended. The bridge connects again";

/// Returns the name of the setting that identifies the user to the server.
fn identity(server: &Server) -> &'static str {
    let ways = [
        (server.credentials_file.is_some(), "credentials_file"),
        (server.nkey_file.is_some(), "nkey_file"),
        (server.token_file.is_some(), "token_file"),
        (server.token_env.is_some(), "token_env"),
        (server.password_file.is_some(), "password_file"),
        (server.password_env.is_some(), "password_env"),
    ];
    let way = ways.iter().find(|way| way.0);
    way.map_or("credentials_file (or another way to sign in)", |way| way.1)
}

/// Reads a secret.
fn read_secret(setting: &str, path: &Path) -> Result<String, String> {
    match std::fs::read_to_string(path) {
        Ok(secret) if secret.trim().is_empty() => Err(format!(
            "server: `{setting}` {}: the file is empty",
            path.display()
        )),
        Ok(secret) => Ok(secret.trim().to_owned()),
        Err(error) => Err(format!("server: `{setting}` {}: {error}", path.display())),
    }
}

fn read_variable(setting: &str, name: &str) -> Result<String, String> {
    match std::env::var(name) {
        Ok(secret) if !secret.is_empty() => Ok(secret),
        _ => Err(format!(
            "server: `{setting}`: the environment has no {name}"
        )),
    }
}

/// Returns the two secrets between the marks of a credentials file: the JWT and the seed.
fn parts(credentials: &str) -> Option<(String, String)> {
    let mut lines = credentials.lines().map(str::trim);
    let mut after = |mark: &str| {
        lines.find(|line| line.starts_with("-----BEGIN") && line.contains(mark))?;
        let line = lines.find(|line| !line.is_empty())?;
        Some(line.to_owned())
    };
    Some((after("USER JWT")?, after("USER NKEY SEED")?))
}

/// Reads the identity of this client, and signs the challenge that the server sent.
///
/// # Errors
/// The error is a sentence that names the setting.
pub fn sign_in(server: &Server, nonce: &[u8]) -> Result<Auth, String> {
    let mut auth = Auth::new();
    let mut seed = None;
    if let Some(path) = &server.credentials_file {
        let text = read_secret("credentials_file", path)?;
        let Some((jwt, key)) = parts(&text) else {
            return Err(no_credentials(path));
        };
        let pair = nkeys::KeyPair::from_seed(&key).map_err(|_| no_credentials(path))?;
        auth.jwt = Some(jwt);
        seed = Some(pair);
    }
    if let Some(path) = &server.nkey_file {
        // The error names the setting only: the parser's error may show parts of the file.
        let pair = nkeys::KeyPair::from_seed(&read_secret("nkey_file", path)?);
        let pair = pair.ok().filter(|pair| pair.public_key().starts_with('U'));
        let Some(pair) = pair else {
            return Err(format!(
                "server: `nkey_file` {}: the file does not contain the seed of a user, which begins with SU",
                path.display()
            ));
        };
        auth.nkey = Some(pair.public_key());
        seed = Some(pair);
    }
    if let Some(pair) = seed {
        let signed = pair.sign(nonce);
        auth.signature = Some(signed.map_err(|_| "server: the server's challenge can't be signed with the seed of `credentials_file` or `nkey_file`")?);
    }
    if let Some(path) = &server.token_file {
        auth.token = Some(read_secret("token_file", path)?);
    }
    if let Some(name) = &server.token_env {
        auth.token = Some(read_variable("token_env", name)?);
    }
    if let Some(user) = &server.user {
        auth.username = Some(user.clone());
        auth.password = match (&server.password_file, &server.password_env) {
            (Some(path), _) => Some(read_secret("password_file", path)?),
            (None, Some(name)) => Some(read_variable("password_env", name)?),
            (None, None) => None,
        };
    }
    Ok(auth)
}

fn no_credentials(path: &Path) -> String {
    format!(
        "server: `credentials_file` {}: the file is not a credentials file of nsc",
        path.display()
    )
}

/// Hashes the contents of all files of secrets and certificates. A changed hash shows that a file has changed.
///
/// # Errors
/// The error is a sentence that names the setting: a file can't be read, or is not a regular file.
pub fn fingerprint(server: &Server) -> Result<u64, String> {
    options(server)?;
    let files = [
        &server.credentials_file,
        &server.nkey_file,
        &server.token_file,
        &server.password_file,
        &server.ca_file,
        &server.certificate_file,
        &server.key_file,
    ];
    let read = |path: &Option<std::path::PathBuf>| {
        let path = path.as_ref()?;
        std::fs::read(path).ok()
    };
    let contents: Vec<Vec<u8>> = files
        .into_iter()
        .map(|path| read(path).unwrap_or_default())
        .collect();
    let contents: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
    Ok(window::key(&contents))
}

/// Makes the options of a connection.
///
/// # Errors
/// The error is a sentence that names the setting.
pub fn options(server: &Server) -> Result<ConnectOptions, String> {
    sign_in(server, b"")?;
    let own = server.clone();
    let options = ConnectOptions::with_auth_callback(move |nonce| {
        let signed = sign_in(&own, &nonce).map_err(AuthError::new);
        std::future::ready(signed)
    });
    tls(options, server)
}

fn tls(mut options: ConnectOptions, server: &Server) -> Result<ConnectOptions, String> {
    let files = [
        ("ca_file", &server.ca_file),
        ("certificate_file", &server.certificate_file),
        ("key_file", &server.key_file),
    ];
    for (setting, path) in files {
        let Some(path) = path else { continue };
        // Files are checked before the first connection: the client would report the error at each attempt, without the name of the setting.
        let text = std::fs::read(path);
        let text =
            text.map_err(|error| format!("server: `{setting}` {}: {error}", path.display()))?;
        if !text.windows(11).any(|part| part == b"-----BEGIN ") {
            return Err(format!(
                "server: `{setting}` {}: the file contains no PEM text",
                path.display()
            ));
        }
    }
    if let Some(path) = &server.ca_file {
        options = options.add_root_certificates(path.clone());
    }
    if let (Some(certificate), Some(key)) = (&server.certificate_file, &server.key_file) {
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    let secure = server.url.iter().any(|url| url.starts_with("tls://"));
    Ok(options.require_tls(server.tls || secure || server.ca_file.is_some()))
}

/// Connects in the background. A failed first attempt is repeated, as later attempts are.
///
/// # Errors
/// The error is a sentence that names the setting.
pub async fn connect(server: &Server, name: &str) -> Result<Link, String> {
    reason::listen();
    let (tell, events) = watch::channel(0);
    let refusal = Arc::new(Mutex::new(None));
    let noted = Arc::clone(&refusal);
    let explain = Explain {
        identity: identity(server),
        urls: server.url.join(", "),
    };
    let bridge = std::thread::current().name().unwrap_or("-").to_owned();
    let options = options(server)?
        .name(name)
        .retry_on_initial_connect()
        .max_reconnects(None)
        .request_timeout(Some(server.timeout.0))
        .reconnect_delay_callback(|attempts| backoff::after(attempts.min(u32::MAX as usize) as u32))
        .event_callback(move |event| {
            note(&event, &tell, &noted, &explain, &bridge);
            async {}
        });
    let client = options.connect(server.url.clone()).await;
    let client = client.map_err(|error| format!("server: `url`: {error}"))?;
    Ok(Link {
        client,
        events,
        refusal,
    })
}

/// The setting of the identity and the URLs of the servers, which the text of a connection error names.
struct Explain {
    identity: &'static str,
    urls: String,
}

impl Explain {
    /// Returns the text of an error, with the setting that caused the error.
    fn refusal(&self, event: &str) -> String {
        let (identity, urls) = (self.identity, &self.urls);
        let small = event.to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| small.contains(word));
        if has(&["permissions violation"]) {
            return format!("{event}: see the permissions of the user of `{identity}`");
        }
        if has(&[
            "authorization",
            "authentication",
            "signing nonce",
            "expired",
        ]) && !has(&["certificate"])
        {
            return format!("server: `{identity}`: the server refuses this user: {event}");
        }
        if has(&["tls", "certificate", "corrupt message"]) {
            return format!(
                "server: TLS: see `ca_file`, `certificate_file`, `tls` and `url` {urls}: {event}"
            );
        }
        format!("server: `url` {urls}: {event}")
    }
}

fn note(
    event: &Event,
    events: &watch::Sender<u64>,
    refusal: &Mutex<Option<String>>,
    explain: &Explain,
    bridge: &str,
) {
    let level = match event {
        Event::Connected => {
            // A refusal of an earlier attempt does not explain a later error.
            if let Ok(mut refusal) = refusal.lock() {
                *refusal = None;
            }
            events.send_modify(|count| *count += 1);
            Level::Info
        }
        Event::Disconnected | Event::Closed => {
            events.send_modify(|count| *count += 1);
            Level::Warning
        }
        Event::ServerError(_) | Event::ClientError(_) => {
            let why = match reason::take() {
                Some(reason) => with_reason(&event.to_string(), &reason),
                None => event.to_string(),
            };
            if let Ok(mut refusal) = refusal.lock() {
                *refusal = Some(explain.refusal(&why));
            }
            return log::event(Level::Error, bridge, "server", &[("is", &why)]);
        }
        _ => Level::Warning,
    };
    log::event(level, bridge, "server", &[("is", event)]);
}

/// Adds the reason to the text of an event. Words that end the event and begin the reason appear once.
fn with_reason(event: &str, reason: &str) -> String {
    let starts = std::iter::once(0).chain(event.match_indices(": ").map(|(at, _)| at + 2));
    let mut common = starts.filter(|at| reason.starts_with(&event[*at..]));
    match common.next() {
        Some(at) => format!("{}{reason}", &event[..at]),
        None => format!("{event}: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_and_its_reason_say_nothing_twice() {
        let refused = "IO error: Connection refused (os error 111)";
        for (event, whole) in [
            ("client error: nats: IO error", "client error: nats: "),
            ("IO error", ""),
            (
                "client error: nats: TLS error",
                "client error: nats: TLS error: ",
            ),
        ] {
            assert_eq!(with_reason(event, refused), format!("{whole}{refused}"));
        }
    }

    fn refused(change: impl FnOnce(&mut Server)) -> String {
        let mut server = Server::default();
        change(&mut server);
        options(&server).map(|_| ()).unwrap_err()
    }

    #[test]
    fn a_bad_secret_names_the_setting_and_stays_secret() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("secret");
        std::fs::write(&path, "hunter2\n").unwrap();
        let file = Some(path.clone());
        for (why, setting) in [
            (
                refused(|server| server.credentials_file = file.clone()),
                "`credentials_file`",
            ),
            (
                refused(|server| server.nkey_file = file.clone()),
                "`nkey_file`",
            ),
            (refused(|server| server.ca_file = file.clone()), "`ca_file`"),
            (
                refused(|server| server.token_file = Some(home.path().join("missing"))),
                "`token_file`",
            ),
            (
                refused(|server| server.token_env = Some("UMSG_NOT_THERE".to_owned())),
                "`token_env`",
            ),
        ] {
            assert!(why.contains(setting), "{why}");
            assert!(!why.contains("hunter2"), "{why}");
        }
        std::fs::write(&path, " \n").unwrap();
        assert!(refused(|server| server.token_file = file.clone()).contains("empty"));
    }
}
