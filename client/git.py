"""Where a job's source comes from, if it is a git repository: commit, branch, and a snapshot.

Owns `refs/ludwig/…`: a commit on top of HEAD whose tree is exactly what was sent, uncommitted and
untracked files included, each at its place in the repository. The user's index, working tree,
branches and stash are not touched, no hook runs and nothing is signed. That there is no git, no
repository or no permission is never an error: then there is less to tell.
"""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ludwig.client.snapshot import Source
from ludwig.model import Git

__all__ = ["git_snapshot"]

TIMEOUT_S = 120
OUTSIDE = ".outside"
"""The folder of a snapshot for what was sent from outside of the repository."""

_NAMES_MAX = 100


def git_snapshot(root: Path, source: Source, *, project: str, job: int) -> Git | None:
    """The state of the repository that `root` is in, with the snapshot of what was sent.

    None without git or a repository. The ref is `refs/ludwig/<job>`, or
    `refs/ludwig/<project>-<job>` where another project's job has that number; empty if the
    snapshot could not be made.
    """
    with tempfile.TemporaryDirectory(prefix="ludwig-git-") as no_hooks:
        try:
            top = _Git(root, no_hooks).text("rev-parse", "--show-toplevel")
        except (OSError, subprocess.SubprocessError):
            return None
        git = _Git(Path(top), no_hooks)
        commit = git.text_or_nothing("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        branch = git.text_or_nothing("symbolic-ref", "--short", "--quiet", "HEAD")
        places = _places(source, Path(top))
        return Git(
            commit=commit,
            dirty=_is_dirty(git, places),
            ref=_take_snapshot(git, source, places, commit, f"{project}-{job}", str(job)),
            branch=branch,
        )


class _Git:
    """Runs git in one repository, deaf to the surroundings it is called from."""

    def __init__(self, root: Path, no_hooks: str) -> None:
        self._command = ["git", "--no-optional-locks", "--literal-pathspecs", "-C", str(root)]
        for setting in (
            f"core.hooksPath={no_hooks}",
            "core.fsmonitor=false",
            "core.ignoreCase=false",
            "core.quotePath=false",
        ):
            self._command += ["-c", setting]
        local = ("DIR", "WORK_TREE", "INDEX_FILE", "PREFIX", "OBJECT_DIRECTORY", "NAMESPACE")
        drop = {f"GIT_{name}" for name in local}
        self._env = {name: value for name, value in os.environ.items() if name not in drop}
        self._env |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}

    def run(self, *arguments: str, stdin: Path | None = None) -> bytes:
        with (stdin or Path(os.devnull)).open("rb") as given:
            return subprocess.run(
                [*self._command, *arguments],
                stdin=given,
                capture_output=True,
                check=True,
                timeout=TIMEOUT_S,
                env=self._env,
            ).stdout

    def text(self, *arguments: str) -> str:
        return self.run(*arguments).decode("utf-8", "surrogateescape").rstrip("\r\n")

    def text_or_nothing(self, *arguments: str) -> str:
        try:
            return self.text(*arguments)
        except (OSError, subprocess.SubprocessError):
            return ""


def _places(source: Source, top: Path) -> dict[str, str]:
    """Archive name → path in the repository. A link is where it is, not where it leads."""
    top = top.resolve()
    places = {}
    for name, path in source.paths.items():
        place = path.parent.resolve() / path.name
        for parent in path.parents:  # A folder that is a link: its files are at its own place.
            if parent.is_symlink() and parent.parent.resolve().is_relative_to(top):
                place = parent.parent.resolve() / path.relative_to(parent.parent)
        inside = place.is_relative_to(top)
        places[name] = place.relative_to(top).as_posix() if inside else f"{OUTSIDE}/{name}"
    return places


def _is_dirty(git: _Git, places: dict[str, str]) -> bool:
    """Whether a tracked file differs from HEAD, or something was sent that is not tracked."""
    tracked = set(git.text_or_nothing("ls-files", "-z", "--full-name").split("\0"))
    if any(
        not place.startswith(f"{OUTSIDE}/") and place not in tracked for place in places.values()
    ):
        return True
    return bool(git.text_or_nothing("status", "--porcelain", "--untracked-files=no"))


def _take_snapshot(
    git: _Git, source: Source, places: dict[str, str], parent: str, long: str, short: str
) -> str:
    """Make the commit under the first name that is free; "" if that cannot be done.

    fast-import makes blobs, tree, commit and ref in one process, from the archive itself, so it is
    what was sent even if a file changed since. It does not move a ref that exists already.
    """
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", long)
    names = [short, safe, *(f"{safe}-{again}" for again in range(2, _NAMES_MAX))]
    try:
        taken = set(git.text("for-each-ref", "--format=%(refname)", "refs/ludwig/").splitlines())
        with tempfile.TemporaryDirectory(prefix="ludwig-git-") as folder:
            for name in names:
                ref = f"refs/ludwig/{name}"
                if ref in taken:
                    continue
                stream = Path(folder, "stream")
                with stream.open("wb") as file:
                    file.writelines(_stream(source, places, parent, ref, long))
                git.run("fast-import", "--quiet", "--date-format=now", stdin=stream)
                return ref
    except (OSError, subprocess.SubprocessError, tarfile.TarError):
        return ""
    return ""


def _stream(
    source: Source, places: dict[str, str], parent: str, ref: str, long: str
) -> Iterator[bytes]:
    """The input of fast-import."""
    modes: dict[str, bytes] = {}
    with tarfile.open(source.archive, mode="r|gz") as tar:
        for number, member in enumerate(tar, start=1):
            content = tar.extractfile(member)
            if content is None:
                continue
            yield b"blob\nmark :%d\ndata %d\n" % (number, member.size)
            while piece := content.read(1 << 20):
                yield piece
            yield b"\n"
            mode = b"100755" if member.mode & 0o100 else b"100644"
            modes[member.name] = b"M %s :%d " % (mode, number)
    message = f"Ludwig: what was sent as job {long}\n\nSHA-256 of the archive: {source.sha256}\n"
    yield b"commit %s\ncommitter Ludwig <ludwig@localhost> now\n" % ref.encode()
    yield b"data %d\n%s\n" % (len(message.encode()), message.encode())
    if parent:
        yield b"from %s\ndeleteall\n" % parent.encode()
    for name, line in modes.items():
        yield line + _quoted(places[name]) + b"\n"


def _quoted(path: str) -> bytes:
    text = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return b'"' + text.encode("utf-8", "surrogateescape") + b'"'
