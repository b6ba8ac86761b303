//! The operations that an adversary tries on an existing object.

use std::ffi::CString;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, RenameFlags};

use super::objects::Needs::{self, *};

/// The descriptors that the adversary keeps open while the victims continue.
pub type Held = Vec<OwnedFd>;
/// A function that tries an operation on the path of an object. The second path is a directory of the adversary in the same file system.
pub type Act = fn(&Path, &Path) -> io::Result<Held>;

/// An operation: its name, the access that it needs, whether it changes the object, and its function.
pub struct Operation {
    pub name: &'static str,
    pub needs: Needs,
    pub changes: bool,
    pub act: Act,
}

const fn row(name: &'static str, needs: Needs, changes: bool, act: Act) -> Operation {
    Operation {
        name,
        needs,
        changes,
        act,
    }
}

const LEAVES: bool = false;
const CHANGES: bool = true;

/// The operations that an adversary tries on each object.
pub const OPERATIONS: &[Operation] = &[
    row("open for reading and keep open", Read, LEAVES, |path, _| {
        held(open(path, "r"))
    }),
    row(
        "open for writing and keep open",
        Write,
        LEAVES,
        |path, _| held(open(path, "w")),
    ),
    row("open for both and keep open", Both, LEAVES, |path, _| {
        held(open(path, "rw"))
    }),
    row("read", Read, LEAVES, |path, _| {
        let file = open(path, "r")?;
        rustix::io::read(&file, &mut [0; 4096])?;
        held(Ok(file))
    }),
    row("flock", Read, LEAVES, |path, _| {
        let file = open(path, "r")?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        held(Ok(file))
    }),
    row("flock, opened for writing", Write, LEAVES, |path, _| {
        let file = open(path, "w")?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        held(Ok(file))
    }),
    row("lock for reading by fcntl", Read, LEAVES, |path, _| {
        let file = open(path, "r")?;
        lock(&file, libc::F_SETLK, libc::F_RDLCK)?;
        held(Ok(file))
    }),
    row("lock for writing by fcntl", Write, LEAVES, |path, _| {
        let file = open(path, "w")?;
        lock(&file, libc::F_SETLK, libc::F_WRLCK)?;
        held(Ok(file))
    }),
    row(
        "lock for writing by an open file description",
        Write,
        LEAVES,
        |path, _| {
            let file = open(path, "w")?;
            lock(&file, libc::F_OFD_SETLK, libc::F_WRLCK)?;
            held(Ok(file))
        },
    ),
    row("lease for reading", Own, LEAVES, |path, _| {
        lease(path, libc::F_RDLCK)
    }),
    row("lease for writing", Own, LEAVES, |path, _| {
        lease(path, libc::F_WRLCK)
    }),
    row("watch", Read, LEAVES, |path, _| watch(path)),
    row("connect and send a byte", Write, LEAVES, |path, _| {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.send_to(b"x", path)?;
        Ok(vec![socket.into()])
    }),
    row("write a page that never comes", Both, CHANGES, |path, _| {
        let file = open(path, "rw")?;
        super::fault::write_for_ever(file)?;
        Ok(Held::new())
    }),
    row("write a byte", Write, CHANGES, |path, _| {
        let mut file = open(path, "w")?;
        file.write_all(b"x")?;
        held(Ok(file))
    }),
    row("scribble over all", Write, CHANGES, |path, _| {
        let mut file = open(path, "w")?;
        file.write_all(&[0x55; 64 << 10])?;
        held(Ok(file))
    }),
    row("truncate", Write, CHANGES, |path, _| {
        let file = open(path, "w")?;
        file.set_len(0)?;
        held(Ok(file))
    }),
    row("grant everything", Own, CHANGES, |path, _| {
        chmod(path, 0o777)
    }),
    row("grant nothing", Own, CHANGES, |path, _| chmod(path, 0)),
    row("take ownership", Never, CHANGES, |path, _| {
        let user = rustix::process::getuid().as_raw();
        done(chown(path, Some(user), Some(user)))
    }),
    row("change the times", Own, CHANGES, |path, _| {
        let text = text(path);
        let times = [libc::timespec {
            tv_sec: 1,
            tv_nsec: 1,
        }; 2];
        // SAFETY: the path ends with a NUL, and there are two times. The call follows no links.
        let result = unsafe {
            libc::utimensat(
                libc::AT_FDCWD,
                text.as_ptr(),
                times.as_ptr(),
                libc::AT_SYMLINK_NOFOLLOW,
            )
        };
        returned(result)
    }),
    row("set the times to now", Write, CHANGES, |path, _| {
        let text = text(path);
        // SAFETY: the path ends with a NUL, and no times mean the current time. The call follows no links.
        let result = unsafe {
            libc::utimensat(
                libc::AT_FDCWD,
                text.as_ptr(),
                std::ptr::null(),
                libc::AT_SYMLINK_NOFOLLOW,
            )
        };
        returned(result)
    }),
    row("set an attribute", Own, CHANGES, |path, _| {
        let acl = [2, 0, 0, 0, 1, 0, 7, 0, 0xff, 0xff, 0xff, 0xff];
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::lsetxattr(path, c"system.posix_acl_access", &acl, flags)?;
        Ok(Held::new())
    }),
    row("rename away", Name, CHANGES, |path, own| {
        done(fs::rename(path, own.join("taken")))
    }),
    row("rename beside", Name, CHANGES, |path, _| {
        done(fs::rename(path, path.with_extension("taken")))
    }),
    row("put another in place", Name, CHANGES, |path, own| {
        fs::write(own.join("mine"), b"x")?;
        done(fs::rename(own.join("mine"), path))
    }),
    row("exchange", Name, CHANGES, |path, own| {
        let mine = own.join("mine");
        fs::write(&mine, b"x")?;
        rustix::fs::renameat_with(CWD, &mine, CWD, path, RenameFlags::EXCHANGE)?;
        Ok(Held::new())
    }),
    row("unlink", Name, CHANGES, |path, _| {
        done(fs::remove_file(path))
    }),
    row("remove the directory", Name, CHANGES, |path, _| {
        done(fs::remove_dir(path))
    }),
    row("link elsewhere", Both, CHANGES, |path, own| {
        done(
            rustix::fs::linkat(CWD, path, CWD, own.join("linked"), AtFlags::empty())
                .map_err(io::Error::from),
        )
    }),
    row("link beside", Both, CHANGES, |path, _| {
        let beside = path.with_file_name("linked");
        done(rustix::fs::linkat(CWD, path, CWD, &beside, AtFlags::empty()).map_err(io::Error::from))
    }),
    row("make a file in place", Never, CHANGES, |path, _| {
        held(make_file(path))
    }),
    row(
        "make a symbolic link in place",
        Never,
        CHANGES,
        |path, _| done(symlink("/etc/passwd", path)),
    ),
    row("make a FIFO in place", Never, CHANGES, |path, _| {
        make_fifo(path)
    }),
    row("make a directory in place", Never, CHANGES, |path, _| {
        done(fs::create_dir(path))
    }),
];

