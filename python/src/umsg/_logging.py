"""The thread that passes events to a logger.

A call on a queue finds an event, perhaps without the interpreter's lock, or in a signal handler. The call only stores the event. The thread of this
module waits for events without the interpreter's lock, and no other thread calls the logger. So an event never waits for a lock of Python, and no
lock of Python waits for an event.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
from datetime import timedelta

from . import _umsg

# The maximum number of seconds for which the end of the program, and a change of the logger, wait
# for a handler.
_PATIENCE = 5.0


class _Log:
    """The logger of this process, and the thread that calls it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.logger: logging.Logger | logging.LoggerAdapter[logging.Logger] | None = None
        self.thread: threading.Thread | None = None
        self.is_registered = False

    def set(
        self,
        logger: logging.Logger | logging.LoggerAdapter[logging.Logger] | None,
        slow_wait: float | timedelta,
    ) -> None:
        with self.lock:
            if logger is None:
                self.end()
                return
            # For an invalid slow_wait, this call raises an exception, and an earlier log continues. During an earlier log, the
            # call only sets slow_wait.
            turn = _umsg._begin_log(slow_wait)
            if self.logger is not None:
                self.end()
                turn = _umsg._begin_log(slow_wait)
            if not self.is_registered:
                self.is_registered = True
                os.register_at_fork(after_in_child=self.begin_in_child)
                # logging has registered its own function earlier, so atexit calls this function
                # first.
                atexit.register(self.end)
            self.logger = logger
            self.start(turn)

    def start(self, turn: int) -> None:
        # A daemon thread, because the interpreter waits for other threads before it calls the
        # functions of atexit.
        thread = threading.Thread(target=_pass_on, args=(self.logger, turn), name="umsg-log", daemon=True)
        try:
            thread.start()
        except BaseException:
            self.end()
            raise
        self.thread = thread

    def begin_in_child(self) -> None:
        """Starts the thread again: a forked child has only the thread that called fork."""
        self.lock = threading.Lock()
        self.thread = None
        # The call is needed even if the log has ended: a handler may end the log and then fork.
        turn = _umsg._begin_log_in_child()
        if self.logger is not None:
            self.start(turn)

    def end(self) -> None:
        """Ends the log, and waits until the remaining events are logged."""
        if self.logger is None:
            return
        _umsg._end_log()
        thread, self.logger, self.thread = self.thread, None, None
        # If a handler itself ends the log, this thread can't join itself.
        if thread is not None and thread is not threading.current_thread():
            thread.join(_PATIENCE)


LOG = _Log()


def _pass_on(logger: logging.Logger | logging.LoggerAdapter[logging.Logger], turn: int) -> None:
    events = _umsg._next_events(turn)
    while events is not None:
        for level, text, event in events:
            # logging itself prints the errors of handlers. A filter that fails must not end the thread.
            with contextlib.suppress(Exception):
                logger.log(level, "%s", text, extra={"umsg": event})
        events = _umsg._next_events(turn)
