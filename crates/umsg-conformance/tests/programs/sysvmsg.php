<?php
// Every function of PHP's extension sysvmsg. What it prints is the same wherever the queues are.

function tell(string $what, mixed $value): void
{
    echo $what, ': ', json_encode($value), "\n";
}

$key = ftok(__FILE__, 'u');
tell('exists before', msg_queue_exists($key));
$queue = msg_get_queue($key, 0640);
tell('exists', msg_queue_exists($key));

tell('serialized', msg_send($queue, 3, ['id' => 7, 'name' => 'größe'], true, false));
tell('plain', msg_send($queue, 1, 'plain bytes', false, false));
tell('longer', msg_send($queue, 2, 'much too long', false, false));
tell('empty', msg_send($queue, 8, '', false, false));
tell('a type below 1', @msg_send($queue, 0, 'x', false, false, $error) || $error === 22);

$stat = msg_stat_queue($queue);
tell('stat', [
    $stat['msg_qnum'], $stat['msg_qbytes'], decoct($stat['msg_perm.mode']), $stat['msg_lspid'] === getmypid(),
    $stat['msg_lrpid'], abs($stat['msg_stime'] - time()) <= 2, $stat['msg_rtime'],
    $stat['msg_perm.uid'] === posix_geteuid(),
]);
tell('set', msg_set_queue($queue, ['msg_perm.mode' => 0600, 'msg_qbytes' => 4096]));
$stat = msg_stat_queue($queue);
tell('after set', [decoct($stat['msg_perm.mode']), $stat['msg_qbytes']]);

tell('lowest', [msg_receive($queue, -2, $type, 100, $message, false), $type, $message]);
tell('too long', [msg_receive($queue, 3, $type, 4, $message, true, MSG_IPC_NOWAIT, $error), $error === 7]);
tell('truncated', [msg_receive($queue, 2, $type, 4, $message, false, MSG_NOERROR), $type, $message]);
tell('empty', [msg_receive($queue, 8, $type, 4, $message, false), $type, $message]);
tell('array', [msg_receive($queue, 0, $type, 1000, $message), $type, $message]);
tell('none', [msg_receive($queue, 0, $type, 10, $message, false, MSG_IPC_NOWAIT, $error), $error === 42]);
msg_send($queue, 5, 'five', false);
msg_send($queue, 6, 'six', false);
tell('except', [msg_receive($queue, 5, $type, 10, $message, false, MSG_EXCEPT), $type, $message]);

for ($filled = 0; @msg_send($queue, 9, str_repeat('x', 1000), false, false, $error); $filled++);
tell('full', [$filled, $error === 11]);

$command = [PHP_BINARY, '-r', 'msg_send(msg_get_queue(' . $key . '), 11, "from a child", false, true);'];
$child = proc_open($command, [], $pipes);
for ($i = 0; $i < $filled + 1; $i++) {
    msg_receive($queue, -9, $type, 1000, $message, false);
}
tell('child', [msg_receive($queue, 11, $type, 100, $message, false), $message, proc_close($child)]);

tell('remove', msg_remove_queue($queue));
tell('exists after', msg_queue_exists($key));
tell('send after', [@msg_send($queue, 1, 'x', false, false, $error), $error === 22]);
$private = msg_get_queue(0);
tell('private', [msg_send($private, 1, [1, 2]), msg_receive($private, 1, $type, 100, $message), $message]);
tell('remove private', msg_remove_queue($private));
