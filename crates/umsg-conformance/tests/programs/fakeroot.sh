#!/bin/sh
# fakeroot over System V queues: its library, preloaded in addition to the drop-in, asks a daemon for the owners of files, through two queues. Only
# the daemon records the changed owners. Prints the owners in the archive.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
mkdir -p tree/below
echo text > tree/file
for i in 1 2 3 4 5 6 7 8 9; do echo "$i" > "tree/below/$i"; done
pretend='chown -R 0:0 tree; chown 12:34 tree/below/7; chmod 4755 tree/below/8; mknod tree/null c 1 3; tar --sort=name -cf tree.tar tree'
if [ "$(id -u)" -eq 0 ]; then
    chmod -R o+rwX "$directory"
    chown -R 65534:65534 "$directory"
    # Runs fakeroot as an ordinary user: for root, the kernel itself would change the owners.
    setpriv --reuid 65534 --regid 65534 --clear-groups fakeroot-sysv -- sh -c "$pretend"
else
    fakeroot-sysv -- sh -c "$pretend"
fi
tar --numeric-owner -tvf tree.tar | sed -E 's/ [0-9-]+ [0-9:]+ / /; s/ +/ /g'
