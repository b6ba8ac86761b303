//! The connection to the servers, and its secrets.
//!
//! Secrets are read from files and from the environment when the bridge connects. Secrets never appear in messages, logs, states or command lines.

use crate::backoff;
use crate::config::Server;
use crate::log::{self, Level};
use async_nats::{Client, ConnectOptions, Event};
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use tokio::sync::watch;

/// The connection that all bridges of a process share.
#[derive(Clone, Debug)]
pub struct Link {
    /// The client, which connects again by itself after a failure.
    pub client: Client,
    /// The number of connections so far, and whether the last connection still holds.
    pub connected: watch::Receiver<(u64, bool)>,
    /// The last refusal of the servers that no call returns, such as a missing permission.
    pub refusal: Arc<Mutex<Option<String>>>,
    /// The setting from which the user's identity comes.
    pub identity: &'static str,
}

impl Link {
    /// Returns the last refusal of the servers, and forgets it.
    pub fn take_refusal(&self) -> Option<String> {
        self.refusal.lock().ok()?.take()
    }

    /// Waits until there is a connection.
    pub async fn wait(&mut self) {
        // The sender lives as long as the client.
        let _ = self.connected.wait_for(|(_, holds)| *holds).await;
    }
}

/// Returns the setting from which the user's identity comes.
fn identity(server: &Server) -> &'static str {
    let ways = [
        (server.credentials_file.is_some(), "credentials_file"),
        (server.nkey_file.is_some(), "nkey_file"),
        (server.token_file.is_some(), "token_file"),
        (server.token_env.is_some(), "token_env"),
        (server.user.is_some(), "user"),
    ];
    let way = ways.iter().find(|way| way.0);
    way.map_or("credentials_file (or another way to sign in)", |way| way.1)
}

/// Reads a secret of one line.
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

/// Makes the options of a connection.
///
/// # Errors
/// The error is a sentence that names the setting.
pub fn options(server: &Server) -> Result<ConnectOptions, String> {
    let mut options = ConnectOptions::new();
    if let Some(path) = &server.credentials_file {
        let text = read_secret("credentials_file", path)?;
        // The error of the parser may show parts of the file.
        options = options.credentials(&text).map_err(|_| {
            format!(
                "server: `credentials_file` {}: not a credentials file of nsc",
                path.display()
            )
        })?;
    }
    if let Some(path) = &server.nkey_file {
        let seed = read_secret("nkey_file", path)?;
        if !(seed.starts_with("SU") && seed.len() == 58) {
            return Err(format!(
                "server: `nkey_file` {}: not the seed of a user (SU...)",
                path.display()
            ));
        }
        options = options.nkey(seed);
    }
    if let Some(path) = &server.token_file {
        options = options.token(read_secret("token_file", path)?);
    }
    if let Some(name) = &server.token_env {
        options = options.token(read_variable("token_env", name)?);
    }
    if let Some(user) = &server.user {
        let password = match (&server.password_file, &server.password_env) {
            (Some(path), _) => read_secret("password_file", path)?,
            (None, Some(name)) => read_variable("password_env", name)?,
            (None, None) => String::new(),
        };
        options = options.user_and_password(user.clone(), password);
    }
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
        // The client would report these errors at each attempt, without the setting.
        let text = std::fs::read(path);
        let text =
            text.map_err(|error| format!("server: `{setting}` {}: {error}", path.display()))?;
        if !text.windows(11).any(|part| part == b"-----BEGIN ") {
            return Err(format!(
                "server: `{setting}` {}: no PEM text",
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

/// Connects in the background: the first attempt may fail, as later ones may.
///
/// # Errors
/// The error is a sentence that names the setting.
pub async fn connect(server: &Server, name: &str) -> Result<Link, String> {
    let (tell, connected) = watch::channel((0, false));
    let refusal = Arc::new(Mutex::new(None));
    let noted = Arc::clone(&refusal);
    let identity = identity(server);
    let tell = Arc::new(tell);
    let options = options(server)?
        .name(name)
        .retry_on_initial_connect()
        .max_reconnects(None)
        .request_timeout(Some(server.timeout.0))
        .reconnect_delay_callback(|attempts| backoff::after(attempts.min(u32::MAX as usize) as u32))
        .event_callback(move |event| {
            note(&event, &tell, &noted, identity);
            async {}
        });
    let client = options.connect(server.url.clone()).await;
    let client = client.map_err(|error| format!("server: `url`: {error}"))?;
    Ok(Link {
        client,
        connected,
        refusal,
        identity,
    })
}

fn note(
    event: &Event,
    connected: &watch::Sender<(u64, bool)>,
    refusal: &Mutex<Option<String>>,
    identity: &str,
) {
    let level = match event {
        Event::Connected => {
            // The refusals of earlier attempts explain no later error.
            if let Ok(mut refusal) = refusal.lock() {
                *refusal = None;
            }
            connected.send_modify(|(count, holds)| (*count, *holds) = (*count + 1, true));
            Level::Info
        }
        Event::Disconnected | Event::Closed => {
            connected.send_modify(|(_, holds)| *holds = false);
            Level::Warning
        }
        Event::ServerError(_) | Event::ClientError(_) => {
            if let Ok(mut refusal) = refusal.lock() {
                *refusal = Some(format!(
                    "{event}: see the permissions of the user of `{identity}`"
                ));
            }
            Level::Error
        }
        _ => Level::Warning,
    };
    log::event(level, "-", "server", &[("is", event)]);
}

#[cfg(test)]
mod tests {
    use super::*;

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
