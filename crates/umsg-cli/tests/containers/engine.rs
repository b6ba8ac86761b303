//! Containers as engines make them: their own namespaces for mounts, processes, IPC, host name and network; their own root; no capabilities; Docker's
//! default seccomp profile.
//!
//! ```text
//! /                tmpfs, usually read-only          /dev       tmpfs: null, zero, full, random, urandom
//! /usr /bin /etc   of the machine, read-only         /dev/shm   tmpfs of the container, 64 MiB
//! /usr/local       the image's files, read-only      /proc      of the container's processes
//! /run/umsg ...    volumes
//! ```

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use umsg_testkit::artefacts::drop_in;

use crate::profiles::DOCKER;
use crate::seccomp::{allow_only, refuse};

/// The maximum run time of a container. After this time, the container is taken as stuck.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Docker's default capabilities: CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE, NET_RAW, SYS_CHROOT,
/// MKNOD, AUDIT_WRITE, SETFCAP.
const DEFAULT_CAPABILITIES: u64 = 0x0000_0000_a804_25fb;

/// The directories of the machine's root that a container sees.
const OF_THE_MACHINE: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "etc"];
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

/// The image of `examples/containers/Dockerfile`: the files of `cargo xtask dist` below `/usr/local`, and the environment.
pub struct Image {
    directory: TempDir,
    pub environment: Vec<(String, String)>,
}

impl Image {
    /// Makes an image with the command and the drop-in of this build.
    pub fn new() -> Image {
        let directory = TempDir::with_prefix("umsg-cli-test-").unwrap();
        crate::support::set_mode(directory.path(), 0o755);
        let image = Image {
            directory,
            environment: vec![],
        };
        image.add(Path::new(env!("CARGO_BIN_EXE_umsg")), "bin");
        image.add(drop_in(), "lib");
        image
    }

    /// Adds a program or library.
    pub fn add(&self, file: &Path, place: &str) {
        let place = self.directory.path().join("dist").join(place);
        // Another process copies the file: a child of another test could inherit a descriptor that is open for writing, and the file would be busy
        // (ETXTBSY).
        let mut install = Command::new("install");
        install
            .args(["-m", "755", "-D", "-t"])
            .arg(&place)
            .arg(file);
        assert!(install.status().unwrap().success(), "{}", file.display());
    }

    /// Returns the place at which each container mounts its root.
    fn root(&self) -> PathBuf {
        let root = self.directory.path().join("root");
        std::fs::create_dir_all(&root).unwrap();
        root
    }

    fn dist(&self) -> PathBuf {
        self.directory.path().join("dist")
    }
}

/// The settings of a container.
#[derive(Clone, Debug)]
pub struct Container {
    pub user: u32,
    pub command: Vec<String>,
    pub environment: Vec<(String, String)>,
    /// Directories of the machine, each with its path in the container.
    pub volumes: Vec<(PathBuf, String)>,
    pub read_only: bool,
    drops_capabilities: bool,
    /// True for a container in its own user namespace, in which `user` is root, as a rootless engine makes it.
    is_rootless: bool,
}

impl Container {
    /// Makes a container without volumes and capabilities, with a read-only root.
    pub fn new(user: u32, command: &[&str]) -> Container {
        Container {
            user,
            command: command.iter().map(|word| String::from(*word)).collect(),
            environment: vec![],
            volumes: vec![],
            read_only: true,
            drops_capabilities: true,
            is_rootless: false,
        }
    }

    pub fn volume(mut self, directory: &Path, path: &str) -> Container {
        self.volumes.push((directory.to_owned(), path.to_owned()));
        self
    }

    /// Leaves root the capabilities that Docker grants by default.
    pub fn with_capabilities(mut self) -> Container {
        self.drops_capabilities = false;
        self
    }

    pub fn rootless(mut self) -> Container {
        self.is_rootless = true;
        self
    }

