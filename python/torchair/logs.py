"""torchair.logger: what the package says while it compiles.

    [INFO] TORCHAIR(17,python3):2026-11-21 21:40:00.123.456 [file.py:41]17 ...

To stdout, from level ERROR on; DEBUG where TORCH_COMPILE_DEBUG=1 was set at
import. Level EVENT, between WARNING and ERROR, has the times of the key steps:
`logger.setLevel(EVENT_LEVEL)`, `logger.event(...)`.

`engine_log` is what the engine has to say of graphs, to stderr, from the level
on that TNG_LOG_LEVEL had at import: 0 DEBUG, 1 INFO, 2 WARNING, 3 ERROR (the
default), 4 EVENT (these and errors only).
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import threading
import time
from typing import Any

EVENT_LEVEL = 35
logging.addLevelName(EVENT_LEVEL, "EVENT")


class Logger(logging.Logger):
    """A logger with the level EVENT."""

    def event(self, msg: object, *args: object, **kwargs: Any) -> None:
        if self.isEnabledFor(EVENT_LEVEL):
            kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
            self.log(EVENT_LEVEL, msg, *args, **kwargs)

    @functools.cache  # noqa: B019  (there is one, for good)
    def warning_once(self, msg: str) -> None:
        """The same text once only."""
        self.warning(msg, stacklevel=3)


class _Format(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = time.localtime(record.created)
        micros = int(record.created % 1 * 1e6)
        program = os.path.basename(sys.executable)
        return (
            f"[{record.levelname}] TORCHAIR({record.process},{program}):"
            f"{time.strftime('%Y-%m-%d %H:%M:%S', when)}."
            f"{micros // 1000:03}.{micros % 1000:03} "
            f"[{record.filename}:{record.lineno}]"
            f"{threading.get_native_id()} {super().format(record)}"
        )


class _Stream(logging.StreamHandler[Any]):
    """Whatever sys.stdout or sys.stderr is when something is said."""

    def __init__(self, name: str) -> None:
        logging.Handler.__init__(self)
        self.stream_name = name
        self.setFormatter(_Format())

    @property
    def stream(self) -> Any:
        return getattr(sys, self.stream_name)

    @stream.setter
    def stream(self, _value: Any) -> None: ...


def _make(name: str, level: int, stream: str) -> Logger:
    # Not logging.setLoggerClass: other packages' loggers stay what they are.
    made = Logger(name)
    manager = logging.root.manager
    manager.loggerDict[name] = made
    made.parent, made.manager = logging.root, manager
    made.setLevel(level)
    made.addHandler(_Stream(stream))
    return made


def _engine_log(debug: bool) -> Logger:
    said = os.environ.get("TNG_LOG_LEVEL", "0" if debug else "3")
    level = _LEVELS.get(said)
    made = _make("torchair.engine", level or logging.ERROR, "stderr")
    made.propagate = False
    if level is None:
        print(
            f"[WARNING] TNG_LOG_LEVEL={said!r} is none of 0 to 4: errors only",
            file=sys.stderr,
        )
    if level == EVENT_LEVEL:
        made.addFilter(
            lambda r: r.levelno == EVENT_LEVEL or r.levelno >= logging.ERROR
        )
    return made


_LEVELS = {
    "0": logging.DEBUG,
    "1": logging.INFO,
    "2": logging.WARNING,
    "3": logging.ERROR,
    "4": EVENT_LEVEL,
}
_debug = os.environ.get("TORCH_COMPILE_DEBUG") == "1"
logger = _make("torchair", logging.DEBUG if _debug else logging.ERROR, "stdout")
engine_log = _engine_log(_debug)


def file_handler(path: str) -> logging.Handler:
    """Writes the same lines to a file."""
    handler = logging.FileHandler(path)
    handler.setFormatter(_Format())
    return handler
