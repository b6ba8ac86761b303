# msgget and its family, as Perl has them built in and as IPC::SysV and IPC::Msg wrap them. What this prints is the same wherever
# the queues are.
use strict;
use warnings;
use Errno qw(EAGAIN EEXIST EIDRM EINTR EINVAL ENOENT ENOMSG);
use IPC::Msg;
use IPC::SysV qw(ftok IPC_CREAT IPC_EXCL IPC_NOWAIT IPC_PRIVATE IPC_RMID IPC_SET IPC_STAT MSG_NOERROR S_IRUSR S_IWUSR);
use POSIX ();
use Time::HiRes qw(ITIMER_REAL setitimer);

$| = 1;

sub tell_ { printf "%s: %s\n", shift, join ' ', map { defined $_ ? $_ : 'undef' } @_ }

sub receive {
    my ($id, $type, $flags, $size) = @_;
    my $bytes;
    msgrcv $id, $bytes, $size // 100, $type, $flags or return 0 + $!;
    return unpack 'l! a*', $bytes;
}

my $key = ftok($0, 77);
tell_('missing', defined msgget($key, 0) ? 'found' : $! == ENOENT);
my $id = msgget($key, IPC_CREAT | 0600) // die "msgget: $!";
tell_('again', msgget($key, 0) == $id);
tell_('exclusive', defined msgget($key, IPC_CREAT | IPC_EXCL | 0600) ? 'made' : $! == EEXIST);
for my $type (4, 2, 9) {
    tell_("send $type", msgsnd $id, pack('l! a*', $type, "type $type"), IPC_NOWAIT);
}
tell_('lowest', receive($id, -5, 0));
tell_('nine', receive($id, 9, 0));
tell_('none', receive($id, 9, IPC_NOWAIT) == ENOMSG);
tell_('any', receive($id, 0, MSG_NOERROR, 3));
tell_('bad type', msgsnd($id, pack('l! a*', 0, 'x'), 0) ? 'sent' : $! == EINVAL);

# A handler ends a blocked call, also one that perl would have gone on.
$SIG{ALRM} = sub { };
# The signal is repeated, because the first one may arrive before the call.
setitimer(ITIMER_REAL, 0.1, 0.1);
tell_('interrupted', receive($id, 0, 0) == EINTR);
setitimer(ITIMER_REAL, 0);

my $child = fork;
if (!$child) {
    msgsnd $id, pack('l! a*', $_, "child $_"), 0 for 1 .. 3;
    my $end = receive($id, 100, 0);
    POSIX::_exit($end == EIDRM ? 7 : 1);
}
tell_('from the child', receive($id, $_, 0)) for reverse 1 .. 3;
# Until it is blocked.
for (1 .. 1000) {
    open my $status, '<', "/proc/$child/stat" or die;
    last if <$status> =~ /\) S /;
    select undef, undef, undef, 0.01;
}
my $data = '';
tell_('stat', msgctl $id, IPC_STAT, $data);
tell_('remove', msgctl $id, IPC_RMID, 0);
waitpid $child, 0;
tell_('the child', $? >> 8);
tell_('stale', receive($id, 0, 0) == EINVAL);

my $queue = IPC::Msg->new(IPC_PRIVATE, S_IRUSR | S_IWUSR) or die "IPC::Msg: $!";
tell_('snd', $queue->snd(17, 'by an object', IPC_NOWAIT));
my $stat = $queue->stat;
tell_('fields', $stat->qnum, $stat->qbytes, $stat->lspid == $$, $stat->lrpid, sprintf('%o', $stat->mode), $stat->uid == $>);
tell_('set', $queue->set(qbytes => 5000, mode => 0640));
$stat = $queue->stat;
tell_('fields', $stat->qbytes, sprintf '%o', $stat->mode);
my $bytes;
tell_('rcv', $queue->rcv($bytes, 256, 17, IPC_NOWAIT), $bytes);
tell_('full', scalar grep({ $queue->snd(1, 'x' x 1000, IPC_NOWAIT) } 1 .. 10), $! == EAGAIN);
tell_('removed', $queue->remove);
