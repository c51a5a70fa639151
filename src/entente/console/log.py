"""What a command prints: our log on standard output, and in a run's own file."""

import logging
from contextlib import suppress
from pathlib import Path

from entente.console.escape import LineFormatter

log = logging.getLogger("entente")


class PrintHandler(logging.Handler):
    """Prints to whatever standard output is now, so that a live progress display can step aside."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # work goes on without a reader; what is printed at its end raises again
            print(self.format(record), flush=True)


class LogFile:
    """While open, what is logged is also written to a file, with the time. An OSError where it cannot be."""

    class _Handler(logging.FileHandler):
        def handleError(self, record: logging.LogRecord) -> None:
            raise

    def __init__(self, path: Path) -> None:
        self._handler = self._Handler(path, encoding="utf-8")
        self._handler.setFormatter(LineFormatter("%(asctime)s %(message)s"))

    def __enter__(self) -> None:
        log.addHandler(self._handler)

    def __exit__(self, *exception: object) -> None:
        log.removeHandler(self._handler)
        self._handler.close()
