"""rate SECONDS: sends and receives through posix_ipc in one process, and prints messages and seconds."""

import os
import sys
import time

import posix_ipc

name = f"/umsg-demo-python-{os.getpid()}"
queue = posix_ipc.MessageQueue(name, posix_ipc.O_CREX, max_messages=10, max_message_size=64)
queue.unlink()
payload = bytes(64)
start = time.monotonic()
end = start + float(sys.argv[1])
messages = 0
while time.monotonic() < end:
    for _ in range(256):
        queue.send(payload, priority=3)
        assert queue.receive() == (payload, 3)
    messages += 256
print(messages, time.monotonic() - start)
