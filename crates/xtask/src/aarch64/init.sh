#!/bin/busybox sh
# The first program of the emulated machine: prepares it as a distribution would, runs the tests, and switches it off.
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/root
/bin/busybox mkdir -p /usr/bin /usr/sbin /sbin
/bin/busybox --install -s
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts /dev/mqueue
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t devpts pts /dev/pts
mount -t mqueue mqueue /dev/mqueue
mount -t tmpfs -o mode=755 run /run
ln -s /proc/self/fd /dev/fd
ln -s /proc/self/fd/0 /dev/stdin
ln -s /proc/self/fd/1 /dev/stdout
ln -s /proc/self/fd/2 /dev/stderr
ip link set lo up
ulimit -c 0
ulimit -n 1024
ulimit -H -n 1048576

# run NAME DIRECTORY SECONDS PROGRAM ARGUMENT...: runs a test program, for SECONDS at most.
run() {
    name=$1
    directory=$2
    limit=$3
    shift 3
    echo "@umsg begin $name"
    cd "$directory"
    timeout -s KILL "$limit" "$@" </dev/null 2>&1
    status=$?
    # Ends the last line of the program's output, which may be incomplete.
    echo
    for file in /dev/shm/*; do
        [ -e "$file" ] && echo "left behind: $file" && rm -rf "$file"
    done
    echo "@umsg end $status $name"
}

echo "@umsg booted $(uname -r), $(nproc) cores"
. /tests.sh
echo "@umsg over"
poweroff -f
