"""The snapshot ref: exactly what was sent, and nothing of the user's touched."""

import os
import subprocess
from pathlib import Path

import pytest

from ludwig.client.git import git_snapshot
from ludwig.client.snapshot import Source, pack
from ludwig.model import Git

pytestmark = pytest.mark.needs_git


@pytest.fixture(autouse=True)
def plain_git(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in list(os.environ):
        if name.startswith("GIT_") and name != "GIT_CONFIG_NOSYSTEM":
            monkeypatch.delenv(name)


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=Ana", "-c", "user.email=ana@lab", *arguments]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.rstrip("\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with one commit and all kinds of changes since."""
    folder = tmp_path / "trees"
    (folder / "src").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "trunk")
    (folder / "run.py").write_text("import src\n")
    (folder / "src/net.py").write_text("x = 1\n")
    (folder / "src/gone.py").write_text("gone = 1\n")
    (folder / "README").write_text("not sent\n")
    (folder / ".gitignore").write_text("*.log\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def change(root: Path) -> None:
    (root / "src/net.py").write_text("x = 2\n")
    (root / "src/gone.py").unlink()
    (root / 'src/new file "ü\\.py').write_text("new\n")
    (root / "src/a.log").write_text("ignored\n")
    (root / "src/staged.py").write_text("staged\n")
    git(root, "add", "src/staged.py")
    (root / "src/staged.py").write_text("changed after staging\n")
    (root / "run.py").chmod(0o755)


def send(root: Path, *sources: str) -> Source:
    paths = [Path(name) for name in sources or ("src",)]
    return pack(paths, root=root, entry="run.py", out=root.parent / "out")


def snapshot(root: Path, *sources: str, project: str = "trees", job: int = 17) -> Git:
    result = git_snapshot(root, send(root, *sources), project=project, job=job)
    assert result is not None
    return result


def content(root: Path, ref: str) -> dict[str, str]:
    names = git(root, "ls-tree", "-r", "-z", "--name-only", ref).split("\0")
    return {name: git(root, "show", f"{ref}:{name}") for name in names if name}


def everything_of_the_user(root: Path) -> tuple[object, ...]:
    index = root / ".git/index"
    return (
        git(root, "for-each-ref", "refs/heads", "refs/tags", "refs/stash", "refs/remotes"),
        git(root, "status", "--porcelain"),
        git(root, "stash", "list"),
        (root / ".git/HEAD").read_text(),
        index.read_bytes() if index.exists() else None,
        sorted((str(p), p.stat().st_mtime_ns) for p in (root / "src").rglob("*")),
    )


def test_a_clean_tree(root: Path) -> None:
    found = snapshot(root)
    assert found == Git(
        commit=git(root, "rev-parse", "HEAD"), dirty=False, ref="refs/ludwig/17", branch="trunk"
    )
    assert git(root, "rev-parse", "refs/ludwig/17^") == found.commit
    assert set(content(root, found.ref)) == {"run.py", "src/net.py", "src/gone.py"}


def test_uncommitted_and_untracked_files_and_nothing_touched(root: Path) -> None:
    change(root)
    git(root, "stash", "list")
    before = everything_of_the_user(root)
    found = snapshot(root)
    assert everything_of_the_user(root) == before
    assert found.dirty and found.ref == "refs/ludwig/17"
    assert content(root, found.ref) == {
        "run.py": "import src",
        "src/net.py": "x = 2",
        'src/new file "ü\\.py': "new",
        "src/staged.py": "changed after staging",
    }
    assert git(root, "ls-tree", found.ref, "run.py").startswith("100755 ")
    assert git(root, "diff", found.ref, "--", "src/net.py") == ""
    (root / "src/net.py").write_text("x = 3\n")
    assert "-x = 2" in git(root, "diff", "refs/ludwig/17")


def test_what_was_sent_even_if_files_changed_since(root: Path) -> None:
    source = send(root)
    (root / "src/net.py").write_text("later\n")
    found = git_snapshot(root, source, project="trees", job=1)
    assert found is not None
    assert content(root, found.ref)["src/net.py"] == "x = 1"


@pytest.mark.parametrize("how", ["modified", "untracked", "deleted", "staged"])
def test_dirty(root: Path, how: str) -> None:
    if how == "modified":
        (root / "src/net.py").write_text("x = 5\n")
    elif how == "untracked":
        (root / "src/more.py").write_text("")
    elif how == "deleted":
        (root / "src/gone.py").unlink()
    else:
        (root / "README").write_text("other")
        git(root, "add", "README")
    assert snapshot(root).dirty


def test_untracked_files_that_are_not_sent_do_not_count(root: Path) -> None:
    (root / "notes.txt").write_text("")
    assert not snapshot(root).dirty


def test_a_number_that_another_project_has(root: Path) -> None:
    refs = [snapshot(root, project=name).ref for name in ("trees", "a b:c", "a b:c")]
    assert refs == ["refs/ludwig/17", "refs/ludwig/a_b_c-17", "refs/ludwig/a_b_c-17-2"]


def test_a_repository_without_commits(tmp_path: Path) -> None:
    root = tmp_path / "fresh"
    (root / "src").mkdir(parents=True)
    (root / "run.py").write_text("1")
    (root / "src/a.py").write_text("2")
    git(root, "init", "-q", "-b", "trunk")
    found = snapshot(root)
    assert (found.commit, found.dirty, found.branch) == ("", True, "trunk")
    assert content(root, found.ref) == {"run.py": "1", "src/a.py": "2"}
    assert git(root, "rev-list", "--count", found.ref) == "1"


def test_a_detached_head(root: Path) -> None:
    git(root, "checkout", "-q", "--detach")
    assert snapshot(root).branch == ""


def test_a_worktree(root: Path, tmp_path: Path) -> None:
    git(root, "worktree", "add", "-q", str(tmp_path / "tree"), "-b", "side")
    (tmp_path / "tree/src/net.py").write_text("side\n")
    found = snapshot(tmp_path / "tree")
    assert found.branch == "side"
    assert content(root, found.ref)["src/net.py"] == "side"


def test_a_project_in_a_folder_of_a_repository_and_source_from_outside(root: Path) -> None:
    project = root / "projects/one"
    (project / "pkg").mkdir(parents=True)
    (project / "pkg/a.py").write_text("a")
    (project / "run.py").write_text("r")
    (root.parent / "lib").mkdir()
    (root.parent / "lib/b.py").write_text("b")
    (project / "pkg/linked.py").symlink_to("a.py")
    (project / "pkg/folder").symlink_to("../more")
    (project / "more").mkdir()
    (project / "more/c.py").write_text("c")
    found = snapshot(project, "pkg", "../../../lib", "../../src")
    assert content(root, found.ref) == {
        ".outside/lib/b.py": "b",
        "projects/one/pkg/a.py": "a",
        "projects/one/pkg/folder/c.py": "c",
        "projects/one/pkg/linked.py": "a",
        "projects/one/run.py": "r",
        "src/gone.py": "gone = 1",
        "src/net.py": "x = 1",
    }


def test_no_hook_runs_and_nothing_is_signed(root: Path) -> None:
    trace = root.parent / "trace"
    for name in ("pre-commit", "post-commit", "reference-transaction", "post-index-change"):
        hook = root / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\necho {name} >> {trace}\n")
        hook.chmod(0o755)
    git(root, "config", "commit.gpgSign", "true")
    git(root, "config", "gpg.program", "/bin/false")
    git(root, "config", "core.fsmonitor", str(root / ".git/hooks/pre-commit"))
    assert snapshot(root).ref == "refs/ludwig/17"
    assert not trace.exists()


def test_filters_of_the_repository_change_nothing(root: Path) -> None:
    (root / ".gitattributes").write_text("*.py text eol=lf filter=upper\n")
    git(root, "config", "filter.upper.clean", "tr a-z A-Z")
    (root / "src/net.py").write_bytes(b"x = 9\r\n")
    found = snapshot(root)
    shown = subprocess.run(
        ["git", "cat-file", "blob", f"{found.ref}:src/net.py"], cwd=root, capture_output=True
    )
    assert shown.stdout == b"x = 9\r\n"


def test_called_from_inside_a_hook(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nonexistent/index")
    source = send(root)
    found = git_snapshot(root, source, project="trees", job=3)
    assert found is not None and found.ref == "refs/ludwig/3"


def test_no_repository_and_no_git(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = send(root)
    (tmp_path / "plain").mkdir()
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    assert git_snapshot(tmp_path / "plain", source, project="p", job=1) is None
    monkeypatch.setenv("PATH", str(tmp_path / "plain"))
    assert git_snapshot(root, source, project="p", job=1) is None


def test_a_snapshot_that_cannot_be_made(root: Path) -> None:
    (root / ".git/refs/ludwig").write_text("in the way")
    found = snapshot(root)
    assert found.commit and found.ref == ""
