#!/bin/sh
# The tools of util-linux, and other ways to read the same data. At the beginning, there is no queue. The output is the same on the kernel's queues
# and on umsg's queues: keys that ipcmk has drawn, process ids and times are masked.
set -eu
export LC_ALL=C TZ=UTC

now=$(date +%s)
mask() {
    sed -E -e 's/0x0*[1-9a-f][0-9a-f]{5,}/KEY/g' -e "s/\b$sender\b/SENDER/g" -e "s/\b$other\b/OTHER/g" \
        -e 's/\b[A-Z][a-z]{2} +[0-9]+ [0-9:]+/TIME/g' -e 's/\b[A-Z][a-z]{2}[0-9]{2}\b/TIME/g' -e 's/\b[0-9]{2}:[0-9]{2}\b/TIME/g' \
        -e 's/\b[A-Z][a-z]{2} TIME [0-9]{4}\b/TIME/g' -e 's/ +/ /g' -e 's/-+/-/g'
}

ipcmk -Q -p 640
ipcmk -Q
ipcmk -Q -p 600
ipcrm -q 1
key=$(awk '$2 == 0 { print $1 }' /proc/sysvipc/msg)
sender=$(perl -e 'msgsnd(0, pack("l! a*", 1, "x" x 1000), 0) && msgsnd(0, pack("l! a*", 2, ""), 0) or die $!; print $$')
other=$(perl -e 'msgsnd(2, pack("l! a*", 1, "abc"), 0) && msgrcv(2, $_, 10, 0, 0) or die $!; print $$')

for options in -q '-q -t' '-q -p' '-q -c' '-q -u' '-q -l' '-q -i 0'; do
    echo "# ipcs $options"
    ipcs $options | mask
done
for options in -q '-q -t -c' '-q --json -b' '-q -i 0' '-q --export'; do
    echo "# lsipc $options"
    lsipc $options | mask
done
echo '# lsipc'
lsipc | grep MSG

# Prints /proc/sysvipc/msg, in the kernel's columns. An age is at most the run time of this script.
echo '# the file'
table() {
    awk -v now="$now" -v sender="$sender" -v other="$other" '
        $1 == "key" { print; next }
        {
            for (i = 12; i <= 14; i++) $i = $i == 0 ? 0 : $i >= now && $i <= now + 100 ? "NOW" : $i
            for (i = 6; i <= 7; i++) $i = $i == sender ? "SENDER" : $i == other ? "OTHER" : $i
            $1 = $1 == 0 ? 0 : "KEY"
            print
        }'
}
cat /proc/sysvipc/msg | table
perl -ne '
    print $. == 1 || $_ eq sprintf("%10d %10d  %4s  %10s %10s %5s %5s %5s %5s %5s %5s %10s %10s %10s\n", split)
        ? "in columns\n" : "not in columns: $_"' /proc/sysvipc/msg
while IFS= read -r line; do echo "$line"; done < /proc/sysvipc/msg | table
grep -c . /proc/sysvipc/msg
dd if=/proc/sysvipc/msg bs=7 status=none | table
perl -e 'open my $f, "<", "/proc/sysvipc/msg" or die; my @l = <$f>; print scalar(@l), " lines\n"; print sprintf("%o", (stat "/proc/sysvipc/msg")[2]), "\n"'
perl -e 'open my $f, "+<", "/proc/sysvipc/msg" or print "not for writing\n"; print -r "/proc/sysvipc/msg" ? "readable\n" : "not readable\n"' | grep readable
cat /proc/sys/kernel/msgmax /proc/sys/kernel/msgmnb
wc -l < /proc/sysvipc/sem
wc -l < /proc/sysvipc/shm

echo '# removal'
ipcrm -Q "$(printf '0x%08x' "$((key & 0xffffffff))")"
ipcrm -v -q 2
ipcrm -q 2 2>&1 || echo "ipcrm says $?"
ipcs -q
