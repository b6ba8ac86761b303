//! Tests real servers with TLS and with each way to sign in: which settings work, which setting an error names, and that no secret is shown.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use support::*;
use umsg::posix::Queue;

/// A certificate authority for tests, in a directory.
struct Authority(tempfile::TempDir);

impl Authority {
    fn new() -> Authority {
        let authority = Authority(tempfile::tempdir().unwrap());
        for name in ["ca", "other"] {
            authority.openssl(&format!(
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={name} -keyout {name}.key -out {name}.pem"
            ));
        }
        authority.certificate("good", "IP:127.0.0.1", "");
        authority.certificate("client", "DNS:client", "");
        authority
    }

    fn openssl(&self, arguments: &str) {
        let mut command = Command::new("openssl");
        command
            .current_dir(self.0.path())
            .args(arguments.split(' '));
        let output = command.output().expect("apt-get install openssl");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments}: {errors}");
    }

    /// Makes a certificate for a name. `dates` are options of `openssl ca`.
    fn certificate(&self, file: &str, name: &str, dates: &str) {
        let path = |name: &str| self.0.path().join(name);
        let text = format!(
            "[ca]\ndefault_ca = own\n[own]\ndatabase = {file}.index\nserial = {file}.serial\nnew_certs_dir = .\ncertificate = ca.pem\nprivate_key = ca.key\ndefault_md = sha256\ndefault_days = 2\npolicy = any\nx509_extensions = more\n[any]\ncommonName = supplied\n[more]\nbasicConstraints = CA:FALSE\nsubjectAltName = {name}\n"
        );
        std::fs::write(path(&format!("{file}.cnf")), text).unwrap();
        std::fs::write(path(&format!("{file}.index")), "").unwrap();
        std::fs::write(path(&format!("{file}.serial")), "01\n").unwrap();
        self.openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={file} -keyout {file}.key -out {file}.csr"
        ));
        let end = if dates.is_empty() { "" } else { " " };
        self.openssl(&format!(
            "ca -batch -notext -config {file}.cnf -in {file}.csr -out {file}.pem{end}{dates}"
        ));
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the server's TLS settings for a certificate.
    fn server(&self, file: &str, more: &str) -> String {
        let [certificate, key] = ["pem", "key"].map(|end| self.file(&format!("{file}.{end}")));
        format!("tls {{ cert_file: {certificate:?}, key_file: {key:?}, timeout: 10 {more} }}")
    }
}

/// Starts an export with the given settings of the server, and sends a message.
fn export(settings: &str) -> (Machine, Queue) {
    let mut machine = Machine::new();
    let out = machine.queue("/out", 10, 16);
    machine.declare_server(settings, EXPORT);
    machine.start();
    out.send(b"one", 0).unwrap();
    (machine, out)
}

fn await_export((machine, out): &(Machine, Queue)) {
    wait_for(
        "export",
        || out.attributes().messages + out.attributes().leased == 0,
        || format!("{:?}\n{}", machine.states(), machine.logged()),
    );
}

fn expect_refusal((machine, out): &(Machine, Queue), words: &[&str]) {
    machine.await_error(words);
    // The bridge connects again and again, so the error may change for a moment.
    let status = || output(machine.command().arg("status"));
    wait_for(
        &format!("{words:?} in the status"),
        || {
            let (text, code) = status();
            code == Some(1) && words.iter().all(|word| text.contains(word))
        },
        || status().0,
    );
    assert_eq!(out.attributes().messages + out.attributes().leased, 1);
}

