//! The C names of numbers: errors, flags, commands.

use libc::c_int;

macro_rules! names {
    ($table:ident: $($name:ident)*) => {
        const $table: &[(c_int, &str)] = &[$((libc::$name, stringify!($name)),)*];
    };
}

names! { ERRORS: EPERM ENOENT EINTR EIO E2BIG EBADF EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE
EFBIG ENOSPC EROFS EPIPE ERANGE EDEADLK ENAMETOOLONG ENOSYS ELOOP ENOMSG EIDRM EOVERFLOW EMSGSIZE EOPNOTSUPP ETIMEDOUT EOWNERDEAD
ENOTRECOVERABLE ESHUTDOWN ESTALE EDQUOT EUCLEAN ENXIO ENOLCK EPROTO EBADMSG ECANCELED }

names! { OPEN: O_CREAT O_EXCL O_NONBLOCK O_CLOEXEC }

names! { CONTROL: IPC_RMID IPC_SET IPC_STAT IPC_INFO MSG_STAT MSG_INFO }

names! { SIGEV: SIGEV_SIGNAL SIGEV_NONE SIGEV_THREAD }

// The flags of msgget.
names! { GET: IPC_CREAT IPC_EXCL }

// The flags of msgsnd and msgrcv.
names! { MOVE: IPC_NOWAIT MSG_NOERROR MSG_EXCEPT MSG_COPY }

fn name(table: &[(c_int, &'static str)], number: i64) -> Option<&'static str> {
    let found = table.iter().find(|(known, _)| i64::from(*known) == number);
    found.map(|&(_, name)| name)
}

/// Returns the name of an errno, such as `EAGAIN`, or the number.
pub fn errno(number: c_int) -> String {
    name(ERRORS, number.into()).map_or_else(|| number.to_string(), str::to_owned)
}

pub fn errno_named(name: &str) -> Option<c_int> {
    let found = ERRORS.iter().find(|(_, known)| *known == name);
    found.map(|&(number, _)| number)
}

/// Returns the names of flags, followed by the bits without a name: `O_CREAT|0x10`. `rest` formats the bits without a name. If there are no such
/// bits, `rest` is called only if the result would be empty.
fn flags(
    first: Option<&str>,
    table: &[(c_int, &'static str)],
    bits: i64,
    rest: impl FnOnce(i64) -> String,
) -> String {
    let mut names: Vec<String> = first.map(str::to_owned).into_iter().collect();
    let mut left = bits;
    for &(flag, name) in table {
        let flag = i64::from(flag);
        if left & flag == flag {
            names.push(name.to_owned());
            left &= !flag;
        }
    }
    if left != 0 || names.is_empty() {
        names.push(rest(left));
    }
    names.join("|")
}

/// Returns the flags of mq_open.
pub fn open(bits: i64) -> String {
    let access = match bits as c_int & libc::O_ACCMODE {
        libc::O_RDONLY => "O_RDONLY",
        libc::O_WRONLY => "O_WRONLY",
        libc::O_RDWR => "O_RDWR",
        _ => "O_ACCMODE",
    };
    let others = bits & !i64::from(libc::O_ACCMODE);
    flags(Some(access), OPEN, others, |left| format!("{left:#x}"))
}

/// Returns the flags of mq_setattr.
pub fn nonblocking(bits: i64) -> String {
    flags(None, OPEN, bits, |left| left.to_string())
}

/// Returns the flags of msgget, with the permissions in octal digits.
pub fn get(bits: i64) -> String {
    let bits = i64::from(bits as u32);
    flags(None, GET, bits, |left| format!("{left:04o}"))
}

/// Returns the flags of msgsnd and msgrcv.
pub fn moving(bits: i64) -> String {
    let bits = i64::from(bits as u32);
    flags(None, MOVE, bits, |left| match left {
        0 => "0".to_owned(),
        left => format!("{left:#o}"),
    })
}

/// Returns the name of a command of msgctl.
pub fn control(command: i64) -> String {
    name(CONTROL, command).map_or_else(|| command.to_string(), str::to_owned)
}

/// Returns the name of a kind of notification.
pub fn notification(how: i64) -> String {
    name(SIGEV, how).map_or_else(|| how.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_have_their_names_and_other_bits_their_value() {
        let all = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NONBLOCK;
        assert_eq!(open(all.into()), "O_RDWR|O_CREAT|O_EXCL|O_NONBLOCK");
        assert_eq!(open(0), "O_RDONLY");
        assert_eq!(get((libc::IPC_CREAT | 0o600).into()), "IPC_CREAT|0600");
        assert_eq!(get(0), "0000");
        assert_eq!(moving(0), "0");
        assert_eq!(moving(libc::IPC_NOWAIT.into()), "IPC_NOWAIT");
        assert_eq!(control(libc::IPC_STAT.into()), "IPC_STAT");
        assert_eq!(control(4242), "4242");
        assert_eq!(nonblocking(libc::O_NONBLOCK.into()), "O_NONBLOCK");
    }

    #[test]
    fn an_error_is_found_by_its_name_and_named_by_its_number() {
        for &(number, name) in ERRORS {
            assert_eq!(errno_named(name), Some(number));
            assert_eq!(errno(number), name);
        }
        assert_eq!((errno(0), errno_named("ENOTHING")), ("0".to_owned(), None));
    }
}
