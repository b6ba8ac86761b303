"""Queues of objects between processes, with the interface of `multiprocessing`.

>>> from umsg.multiprocessing import Queue
>>> queue = Queue()
>>> queue.put([1, 2.5, "three"])
>>> queue.get()
[1, 2.5, 'three']

The queues lie in shared memory, without a pipe and without a thread. They go to processes of each start method (fork, spawn, forkserver) as
arguments, and to other processes as any picklable object. A queue has a file with a generated name. The last process that has the queue open removes
the file. If all these processes are killed, the next process that creates such a queue removes the file.

A process that is killed leaves the queue usable, at any moment. `Queue.get` gives an object away at once, as multiprocessing does; with
`Queue.task` and `JoinableQueue` the task of a killed worker goes to another one.
"""

from ._joinable import JoinableQueue
from ._queue import Failed, Queue, SimpleQueue, Task

__all__ = ["Failed", "JoinableQueue", "Queue", "SimpleQueue", "Task"]