#[test]
fn tls_refuses_other_authorities_expired_certificates_and_other_names() {
    let Some(program) = nats_server() else { return };
    let authority = Authority::new();
    authority.certificate(
        "expired",
        "IP:127.0.0.1",
        "-startdate 20200101000000Z -enddate 20200102000000Z",
    );
    authority.certificate("elsewhere", "DNS:elsewhere.example", "");
    let settings = |server: &Server, ca: &str| {
        let ca = authority.file(ca);
        format!(
            "url = \"tls://127.0.0.1:{}\"\nca_file = {ca:?}",
            server.port
        )
    };
    let [good, expired, elsewhere] = ["good", "expired", "elsewhere"]
        .map(|file| Server::start(&program, &authority.server(file, "")));
    await_export(&export(&settings(&good, "ca.pem")));
    for (server, ca, why) in [
        (&good, "other.pem", "UnknownIssuer"),
        (&expired, "ca.pem", "xpired"),
        (&elsewhere, "ca.pem", "not valid for name"),
    ] {
        expect_refusal(&export(&settings(server, ca)), &["`ca_file`", why]);
    }
    // The bridge does not require TLS, but the server does. The system's authorities don't know the server's certificate.
    let plain = format!("url = \"nats://127.0.0.1:{}\"", good.port);
    expect_refusal(&export(&plain), &["`ca_file`", "certificate"]);
    // The bridge requires TLS, but the server has no TLS.
    let bare = Server::start(&program, "");
    let tls = format!("url = \"nats://127.0.0.1:{}\"\ntls = true", bare.port);
    expect_refusal(&export(&tls), &["`ca_file`", "TLS"]);
}

#[test]
fn a_certificate_of_the_client_signs_in() {
    let Some(program) = nats_server() else { return };
    let authority = Authority::new();
    let demand = format!(", ca_file: {:?}, verify: true", authority.file("ca.pem"));
    let server = Server::start(&program, &authority.server("good", &demand));
    let common = format!(
        "url = \"tls://127.0.0.1:{}\"\nca_file = {:?}",
        server.port,
        authority.file("ca.pem")
    );
    let [certificate, key] = ["client.pem", "client.key"].map(|name| authority.file(name));
    let with = format!("{common}\ncertificate_file = {certificate:?}\nkey_file = {key:?}");
    let works = export(&with);
    await_export(&works);
    let key = std::fs::read_to_string(key).unwrap();
    works
        .0
        .expect_no_secret(&key.lines().collect::<Vec<_>>()[1..2]);
    expect_refusal(&export(&common), &["`certificate_file`"]);
}

fn write(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    format!("{path:?}")
}

#[test]
fn tokens_nkeys_and_passwords_sign_in_and_are_shown_nowhere() {
    let Some(program) = nats_server() else { return };
    let home = tempfile::tempdir().unwrap();
    let [user, stranger] = [0, 1].map(|_| nkeys::KeyPair::new_user());
    let (seed, strange) = (user.seed().unwrap(), stranger.seed().unwrap());
    let nkey = format!(
        "authorization {{ users: [ {{ nkey: {} }} ] }}",
        user.public_key()
    );
    for (more, setting, user, right, wrong) in [
        (
            "authorization { token: \"t0k3n-right\" }",
            "token_file",
            "",
            "t0k3n-right",
            "t0k3n-wrong",
        ),
        (&*nkey, "nkey_file", "", &*seed, &*strange),
        (
            "authorization { user: ann, password: \"pa55-right\" }",
            "password_file",
            "user = \"ann\"\n",
            "pa55-right",
            "pa55-wrong",
        ),
    ] {
        let server = Server::start(&program, more);
        let settings = |secret: &str| {
            let file = write(home.path(), &format!("{setting}.{}", secret.len()), secret);
            format!("url = {:?}\n{user}{setting} = {file}", server.url())
        };
        let works = export(&settings(right));
        await_export(&works);
        works.0.expect_no_secret(&[right]);
        let fails = export(&settings(wrong));
        expect_refusal(&fails, &[&format!("`{setting}`")]);
        fails.0.expect_no_secret(&[right, wrong]);
    }
    // The token comes from the environment.
    let server = Server::start(&program, "authorization { token: \"t0k3n-right\" }");
    let mut machine = Machine::new();
    let out = machine.queue("/out", 10, 16);
    let settings = format!("url = {:?}\ntoken_env = \"BRIDGE_TOKEN\"", server.url());
    machine.declare_server(&settings, EXPORT);
    let log = std::fs::File::create(machine.home.path().join("bridge.log")).unwrap();
    let mut command = machine.command();
    command.arg("--config").arg(machine.config()).stderr(log);
    machine.bridge = Some(Process::start(command.env("BRIDGE_TOKEN", "t0k3n-right")));
    out.send(b"one", 0).unwrap();
    let works = (machine, out);
    await_export(&works);
    works.0.expect_no_secret(&["t0k3n-right"]);
}

