# squid with a cache directory of the kind diskd, which sends its requests for the disk through System V queues to a process of its
# own: an object is fetched until it has come from the disk twice.
use strict;
use warnings;
use File::Temp qw(tempdir);
use IO::Socket::INET;
use IPC::SysV qw(IPC_RMID);
use POSIX qw(strftime);

$| = 1;
my $squid = '/usr/sbin/squid';
my $home = tempdir(CLEANUP => 1);
chmod 0777, $home;
my $object = join '', map { chr(33 + ($_ * 7) % 90) } 1 .. 100_000;

# The origin: serves the object, and tells a pipe so.
my $origin = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1') or die "listen: $!";
my $address = 'http://127.0.0.1:' . $origin->sockport . '/object';
pipe my $served, my $serving or die;
my $server = fork // die;
if (!$server) {
    while (my $client = $origin->accept) {
        while (defined(my $line = <$client>)) { last if $line =~ /^\r?$/ }
        syswrite $serving, '.';
        print $client "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n",
            strftime("Date: %a, %d %b %Y %T GMT\r\n", gmtime), 'Content-Length: ', length $object, "\r\n\r\n", $object;
        close $client;
    }
    exit;
}
close $serving;

my $port = do { IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1')->sockport };
open my $conf, '>', "$home/conf" or die;
print $conf <<"CONF";
http_port 127.0.0.1:$port
cache_dir diskd $home/cache 20 2 2
cache_mem 0 MB
maximum_object_size_in_memory 0 KB
access_log stdio:$home/access.log
cache_log $home/cache.log
cache_store_log none
netdb_filename none
pid_filename none
coredump_dir $home
pinger_enable off
shutdown_lifetime 0 seconds
visible_hostname localhost
refresh_pattern . 60 100% 60
http_access allow all
CONF
close $conf;

sub log_of { open my $log, '<', "$home/$_[0]" or return ''; local $/; return <$log> // '' }
sub give_up { kill 'KILL', $server; die @_, "\n", log_of('cache.log') }

system("$squid -N -z -f $home/conf 2>$home/errors") == 0 or give_up('squid -z');
my $cache = fork // die;
if (!$cache) {
    open STDERR, '>', "$home/errors";
    exec $squid, '-N', '-f', "$home/conf" or die;
}

sub fetch {
    my $socket = IO::Socket::INET->new(PeerAddr => "127.0.0.1:$port") or return '';
    print $socket "GET $address HTTP/1.0\r\n\r\n";
    local $/;
    return (split /\r\n\r\n/, <$socket> // '', 2)[1] // '';
}

my $started = 0;
for (1 .. 600) {
    last if $started = IO::Socket::INET->new(PeerAddr => "127.0.0.1:$port");
    select undef, undef, undef, 0.1;
}
$started or give_up('squid has not started');
# Written to the disk meanwhile, sooner or later.
my ($rounds, $hits) = (0, 0);
while ($hits < 2 && $rounds++ < 150) {
    fetch() eq $object or give_up("round $rounds: another object");
    select undef, undef, undef, 0.2;
    # squid may log a round after the client has got the object. Without this wait, two hits could be counted at once.
    for (1 .. 600) {
        last if (() = log_of('access.log') =~ m{/object}g) >= $rounds;
        select undef, undef, undef, 0.1;
    }
    $hits = () = log_of('access.log') =~ /TCP_HIT/g;
}
open my $queues, '<', '/proc/sysvipc/msg' or die;
my @busy = grep { (split)[5] } grep { !/key/ } <$queues>;
print 'queues with messages sent: ', scalar(@busy), "\n";
kill 'TERM', $cache;
waitpid $cache, 0;
# It leaves its queues behind.
open $queues, q(<), q(/proc/sysvipc/msg) or die;
msgctl $_, IPC_RMID, 0 for map { /key/ ? () : (split)[1] } <$queues>;
kill 'TERM', $server;
sysread $served, my $dots, 100;
print 'from the disk: ', $hits, "
";
print 'asked of the origin besides: ', $rounds - length($dots) == $hits ? "no\n" : "$rounds rounds, $dots\n";
