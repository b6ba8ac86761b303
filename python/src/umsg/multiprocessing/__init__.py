"""Queues of objects between processes, with the interface of `multiprocessing`.

>>> from umsg.multiprocessing import Queue
>>> queue = Queue()
>>> queue.put([1, 2.5, "three"])
>>> queue.get()
[1, 2.5, 'three']

The queues lie in shared memory, without a pipe and without a thread. Pass a queue as an argument to processes of each start method (fork, spawn,
forkserver), and to other processes like any picklable object. A queue has a file with a generated name. The last process that has the queue open
removes the file. If all these processes are killed, the next process that creates such a queue removes the file.

The queue stays usable if a process is killed at any moment. `Queue.get` removes an object at once, as multiprocessing does; with `Queue.task` and
`JoinableQueue` the task of a killed worker goes to another worker.
"""

from ._joinable import JoinableQueue
from ._queue import Failed, Queue, SimpleQueue, Task

__all__ = ["Failed", "JoinableQueue", "Queue", "SimpleQueue", "Task"]