    pub fn variable(mut self, name: &str, value: &str) -> Container {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts the container's program, as process 1 of its PID namespace.
    pub fn start(&self, image: &Image) -> Running {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).env_clear();
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.envs(image.environment.iter().cloned());
        command.envs(self.environment.iter().cloned());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let (container, root, dist) = (self.clone(), image.root(), image.dist());
        // SAFETY: the closure runs in a child of one thread. It uses malloc, which glibc keeps usable there, and system calls.
        unsafe { command.pre_exec(move || container.enter(&root, &dist)) };
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{self:?}: {error}"));
        Running {
            child: Some(child),
            what: format!("user {}: {:?}", self.user, self.command),
        }
    }

    /// Runs the container's program to its end.
    pub fn run(&self, image: &Image) -> Output {
        self.start(image).finish()
    }

    /// Turns this process into the supervisor of a container. The function returns in the child, which is the container.
    fn enter(&self, root: &Path, dist: &Path) -> io::Result<()> {
        let namespaces = libc::CLONE_NEWNS
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUTS
            | libc::CLONE_NEWNET;
        if self.is_rootless {
            become_user(self.user)?;
            // SAFETY: the call changes a setting of this process. Without the call, root would own the files in /proc that the following lines write.
            done(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) })?;
            // SAFETY: the call changes the namespaces of this process, which has one thread.
            done(unsafe { libc::unshare(namespaces | libc::CLONE_NEWUSER) })?;
            std::fs::write("/proc/self/setgroups", "deny")?;
            std::fs::write("/proc/self/uid_map", format!("0 {} 1", self.user))?;
            std::fs::write("/proc/self/gid_map", format!("0 {} 1", self.user))?;
        } else {
            // SAFETY: the call changes the namespaces of this process, which has one thread.
            done(unsafe { libc::unshare(namespaces) })?;
        }
        // SAFETY: the process has one thread.
        match done(unsafe { libc::fork() })? {
            0 => self.furnish(root, dist),
            container => supervise(container),
        }
    }

    fn furnish(&self, root: &Path, dist: &Path) -> io::Result<()> {
        // SAFETY: the call changes only a setting of this process.
        done(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) })?;
        mount(
            None,
            Path::new("/"),
            None,
            libc::MS_REC | libc::MS_PRIVATE,
            "",
        )?;
        mount(Some("tmpfs"), root, Some("tmpfs"), 0, "mode=755")?;
        for name in OF_THE_MACHINE {
            let (from, to) = (Path::new("/").join(name), root.join(name));
            match std::fs::read_link(&from) {
                Ok(target) => std::os::unix::fs::symlink(target, to)?,
                Err(_) if from.is_dir() => bind(&from, &to, true)?,
                Err(_) => {}
            }
        }
        bind(dist, &root.join("usr/local"), true)?;
        let directory = |name: &str| directory(&root.join(name));
        mount(Some("proc"), &directory("proc")?, Some("proc"), 0, "")?;
        mount(
            Some("tmpfs"),
            &directory("dev")?,
            Some("tmpfs"),
            0,
            "mode=755",
        )?;
        for device in DEVICES {
            let place = root.join("dev").join(device);
            std::fs::write(&place, "")?;
            let device = Path::new("/dev").join(device);
            mount(device.to_str(), &place, None, libc::MS_BIND, "")?;
        }
        std::os::unix::fs::symlink("/proc/self/fd", root.join("dev/fd"))?;
        mount(
            Some("tmpfs"),
            &directory("dev/shm")?,
            Some("tmpfs"),
            0,
            "mode=1777,size=64m",
        )?;
        for (from, to) in &self.volumes {
            bind(from, &root.join(&to[1..]), false)?;
        }
        if self.read_only {
            mount(
                None,
                root,
                None,
                libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY,
                "",
            )?;
        }
        change_root(root)?;
        self.give_up_rights()
    }

    fn give_up_rights(&self) -> io::Result<()> {
        let kept = if self.drops_capabilities {
            0
        } else {
            DEFAULT_CAPABILITIES
        };
        for capability in 0..=40 {
            if kept >> capability & 1 == 0 {
                // SAFETY: the call changes only a setting of this process.
                done(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) })?;
            }
        }
        if !self.is_rootless {
            become_user(self.user)?;
        }
        // SAFETY: the calls change settings of this process. The change of the user has cancelled the signal that the process gets when the
        // supervisor dies.
        unsafe {
            done(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0))?;
            done(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        }
        for (call, errno) in DOCKER.answers {
            refuse(&[(*call).into()], *errno);
        }
        // If two filters refuse a call, the filter that was installed last determines the answer.
        allow_only(&DOCKER.lets_pass(), DOCKER.others);
        Ok(())
    }
}

