//! The files of `examples/containers`, interpreted without a container engine.
//!
//! An unknown key in such a file fails the test: otherwise a part of the file would be untested.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use saphyr::{LoadableYamlNode, ScalarOwned, YamlOwned};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::engine::Container;

fn text(name: &str) -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/containers");
    std::fs::read_to_string(directory.join(name)).unwrap()
}

fn read<T: DeserializeOwned>(name: &str) -> T {
    let documents = YamlOwned::load_from_str(&text(name)).unwrap();
    let [document] = &documents[..] else {
        panic!("{name} has {} documents", documents.len());
    };
    serde_json::from_value(json(document)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn json(yaml: &YamlOwned) -> Value {
    match yaml {
        YamlOwned::Value(ScalarOwned::String(text)) => text.clone().into(),
        YamlOwned::Value(ScalarOwned::Integer(number)) => (*number).into(),
        YamlOwned::Value(ScalarOwned::Boolean(value)) => (*value).into(),
        YamlOwned::Sequence(items) => items.iter().map(json).collect(),
        YamlOwned::Mapping(pairs) => {
            let pairs = pairs
                .iter()
                .map(|(key, value)| (key.as_str().unwrap().to_owned(), json(value)));
            Value::Object(pairs.collect())
        }
        other => panic!("not used in these files: {other:?}"),
    }
}

/// Returns the instructions of the Dockerfile.
pub fn dockerfile() -> Vec<(String, String)> {
    let text = text("Dockerfile");
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    let instruction = |line: &str| {
        let (name, rest) = line.split_once(' ').unwrap();
        (name.to_owned(), rest.to_owned())
    };
    lines.map(instruction).collect()
}

/// A Compose file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compose {
    pub services: BTreeMap<String, Service>,
    pub volumes: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    image: String,
    user: String,
    command: Vec<String>,
    volumes: Vec<String>,
    read_only: bool,
    cap_drop: Vec<String>,
    security_opt: Vec<String>,
    #[serde(default)]
    pub depends_on: BTreeMap<String, Condition>,
    pub healthcheck: Option<Healthcheck>,
    /// This field is unused: the test kills the containers, so they need no init process.
    #[serde(default, rename = "init")]
    _init: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    pub condition: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Healthcheck {
    test: Vec<String>,
    #[serde(rename = "interval")]
    _interval: String,
}

impl Compose {
    pub fn read() -> Compose {
        read("compose.yaml")
    }
}

impl Service {
    pub fn container(&self, volumes: &BTreeMap<String, PathBuf>) -> Container {
        assert_eq!(
            (self.image.as_str(), &self.cap_drop[..]),
            ("umsg", &["ALL".to_owned()][..])
        );
        assert_eq!(self.security_opt, ["no-new-privileges:true"]);
        let (user, group) = self.user.split_once(':').unwrap();
        assert_eq!(user, group);
        let mut container = container(user.parse().unwrap(), &self.command);
        container.read_only = self.read_only;
        for volume in &self.volumes {
            let (name, path) = volume.split_once(':').unwrap();
            container = container.volume(&volumes[name], path);
        }
        container
    }

    /// Returns the same container with the command that checks its health.
    pub fn check(&self, volumes: &BTreeMap<String, PathBuf>) -> Container {
        let check = &self.healthcheck.as_ref().unwrap().test;
        assert_eq!(check[0], "CMD");
        let mut container = self.container(volumes);
        container.command = check[1..].to_vec();
        container
    }
}

fn container(user: u32, command: &[String]) -> Container {
    let command: Vec<&str> = command.iter().map(|word| &**word).collect();
    Container::new(user, &command)
}

/// A pod of Kubernetes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Pod {
    api_version: String,
    kind: String,
    #[serde(rename = "metadata")]
    _metadata: Value,
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Spec {
    #[serde(rename = "restartPolicy")]
    _restart_policy: String,
    #[serde(default)]
    security_context: Security,
    init_containers: Vec<Part>,
    containers: Vec<Part>,
    volumes: Vec<Volume>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Part {
    name: String,
    image: String,
    command: Vec<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Vec<Variable>,
    security_context: Security,
    volume_mounts: Vec<Mount>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Security {
    run_as_user: Option<u32>,
    run_as_group: Option<u32>,
    run_as_non_root: Option<bool>,
    allow_privilege_escalation: Option<bool>,
    read_only_root_filesystem: Option<bool>,
    capabilities: Option<Capabilities>,
    seccomp_profile: Option<Profile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Capabilities {
    drop: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    r#type: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Variable {
    name: String,
    value: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Mount {
    name: String,
    mount_path: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Volume {
    name: String,
    empty_dir: EmptyDir,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct EmptyDir {
    medium: String,
    #[serde(rename = "sizeLimit")]
    _size_limit: String,
}

impl Pod {
    pub fn read(name: &str) -> Pod {
        let pod: Pod = read(name);
        assert_eq!((pod.api_version.as_str(), pod.kind.as_str()), ("v1", "Pod"));
        pod
    }

    /// Returns the init containers, which run first, one after another. Then returns the other containers, by name.
    pub fn containers(&self, volume: &Path) -> (Vec<Container>, BTreeMap<String, Container>) {
        let [only] = &self.spec.volumes[..] else {
            panic!("one volume");
        };
        assert_eq!(only.empty_dir.medium, "Memory");
        let container = |part: &Part| {
            let [mount] = &part.volume_mounts[..] else {
                panic!("{}: one volume", part.name);
            };
            assert_eq!(mount.name, only.name);
            self.container(part).volume(volume, &mount.mount_path)
        };
        let first = self.spec.init_containers.iter().map(container);
        let others = self.spec.containers.iter();
        let others = others.map(|part| (part.name.clone(), container(part)));
        (first.collect(), others.collect())
    }

    fn container(&self, part: &Part) -> Container {
        let (own, all) = (&part.security_context, &self.spec.security_context);
        let user = own.run_as_user.or(all.run_as_user).unwrap();
        assert_eq!(own.run_as_group.or(all.run_as_group), Some(user));
        assert_eq!(
            own.run_as_non_root.or(all.run_as_non_root).unwrap_or(false),
            user != 0
        );
        assert_eq!(own.allow_privilege_escalation, Some(false));
        assert_eq!(own.capabilities.as_ref().unwrap().drop, ["ALL"]);
        let profile = own
            .seccomp_profile
            .as_ref()
            .or(all.seccomp_profile.as_ref());
        assert_eq!(
            (part.image.as_str(), profile.unwrap().r#type.as_str()),
            ("umsg", "RuntimeDefault")
        );
        let command = [&part.command[..], &part.args].concat();
        let mut container = container(user, &command);
        container.read_only = own.read_only_root_filesystem.unwrap_or(false);
        for Variable { name, value } in &part.env {
            container = container.variable(name, value);
        }
        container
    }
}