/// The kinds of entries that an adversary makes under an unused name. Calls of the victims may fail on this entry only.
pub const PLANTS: &[(&str, Act)] = &[
    ("an empty file", |path, _| {
        make_file(path)?;
        chmod(path, 0o666)
    }),
    ("a locked file without access", |path, _| {
        let file = make_file(path)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        chmod(path, 0)?;
        held(Ok(file))
    }),
    ("a file of zeroes, as long as a queue", |path, _| {
        let file = make_file(path)?;
        file.set_len(4 << 20)?;
        chmod(path, 0o666)
    }),
    ("a FIFO", |path, _| make_fifo(path)),
    ("a FIFO that is open and full", |path, _| {
        make_fifo(path)?;
        let mut file = open(path, "rw")?;
        while file.write(&[1; 4096]).is_ok() {}
        held(Ok(file))
    }),
    ("a FIFO whose lock is held", |path, _| {
        make_fifo(path)?;
        super::fault::write_for_ever(open(path, "rw")?)?;
        Ok(Held::new())
    }),
    ("a socket", |path, _| {
        let socket = UnixDatagram::bind(path)?;
        Ok(vec![socket.into()])
    }),
    ("a directory", |path, _| {
        fs::create_dir(path)?;
        chmod(path, 0o777)
    }),
    ("a directory without access, locked", |path, _| {
        fs::create_dir(path)?;
        fs::write(path.join("queue"), b"")?;
        let directory = open(path, "r")?;
        rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
        chmod(path, 0)?;
        held(Ok(directory))
    }),
    ("a directory with a FIFO for a queue", |path, _| {
        fs::create_dir(path)?;
        chmod(path, 0o777)?;
        make_fifo(&path.join("queue"))
    }),
    ("a symbolic link that dangles", |path, own| {
        done(symlink(own.join("none"), path))
    }),
    ("a symbolic link to itself", |path, _| {
        done(symlink(path.file_name().unwrap_or_default(), path))
    }),
    ("a symbolic link to a FIFO", |path, own| {
        make_fifo(&own.join("fifo"))?;
        done(symlink(own.join("fifo"), path))
    }),
    ("a symbolic link with a number", |path, _| {
        done(symlink("0", path))
    }),
    ("a hard link", |path, own| {
        fs::write(own.join("mine"), b"x")?;
        done(fs::hard_link(own.join("mine"), path))
    }),
];

