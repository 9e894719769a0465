"""Gives one attempt its own view of one file, then becomes it.

    isolate.py ENVIRONMENT_FD UID GID GROUPS SOURCE TARGET COMMAND…

Run as a file by the agent's own interpreter, as root or (with a user namespace) not. In a private
mount namespace SOURCE is bound read-only over TARGET; then it gives up root and executes COMMAND in
the environment read from the descriptor. That is not its own environment: the job's may name
libraries to load, and this is still root. No process namespace: the agent sees and signals the job.
"""

from __future__ import annotations

import ctypes
import os
import sys

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_SLAVE = 4096, 16384, 1 << 19
LOCKED = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC
"""Of the file system's own options, those that a user namespace may not take away."""

libc = ctypes.CDLL(None, use_errno=True)


def main(arguments: list[str]) -> None:
    descriptor, uid, gid, groups, source, target, *command = arguments
    environment = read_environment(int(descriptor))
    try:
        unshare()
        bind(source, target)
        if os.geteuid() == 0 and int(uid) != 0:
            os.setgroups([int(group) for group in groups.split(",") if group])
            os.setresgid(int(gid), int(gid), int(gid))
            os.setresuid(int(uid), int(uid), int(uid))
        os.execve(command[0], command, environment)  # noqa: S606 - a list, no shell
    except OSError as error:
        sys.exit(f"ludwig: the task cannot be given its own view of the drive: {error}")


def read_environment(descriptor: int) -> dict[bytes, bytes]:
    with os.fdopen(descriptor, "rb") as file:
        pairs = (line.partition(b"=") for line in file.read().split(b"\0") if line)
        return {name: value for name, _, value in pairs}


def unshare() -> None:
    """A mount namespace of our own, which still sees what is mounted outside later."""
    uid, gid = os.geteuid(), os.getegid()
    call("unshare", CLONE_NEWNS | (CLONE_NEWUSER if uid else 0))
    if uid:
        write("/proc/self/setgroups", "deny")
        write("/proc/self/uid_map", f"{uid} {uid} 1")
        write("/proc/self/gid_map", f"{gid} {gid} 1")
    call("mount", None, b"/", None, MS_REC | MS_SLAVE, None)


def bind(source: str, target: str) -> None:
    """Neither name may be a link: whoever can write to the drive would choose what is hidden."""
    flags = os.O_PATH | os.O_NOFOLLOW
    ends = [os.open(path, flags) for path in (source, target)]
    names = [f"/proc/self/fd/{end}".encode() for end in ends]
    call("mount", names[0], names[1], None, MS_BIND, None)
    for end in ends:
        os.close(end)
    options = (os.statvfs(target).f_flag & LOCKED) | MS_BIND | MS_REMOUNT | MS_RDONLY
    call("mount", None, os.fsencode(target), None, options, None)


def call(name: str, *arguments: object) -> None:
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def write(path: str, text: str) -> None:
    with open(path, "w") as file:  # noqa: PTH123
        file.write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
