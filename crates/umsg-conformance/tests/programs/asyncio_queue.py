"""Uses a queue in an asyncio event loop: reads messages when they arrive, and waits for room."""

import asyncio
import os
import sys

import posix_ipc

NAME = f"/umsg-asyncio-{os.getpid()}"
CHILD = f"""
import posix_ipc
queue = posix_ipc.MessageQueue({NAME!r})
for number in range(500):
    queue.send(str(number), priority=number % 3)
"""


async def messages(loop, queue):
    arrived = asyncio.Queue()

    def readable():
        while True:
            try:
                arrived.put_nowait(queue.receive())
            except posix_ipc.BusyError:
                return

    loop.add_reader(queue.mqd, readable)
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", CHILD)
    total = 0
    for _ in range(500):
        message, priority = await asyncio.wait_for(arrived.get(), 60)
        assert int(message) % 3 == priority
        total += int(message)
    print("the messages' sum:", total, "the child:", await child.wait())
    print("removed:", loop.remove_reader(queue.mqd), loop.remove_reader(queue.mqd))


async def room(loop, queue):
    event = asyncio.Event()
    for _ in range(4):
        queue.send(b"full")
    loop.add_writer(queue.mqd, event.set)
    await asyncio.sleep(0.05)
    print("room while it is full:", event.is_set())
    queue.receive()
    await asyncio.wait_for(event.wait(), 60)
    print("room after a receive:", event.is_set())
    loop.remove_writer(queue.mqd)


async def main():
    queue = posix_ipc.MessageQueue(NAME, posix_ipc.O_CREX, max_messages=4, max_message_size=64)
    queue.block = False
    loop = asyncio.get_running_loop()
    try:
        await messages(loop, queue)
        await room(loop, queue)
    finally:
        queue.close()
        posix_ipc.unlink_message_queue(NAME)


asyncio.run(main())
