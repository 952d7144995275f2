"""Keeps one engine alive while the service lives, and takes it down when the service is gone, however it went.

A stand-alone script (standard library only): `python -I warden.py '<Spec as JSON>'`, with a pipe from the service
as stdin. The end of that pipe is the one sign of death that no signal, not even `kill -9`, can suppress.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

FIRST_BACKOFF = 0.2
LAST_BACKOFF = 5.0
HEALTHY_AFTER = 10.0
STOP_GRACE = 8.0

PR_SET_PDEATHSIG = 1
PR_SET_KEEPCAPS = 8
PR_SET_SECUREBITS = 28
SECBIT_NO_SETUID_FIXUP = 4
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
CAP_DAC_OVERRIDE = 1
CAP_DAC_READ_SEARCH = 2
CAPABILITY_VERSION_3 = 0x20080522


@dataclass(frozen=True)
class Spec:
    """What to run. `target` is made once, by running `prepare` on `scratch` and renaming that."""

    command: list[str]
    lock: str
    stop_signal: int
    orphan_signal: int
    env: dict[str, str]
    user: tuple[int, int] | None = None
    prepare: list[str] | None = None
    scratch: str = ""
    target: str = ""
    owned: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()


class ServiceGone(Exception):
    """The service stopped, was killed, or asked us to end."""


class Watch:
    """Waits for whichever comes first: the service's end, the end of a child, or a time-out."""

    def __init__(self) -> None:
        self._parent = os.getppid()
        self._terminated = False
        self._wake, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        # Handlers rather than SIG_IGN: an ignored signal stays ignored in the engine.
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGTERM, self._terminate)

    def _terminate(self, *_: object) -> None:
        self._terminated = True

    def pause(self, seconds: float) -> None:
        ready, _, _ = select.select([0, self._wake], [], [], seconds)
        if self._wake in ready:
            os.read(self._wake, 4096)
        closed = 0 in ready and not os.read(0, 4096)
        # A forked child of the service may hold the pipe open, so the parent is looked at as well.
        if closed or self._terminated or os.getppid() != self._parent:
            raise ServiceGone

    def sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.pause(min(left, 1.0))

    def wait(self, child: subprocess.Popen[bytes]) -> int:
        while (code := child.poll()) is None:
            self.pause(1.0)
        return code