/// Waits for the container's first process, and ends with the same status. The container ends when its first process dies.
fn supervise(container: i32) -> ! {
    let mut status = 0;
    // SAFETY: the first call also closes inherited descriptors, mainly the pipe on which the test waits for exec. The second call waits for a child
    // of this process. The third one ends the process, so the code of the test does not continue here.
    unsafe {
        libc::close_range(0, u32::MAX, 0);
        while libc::waitpid(container, &raw mut status, 0) < 0 {}
        libc::_exit(match libc::WIFEXITED(status) {
            true => libc::WEXITSTATUS(status),
            false => 128 + libc::WTERMSIG(status),
        })
    }
}

/// A container that was started. The drop kills the container.
pub struct Running {
    child: Option<Child>,
    what: String,
}

impl Running {
    /// Kills all processes of the container, as `docker kill` does: the supervisor is killed, and then the kernel kills the rest.
    pub fn kill(mut self) {
        self.end();
    }

    /// Waits for the end of the program.
    pub fn finish(mut self) -> Output {
        let mut child = self.child.take().expect("it is running");
        let end = Instant::now() + PATIENCE;
        // The output is read after the program's end: a pipe has room for 64 KiB, and the programs of the tests print less.
        while child.try_wait().unwrap().is_none() {
            if Instant::now() > end {
                let _ = child.kill();
                let output = child.wait_with_output().unwrap();
                panic!("{} is stuck: {output:?}", self.what);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        child.wait_with_output().unwrap()
    }

    /// Returns the output of a program that has to succeed.
    #[track_caller]
    pub fn succeed(self) -> String {
        let what = self.what.clone();
        let output = self.finish();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{what}: {}: {errors}",
            output.status
        );
        String::from_utf8(output.stdout).unwrap()
    }

    fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            // When the supervisor has ended, the kernel kills the container's first process, and then its other processes.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

fn become_user(user: u32) -> io::Result<()> {
    // SAFETY: the calls change the ids of this process, which has one thread.
    unsafe {
        done(libc::setgroups(0, std::ptr::null()))?;
        done(libc::setresgid(user, user, user))?;
        done(libc::setresuid(user, user, user))?;
    }
    Ok(())
}

/// Makes a directory in the container visible, with all mounts below it.
fn bind(from: &Path, to: &Path, read_only: bool) -> io::Result<()> {
    if !to.exists() {
        directory(to)?;
    }
    mount(from.to_str(), to, None, libc::MS_BIND | libc::MS_REC, "")?;
    match read_only {
        true => mount(
            None,
            to,
            None,
            libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY,
            "",
        ),
        false => Ok(()),
    }
}

fn directory(path: &Path) -> io::Result<PathBuf> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(path)?;
    Ok(path.to_owned())
}

fn mount(
    from: Option<&str>,
    to: &Path,
    kind: Option<&str>,
    flags: libc::c_ulong,
    data: &str,
) -> io::Result<()> {
    let text = |text: &[u8]| CString::new(text).expect("no NUL");
    let (from, kind) = (from.unwrap_or("none"), kind.unwrap_or("none"));
    let [from, kind, data] = [from, kind, data].map(|word| text(word.as_bytes()));
    let to = text(to.as_os_str().as_bytes());
    // SAFETY: the texts end with NUL and outlive the call.
    done(unsafe {
        libc::mount(
            from.as_ptr(),
            to.as_ptr(),
            kind.as_ptr(),
            flags,
            data.as_ptr().cast(),
        )
    })?;
    Ok(())
}

fn change_root(root: &Path) -> io::Result<()> {
    std::env::set_current_dir(root)?;
    // SAFETY: the texts end with NUL. The old root is mounted over the new one until it is unmounted.
    unsafe {
        done(libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) as i32)?;
        done(libc::umount2(c".".as_ptr(), libc::MNT_DETACH))?;
    }
    std::env::set_current_dir("/")
}

fn done(result: i32) -> io::Result<i32> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}
