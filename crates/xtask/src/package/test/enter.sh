# enter.sh ROOT USER COMMAND...: runs a command in a root, in new mount, process and IPC namespaces.
#
# /dev has the usual devices, /dev/shm, /tmp and /run are empty. There is no network: no test needs one.
set -eu

root=$1
user=$2
shift 2
mount --make-rprivate /
mount --bind "$root" "$root"
mkdir -p "$root/dev" "$root/proc" "$root/tmp" "$root/run"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
    : >"$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
mkdir "$root/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t proc proc "$root/proc"
exec chroot --userspec="$user" "$root" "$@"