/// Encodes a JWT as the tool `nsc` does.
fn jwt(issuer: &nkeys::KeyPair, subject: &nkeys::KeyPair, nats: &str) -> String {
    let claims = format!(
        "{{\"jti\":\"test\",\"iat\":1700000000,\"iss\":{:?},\"name\":\"test\",\"sub\":{:?},\"nats\":{nats}}}",
        issuer.public_key(),
        subject.public_key()
    );
    let head = base64(b"{\"typ\":\"JWT\",\"alg\":\"ed25519-nkey\"}");
    let text = format!("{head}.{}", base64(claims.as_bytes()));
    let signature = base64(&issuer.sign(text.as_bytes()).unwrap());
    format!("{text}.{signature}")
}

/// Encodes bytes in base64 for URLs, without padding.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let word = part
            .iter()
            .enumerate()
            .fold(0, |word, (n, byte)| word | u32::from(*byte) << (16 - 8 * n));
        for n in 0..=part.len() {
            text.push(char::from(LETTERS[(word >> (18 - 6 * n)) as usize & 63]));
        }
    }
    text
}

#[test]
fn a_credentials_file_signs_in_and_one_of_a_stranger_does_not() {
    let Some(program) = nats_server() else { return };
    let (operator, stranger) = (
        nkeys::KeyPair::new_operator(),
        nkeys::KeyPair::new_account(),
    );
    let [system, account] = [0, 1].map(|_| nkeys::KeyPair::new_account());
    let limits = "\"subs\":-1,\"data\":-1,\"payload\":-1,\"imports\":-1,\"exports\":-1,\"wildcards\":true,\"conn\":-1,\"leaf\":-1";
    let plain = format!(
        "{{\"limits\":{{{limits}}},\"default_permissions\":{{\"pub\":{{}},\"sub\":{{}}}},\"type\":\"account\",\"version\":2}}"
    );
    let storing = plain.replace(
        limits,
        &format!("{limits},\"mem_storage\":-1,\"disk_storage\":-1,\"streams\":-1,\"consumer\":-1"),
    );
    let more = format!(
        "operator: {:?}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{ {}: {:?}, {}: {:?} }}",
        jwt(
            &operator,
            &operator,
            "{\"type\":\"operator\",\"version\":2}"
        ),
        system.public_key(),
        system.public_key(),
        jwt(&operator, &system, &plain),
        account.public_key(),
        jwt(&operator, &account, &storing),
    );
    let server = Server::start(&program, &more);
    let home = tempfile::tempdir().unwrap();
    for (issuer, works) in [(&account, true), (&stranger, false)] {
        let user = nkeys::KeyPair::new_user();
        let seed = user.seed().unwrap();
        let jwt = jwt(
            issuer,
            &user,
            "{\"pub\":{},\"sub\":{},\"subs\":-1,\"data\":-1,\"payload\":-1,\"type\":\"user\",\"version\":2}",
        );
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n************************* IMPORTANT *************************\nNKEY Seed printed below can be used to sign and prove identity.\n\n-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        let file = write(home.path(), &format!("{works}.creds"), &text);
        let started = export(&format!(
            "url = {:?}\ncredentials_file = {file}",
            server.url()
        ));
        match works {
            true => await_export(&started),
            false => expect_refusal(&started, &["`credentials_file`"]),
        }
        started.0.expect_no_secret(&[&seed, &jwt]);
    }
}
