//! Checks the metrics, the alert rules and the dashboard with Prometheus and promtool of Debian. Without these programs, the tests print that and
//! pass. CI has both: `UMSG_TEST_PROMETHEUS` names their directory.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::exporter::{Exporter, until};
use super::support::patients::Killed;
use super::support::{Site, finish, start};
use super::with_all_kinds;

/// Finds a program. Prints a note if the program is missing, or fails if `UMSG_TEST_PROMETHEUS` promises the program.
fn found(program: &str) -> Option<PathBuf> {
    if let Some(directory) = std::env::var_os("UMSG_TEST_PROMETHEUS") {
        let path = Path::new(&directory).join(program);
        assert!(path.is_file(), "{} is missing", path.display());
        return Some(path);
    }
    let path = umsg_testkit::run::on_the_path(program);
    if path.is_none() {
        eprintln!("skipped: {program} is missing (apt-get install prometheus)");
    }
    path
}

fn contrib(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../contrib")
        .join(file)
}

/// Checks that promtool accepts the text, and suggests no better names.
pub fn check_metrics(site: &Site) {
    let Some(promtool) = found("promtool") else {
        return;
    };
    let text = site.umsg(&["metrics", "--write", "/dev/stdout"]);
    let mut check = Command::new(promtool);
    let outcome = finish(check.args(["check", "metrics"]), text.text().as_bytes());
    assert_eq!((outcome.code, outcome.text()), (Some(0), ""), "{outcome:?}");
}

#[test]
fn promtool_finds_no_fault_in_the_metrics_and_in_the_alert_rules() {
    let (site, _ring) = with_all_kinds();
    check_metrics(&site);
    let Some(promtool) = found("promtool") else {
        return;
    };
    for (step, file) in [("check", "umsg.rules.yml"), ("test", "umsg.tests.yml")] {
        let mut command = Command::new(&promtool);
        command.args([step, "rules", file]);
        let outcome = finish(command.current_dir(contrib("prometheus")), b"");
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
    }
}

/// Returns the words of a text that begin with `umsg_`, as all metric names do.
fn metrics_of(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("umsg_")).collect()
}

/// Returns the metric names that a text declares in the form of Prometheus.
fn declared(text: &str) -> BTreeSet<&str> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|line| line.split(' ').next()).collect()
}

#[test]
fn the_dashboard_and_the_rules_use_metrics_that_exist() {
    let (site, _ring) = with_all_kinds();
    let outcome = site.umsg(&["metrics", "--write", "/dev/stdout"]);
    let there = declared(outcome.text());
    let dashboard = fs::read_to_string(contrib("grafana/umsg.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let mut rules = String::from("groups:\n- name: dashboard\n  rules:\n");
    let mut used = String::new();
    let panels = dashboard["panels"].as_array().unwrap();
    for target in panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap())
    {
        let expression = target["expr"].as_str().unwrap();
        used.push_str(expression);
        let rule = expression
            .replace("$__rate_interval", "1m")
            .replace("$instance", ".*")
            .replace("$kind", ".*")
            .replace("$queue", ".*");
        rules += &format!("  - record: x\n    expr: '{rule}'\n");
    }
    assert!(panels.len() > 10);
    used.push_str(&fs::read_to_string(contrib("prometheus/umsg.rules.yml")).unwrap());
    for metric in metrics_of(&used) {
        assert!(there.contains(metric), "{metric} does not exist");
    }
    let Some(promtool) = found("promtool") else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("rules.yml");
    fs::write(&file, rules).unwrap();
    let outcome = finish(
        Command::new(promtool).args(["check", "rules"]).arg(&file),
        b"",
    );
    // promtool reports the rules of the same name as duplicates, and still accepts the file.
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

/// Starts Prometheus with a server of metrics as its target, and returns its address.
fn scraping(prometheus: &Path, home: &Path, exporter: &Exporter) -> (Killed, String) {
    let config = home.join("prometheus.yml");
    fs::write(
        &config,
        format!(
            "scrape_configs:\n- job_name: umsg\n  scrape_interval: 1s\n  static_configs:\n  - targets: ['{}']\n",
            exporter.address
        ),
    )
    .unwrap();
    // Another socket may get the port before Prometheus does. Prometheus then ends, and the test fails. The sockets of other programs, and of the
    // other tests, have the address 127.0.0.1.
    let free = TcpListener::bind("127.0.0.2:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let mut command = Command::new(prometheus);
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            home.join("data").display()
        ))
        .arg(format!("--web.listen-address={address}"));
    let mut process = Killed(start(&mut command));
    // The log is read all the time: otherwise Prometheus would block when the pipe is full.
    let mut log = process.0.stderr.take().unwrap();
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    (process, address)
}

#[test]
fn prometheus_scrapes_the_server_and_answers_with_the_values() {
    let Some(prometheus) = found("prometheus") else {
        return;
    };
    let (site, _ring) = with_all_kinds();
    let exporter = Exporter::start(&site, &[]);
    let home = tempfile::tempdir().unwrap();
    let (_process, address) = scraping(&prometheus, home.path(), &exporter);
    for (query, wanted) in [
        ("umsg_queue_messages%7Bqueue=%22/orders%22%7D", "1"),
        ("umsg_queue_sent_messages_total%7Bkind=%22ring%22%7D", "3"),
        ("sum(umsg_queues)", "3"),
    ] {
        until(query, || {
            let Some(answer) = get(&address, &format!("/api/v1/query?query={query}")) else {
                return false;
            };
            let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
            answer["data"]["result"][0]["value"][1] == wanted
        });
    }
}

/// Returns the body of an answer. None if no server listens yet.
fn get(address: &str, path: &str) -> Option<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    // With HTTP/1.0, the answer is not chunked.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer.split_once("\r\n\r\n")?.1.to_owned())
}
