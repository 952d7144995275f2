"""One Braid a data folder: a lock that the kernel releases with the process that holds it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

from service.errors import SetupError

# `held` takes the lock for an instant when it looks, which must not refuse a start.
ATTEMPTS = 5
ATTEMPT_PAUSE = 0.02


class DataDirLock:
    """An exclusive lock on `<data_dir>/lock`, which names the holder's pid."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._path = data_dir / "lock"
        self._handle: int | None = None

    def acquire(self) -> None:
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        if not _try_often(handle):
            os.close(handle)
            raise SetupError(
                f"another Braid (pid {self._holder()}) is already running on {self._data_dir}: "
                "stop it, or set BRAID_DATA_DIR to another folder"
            )
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        self._handle = handle

    def release(self) -> None:
        """Idempotent. The file stays: removing it would let two processes lock two files of one name."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    @property
    def mine(self) -> bool:
        return self._handle is not None

    def held(self) -> bool:
        """Whether some process, this one included, holds the lock."""
        try:
            handle = os.open(self._path, os.O_RDWR)
        except OSError:
            return False
        try:
            return not _try(handle)
        finally:
            os.close(handle)

    def _holder(self) -> str:
        with contextlib.suppress(OSError):
            return self._path.read_text().strip() or "unknown"
        return "unknown"


def _try(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _try_often(handle: int) -> bool:
    for _ in range(ATTEMPTS):
        if _try(handle):
            return True
        time.sleep(ATTEMPT_PAUSE)
    return False