fn open(path: &Path, how: &str) -> io::Result<fs::File> {
    let mut options = OpenOptions::new();
    options.read(how.contains('r')).write(how.contains('w'));
    options
        .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW)
        .open(path)
}

fn held(file: io::Result<fs::File>) -> io::Result<Held> {
    Ok(vec![file?.into()])
}

fn done<T>(result: io::Result<T>) -> io::Result<Held> {
    result.map(|_| Held::new())
}

fn returned(result: i32) -> io::Result<Held> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(Held::new()),
    }
}

fn text(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

fn chmod(path: &Path, mode: u32) -> io::Result<Held> {
    done(fs::set_permissions(path, Permissions::from_mode(mode)))
}

/// Makes a file under an unused name.
fn make_file(path: &Path) -> io::Result<fs::File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).open(path)
}

fn make_fifo(path: &Path) -> io::Result<Held> {
    let mode = Mode::from_raw_mode(0o666);
    rustix::fs::mknodat(CWD, path, FileType::Fifo, mode, 0)?;
    Ok(Held::new())
}

fn lock(file: &fs::File, command: i32, kind: i32) -> io::Result<Held> {
    // SAFETY: zero is a value of every field. Start 0 and length 0 lock the whole file.
    let mut whole: libc::flock = unsafe { std::mem::zeroed() };
    whole.l_type = kind as libc::c_short;
    // SAFETY: the descriptor is open, and the call only reads the structure, which is filled in.
    returned(unsafe { libc::fcntl(file.as_raw_fd(), command, &raw const whole) })
}

fn lease(path: &Path, kind: i32) -> io::Result<Held> {
    let file = open(path, if kind == libc::F_RDLCK { "r" } else { "w" })?;
    // SAFETY: the call takes an open descriptor and an integer.
    returned(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) })?;
    held(Ok(file))
}

fn watch(path: &Path) -> io::Result<Held> {
    use rustix::fs::inotify::{CreateFlags, WatchFlags};
    let watcher = rustix::fs::inotify::init(CreateFlags::CLOEXEC)?;
    let flags = WatchFlags::ALL_EVENTS | WatchFlags::DONT_FOLLOW;
    rustix::fs::inotify::add_watch(&watcher, path, flags)?;
    Ok(vec![watcher])
}