def say(message: str) -> None:
    stamp = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    sys.stderr.write(f"{stamp} warden: {message}\n")
    sys.stderr.flush()


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapData(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


class Linux:
    """The calls of the Linux kernel that Python has no name for."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)

    def prctl(self, option: int, *arguments: int) -> None:
        padded = (*arguments, 0, 0, 0, 0)[:4]
        if self._libc.prctl(option, *(ctypes.c_ulong(value) for value in padded)) != 0:
            raise OSError(ctypes.get_errno(), f"prctl {option}")

    def folder_capability(self, program: str) -> int | None:
        """The weakest capability we hold that enters folders of other users, and may run the program there."""
        data = (_CapData * 2)()
        if self._libc.capget(ctypes.byref(_CapHeader(CAPABILITY_VERSION_3, 0)), data) != 0:
            return None
        for_all = Path(program).stat().st_mode & 0o001  # not so after an installation with umask 077
        wanted = (CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE) if for_all else (CAP_DAC_OVERRIDE,)
        return next((cap for cap in wanted if data[0].permitted & (1 << cap)), None)

    def survive_setuid(self) -> None:
        """Keep capabilities through setuid, and let access(2) honour them, by which PostgreSQL finds its files."""
        self.prctl(PR_SET_KEEPCAPS, 1)
        with contextlib.suppress(OSError):  # needs CAP_SETPCAP; matters only where the wheels are out of reach
            self.prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP)

    def keep_only(self, capability: int) -> None:
        """Hold on to one capability after setuid, and across exec."""
        bit = 1 << capability
        data = (_CapData * 2)(_CapData(bit, bit, bit), _CapData(0, 0, 0))
        if self._libc.capset(ctypes.byref(_CapHeader(CAPABILITY_VERSION_3, 0)), data) != 0:
            raise OSError(ctypes.get_errno(), "capset")
        self.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability)


def drop_to(user: tuple[int, int], program: str, linux: Linux | None) -> None:
    """Become `user`, still able to reach the wheels and the data below folders that only root may enter."""
    capability = linux.folder_capability(program) if linux else None
    if linux and capability is not None:
        linux.survive_setuid()
    os.setgroups([])
    os.setgid(user[1])
    os.setuid(user[0])
    if linux and capability is not None:
        with contextlib.suppress(OSError):  # without it the folders may still be open to all
            linux.keep_only(capability)


def entering(spec: Spec) -> Callable[[], None]:
    """What the child does between fork and exec. PDEATHSIG comes last: setuid clears it."""
    linux = Linux() if sys.platform == "linux" else None
    warden = os.getpid()

    def enter() -> None:
        if spec.user:
            drop_to(spec.user, spec.command[0], linux)
        if linux:
            linux.prctl(PR_SET_PDEATHSIG, spec.orphan_signal)
            if os.getppid() != warden:
                os._exit(1)

    return enter


def spawn(command: list[str], spec: Spec, lock: int) -> subprocess.Popen[bytes]:
    """Start a child in a process group of its own. It shares our lock, so the lock outlives us as long as it does."""
    return subprocess.Popen(  # noqa: S603 (the command comes from the service)
        command,
        stdin=subprocess.DEVNULL,
        cwd="/",
        env=spec.env,
        pass_fds=(lock,),
        process_group=0,
        preexec_fn=entering(spec),  # noqa: PLW1509 (we have one thread)
    )


def end(child: subprocess.Popen[bytes], stop_signal: int) -> None:
    """Ask the child to stop, then make it; and nothing of its group stays."""
    if child.poll() is None:
        child.send_signal(stop_signal)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(STOP_GRACE)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def record(lock: int, text: str) -> None:
    os.ftruncate(lock, 0)
    os.pwrite(lock, text.encode(), 0)


def run(command: list[str], spec: Spec, lock: int, watch: Watch) -> int:
    """Run one command to its end, or to the service's."""
    child = spawn(command, spec, lock)
    record(lock, str(child.pid))
    try:
        return watch.wait(child)
    finally:
        end(child, spec.stop_signal)
        record(lock, "")


def take_lock(spec: Spec, watch: Watch) -> int:
    """Wait until an engine that a killed service left behind is gone: two on the same files would ruin them."""
    lock = os.open(spec.lock, os.O_RDWR | os.O_CREAT, 0o600)
    nudge = True
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if nudge:
                stop_leftover(lock, spec.stop_signal)
            nudge = False
            watch.sleep(0.05)
        else:
            return lock


def stop_leftover(lock: int, stop_signal: int) -> None:
    """Its warden does this too, if that still lives; the lock being held says that the pid is not stale."""
    pid = os.pread(lock, 32, 0).decode(errors="replace")
    if pid.isdigit():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(int(pid), stop_signal)


def prepare(spec: Spec, lock: int, watch: Watch) -> None:
    """Make `target`, all or nothing: a crash half-way leaves only `scratch`, which the next start removes."""
    if not spec.prepare or any(Path(spec.target).glob("*")):
        return
    scratch, target = Path(spec.scratch), Path(spec.target)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700)
    if spec.user:
        os.chown(scratch, *spec.user)
    if code := run(spec.prepare, spec, lock, watch):
        raise OSError(f"{Path(spec.prepare[0]).name} failed with code {code}")
    scratch.rename(target)
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def give(folder: Path, user: tuple[int, int]) -> None:
    """Make `user` the owner of a folder and all in it, unless it is already."""
    if not folder.exists() or folder.stat().st_uid == user[0]:
        return
    for path in (*folder.rglob("*"), folder):
        os.chown(path, *user, follow_symlinks=False)


def tidy(spec: Spec) -> None:
    """With the lock just taken no engine lives, so pid files are stale, even where the pid is in use again."""
    for path in spec.stale:
        Path(path).unlink(missing_ok=True)
    if spec.user:
        for folder in spec.owned:
            give(Path(folder), spec.user)


def keep_alive(spec: Spec, lock: int, watch: Watch) -> None:
    """Run the engine, again and again, with a growing pause if it does not stay up."""
    backoff = FIRST_BACKOFF
    while True:
        began = time.monotonic()
        code = run(spec.command, spec, lock, watch)
        if time.monotonic() - began > HEALTHY_AFTER:
            backoff = FIRST_BACKOFF
        say(f"the engine ended with code {code}; starting it again in {backoff:.1f} s")
        watch.sleep(backoff)
        backoff = min(backoff * 2, LAST_BACKOFF)


def main(text: str) -> int:
    spec = Spec(**json.loads(text))
    watch = Watch()
    try:
        lock = take_lock(spec, watch)
        tidy(spec)
        prepare(spec, lock, watch)
        keep_alive(spec, lock, watch)
    except ServiceGone:
        return 0
    except (OSError, subprocess.SubprocessError) as error:
        say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
