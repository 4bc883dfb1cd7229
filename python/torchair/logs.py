"""torchair.logger: what the package says while it compiles.

    [INFO] TORCHAIR(17,python3):2026-11-21 21:40:00.123.456 [file.py:41]17 ...

To stdout, from level ERROR on; DEBUG where TORCH_COMPILE_DEBUG=1 was set at
import. Level EVENT, between WARNING and ERROR, has the times of the key steps:
`logger.setLevel(EVENT_LEVEL)`, `logger.event(...)`.
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


class _Stdout(logging.StreamHandler[Any]):
    """Whatever sys.stdout is when something is said."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:
        return sys.stdout

    @stream.setter
    def stream(self, _value: Any) -> None: ...


def _make() -> Logger:
    # Not logging.setLoggerClass: other packages' loggers stay what they are.
    made = Logger("torchair")
    manager = logging.root.manager
    found = manager.loggerDict.get("torchair")
    if isinstance(found, Logger):
        return found
    manager.loggerDict["torchair"] = made
    made.parent, made.manager = logging.root, manager
    debug = os.environ.get("TORCH_COMPILE_DEBUG") == "1"
    made.setLevel(logging.DEBUG if debug else logging.ERROR)
    handler = _Stdout()
    handler.setFormatter(_Format())
    made.addHandler(handler)
    return made


logger = _make()


def file_handler(path: str) -> logging.Handler:
    """Writes the same lines to a file."""
    handler = logging.FileHandler(path)
    handler.setFormatter(_Format())
    return handler
