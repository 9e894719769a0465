"""The two configuration files: what is read, what is refused, and how the refusal reads."""

import dataclasses
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ludwig import config
from ludwig.config import DriveConfig, NodeConfig, WorkerConfig, load_lab, load_worker
from ludwig.config_keys import split_address
from ludwig.errors import ConfigError

Write = Callable[..., Path]

DRIVE = '[drive]\nurl = "/media/research_data"\n'


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable or file of the person who runs the tests plays a part."""
    for name in list(os.environ):
        if name.startswith("LUDWIG_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user-config"))


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str, name: str = "ludwig.toml") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_the_lab_of_the_design(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(
        """
        [drive]
        url = "smb://fileserver:4450/research_data/lab/"
        mount = "/media/research_data"
        user = "ana"
        node_silent_s = 30
        encrypt = true

        [nodes.hoff]
        address = "hoff"
        user = "ludwig"
        inbox = "."
        [nodes.hebb]
        """
    )
    lab = load_lab(path)
    assert lab.drive == DriveConfig(
        url="smb://fileserver:4450/research_data/lab",
        mount=Path("/media/research_data"),
        user="ana",
        node_silent_s=30.0,
        encrypt=True,
    )
    assert lab.nodes == {
        "hoff": NodeConfig(address="hoff", user="ludwig", inbox="."),
        "hebb": NodeConfig(address="hebb"),
    }
    assert (lab.project, lab.path) == (None, path)


def test_a_path_as_drive_is_its_own_mount_and_relative_to_the_file(write: Write) -> None:
    path = write('[drive]\nurl = "data"')
    assert load_lab(path).drive.url == str(path.parent / "data")
    assert load_lab(path).drive.mount == path.parent / "data"


def test_home_and_variables_in_paths(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ana")
    monkeypatch.setenv("LAB", "linguistics")
    drive = load_lab(write('[drive]\nurl = "~/$LAB/data"\nmount = "${LAB}/x"')).drive
    assert drive.url == "/home/ana/linguistics/data"
    assert drive.mount is not None and drive.mount.parts[-2:] == ("linguistics", "x")
    with pytest.raises(ConfigError, match="environment variable that is not set"):
        load_lab(write('[drive]\nurl = "$NO_SUCH/data"'))


def test_a_folder_address_is_an_inbox_on_this_machine(write: Write) -> None:
    path = write(DRIVE + '[nodes.a]\naddress = "folder:inboxes/a"\n[nodes.b]\ninbox = "in"')
    nodes = load_lab(path).nodes
    assert nodes["a"].folder == path.parent / "inboxes" / "a"
    assert nodes["b"].folder is None
    assert nodes["b"].host_and_port == ("b", None)


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("hoff", ("hoff", None)),
        ("hoff.lab.edu:2222", ("hoff.lab.edu", 2222)),
        ("10.0.0.1:22", ("10.0.0.1", 22)),
        ("[::1]:2222", ("::1", 2222)),
        ("[fe80::1]", ("fe80::1", None)),
        ("fe80::1", ("fe80::1", None)),
    ],
)
def test_addresses(address: str, parts: tuple[str, int | None]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize("address", ["hoff:ssh", "hoff:0", "hoff:70000", "a b", "a/b", "x:1:2:y"])
def test_wrong_addresses(address: str, write: Write) -> None:
    with pytest.raises(ConfigError, match=r"ludwig\.toml: \[nodes\.a\] address"):
        load_lab(write(DRIVE + f'[nodes.a]\naddress = "{address}"'))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[drive]\nurll = "/x"', r"\[drive\] urll: there is no such key; did you mean 'url'\?"),
        ('[drives]\nurl = "/x"', r"drives: there is no such key; did you mean 'drive'\?"),
        ('url = "/x"\n' + DRIVE, r"ludwig.toml: url: this key belongs under \[drive\]"),
        (DRIVE + 'zzz = "/x"', r"zzz: there is no such key; the keys are encrypt, mount"),
        (DRIVE + '[nodes.a]\nadress = "a"', r"\[nodes.a\] adress: .*'address'"),
        (DRIVE + "[nodes.a]\nmount = 1", r"\[nodes.a\] mount: this key belongs under \[drive\]"),
        (DRIVE + "[nodes.a]\naddress = 7", r"\[nodes.a\] address = 7: must be text"),
        (DRIVE + '[nodes.a]\naddress = "me@a"', "put the user under `user`"),
        (DRIVE + "[nodes]\na = 1", r"\[nodes.a\] must be a table, not 1"),
        (DRIVE + '[nodes."a b"]', r"\[nodes.a b\]: host name 'a b'"),
        (DRIVE + "[nodes.Hoff]\n[nodes.hoff]", "differs from 'Hoff' by case alone"),
        ("nodes = 3\n" + DRIVE, "nodes must be tables"),
        ("drive = 3", r"\[drive\] must be a table, not 3"),
        ("[nodes.a]", r"\[drive\] url is missing: where the lab's .*LUDWIG_DRIVE_URL"),
        ('project = "a:b"\n' + DRIVE, 'project = "a:b": project name .* Windows'),
        ('[drive]\nurl = ""', r'url = "": must be text'),
        ('[drive]\nurl = "ftp://a/b"', "must be smb://"),
        ('[drive]\nurl = "smb://host"', "names no share"),
        ('[drive]\nurl = "smb://host:x/a"', "the port"),
        ('[drive]\nurl = "smb://ana:secret@host/a"', "put the user under `user`"),
        (DRIVE + "encrypt = 1", "encrypt = 1: must be true or false"),
        (DRIVE + "node_silent_s = 0", "node_silent_s = 0: must be from 0.2 to 86400"),
        (DRIVE + "node_silent_s = true", "node_silent_s = true: must be a number"),
        (DRIVE + "node_silent_s = nan", "must be from 0.2"),
        ("[drive]\nurl = oops", r"ludwig.toml: not valid TOML: .*line 2"),
    ],
)
def test_a_wrong_lab_file_is_named_with_its_key(write: Write, text: str, says: str) -> None:
    path = write(text)
    with pytest.raises(ConfigError, match=says) as caught:
        load_lab(path)
    assert str(caught.value).startswith(str(path))


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        load_lab(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_lab(tmp_path)
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_lab(tmp_path / "x.toml")


def test_the_password_of_a_url_is_not_repeated(write: Write) -> None:
    # The message quotes the value: a person who reads it over a shoulder must not learn it.
    with pytest.raises(ConfigError) as caught:
        load_lab(write('[drive]\nurl = "smb://ana:secret@host/a"'))
    assert "secret" not in str(caught.value)


def test_where_a_lab_is_found(write: Write, tmp_path: Path) -> None:
    deep = tmp_path / "home" / "project" / "src"
    deep.mkdir(parents=True)
    found = lambda: config.find_lab_config(deep, environ={})  # noqa: E731
    assert found() is None
    with pytest.raises(ConfigError, match=r"No lab configuration found: .*ludwig init"):
        load_lab(start=deep)
    last = write(DRIVE, "user-config/ludwig/ludwig.toml")
    if sys.platform == "linux":
        assert config.user_lab_config() == last
        assert found() == last
    above = write(DRIVE, "home/ludwig.toml")
    assert found() == above
    write('project = "trees"', "home/project/ludwig.toml")
    assert found() == above, "a file that only names a project is passed over"
    named = write(DRIVE, "elsewhere.toml")
    environ = {"LUDWIG_CONFIG": str(named)}
    assert config.find_lab_config(deep, environ=environ) == named
    lab = load_lab(start=deep, environ=environ)
    assert (lab.path, lab.project) == (named, "trees")
    assert load_lab(start=deep).path == above


def test_the_nearest_project_wins_and_its_file_is_checked(write: Write, tmp_path: Path) -> None:
    write('project = "outer"\n' + DRIVE)
    near = write('project = "inner"', "sub/ludwig.toml")
    assert load_lab(start=tmp_path).project == "outer"
    assert load_lab(start=tmp_path / "sub").project == "inner"
    environ = {"LUDWIG_PROJECT": "other"}
    assert load_lab(start=tmp_path / "sub", environ=environ).project == "other"
    near.write_text('project = "inner"\nprojet = "x"')
    with pytest.raises(ConfigError, match="projet: there is no such key; did you mean 'project'"):
        load_lab(start=tmp_path / "sub")


def test_a_lab_named_by_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.toml: there is no such file"):
        load_lab(environ={"LUDWIG_CONFIG": str(tmp_path / "gone.toml")})


def test_the_environment_wins(write: Write) -> None:
    path = write(DRIVE + '[nodes.my-node]\naddress = "x"\n[nodes.b]')
    environ = {
        "LUDWIG_DRIVE_URL": "smb://other/share",
        "LUDWIG_DRIVE_ENCRYPT": "yes",
        "LUDWIG_DRIVE_NODE_SILENT_S": "2.5",
        "LUDWIG_NODE_MY_NODE_ADDRESS": "y:2222",
        "LUDWIG_NODES": "my-node, extra",
    }
    lab = load_lab(path, environ=environ)
    assert lab.drive.url == "smb://other/share"
    assert lab.drive.mount is None
    assert (lab.drive.encrypt, lab.drive.node_silent_s) == (True, 2.5)
    assert lab.nodes == {
        "my-node": NodeConfig(address="y:2222"),
        "extra": NodeConfig(address="extra"),
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LUDWIG_DRIVE_ENCRYPT", "maybe"),
        ("LUDWIG_DRIVE_NODE_SILENT_S", "soon"),
        ("LUDWIG_DRIVE_NODE_SILENT_S", "-1"),
        ("LUDWIG_DRIVE_URL", "ftp://x/y"),
        ("LUDWIG_NODES", "a b"),
    ],
)
def test_a_wrong_variable_is_named(write: Write, name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"environment variable {name}"):
        load_lab(write(DRIVE), environ={name: value})


def test_everything_from_the_environment(tmp_path: Path) -> None:
    environ = {"LUDWIG_DRIVE_URL": str(tmp_path), "LUDWIG_NODES": "hoff"}
    lab = load_lab(start=tmp_path, environ=environ)
    assert (lab.path, list(lab.nodes)) == (None, ["hoff"])


def test_the_agent_of_the_design(write: Write) -> None:
    path = write(
        """
        hostname = "hoff"
        inbox = "/var/sftp/ludwig"
        work = "work"
        python = "/opt/ml/bin/python"
        slots = 3
        allow_users = ["ana"]
        [drive]
        url = "/media/research_data"
        node_silent_s = 8
        """,
        "worker.toml",
    )
    worker = load_worker(path)
    assert worker.hostname == "hoff"
    assert worker.work == path.parent / "work"
    assert worker.python == Path("/opt/ml/bin/python")
    assert (worker.slots, worker.allow_users) == (3, ("ana",))
    assert worker.beat_s == 2.0
    assert worker.path == path


def test_what_an_agent_is_by_default(write: Write) -> None:
    worker = load_worker(write(DRIVE, "worker.toml"))
    assert worker.inbox == Path("/var/sftp/ludwig")
    assert worker.work == Path("/var/lib/ludwig")
    assert worker.python == Path(sys.executable)
    assert (worker.slots, worker.beat_s, worker.grace_s) == ("gpus", 15.0, 10.0)
    assert worker.cpu_slots >= 1
    assert "." not in worker.hostname
    assert worker.user is None and worker.allow_users is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('inbx = "/x"\n' + DRIVE, "did you mean 'inbox'"),
        ("slots = 0\n" + DRIVE, "slots = 0: must be from 1"),
        ('slots = "all"\n' + DRIVE, 'must be "gpus" or a whole number'),
        ("slots = 1.5\n" + DRIVE, "slots = 1.5: must be a whole number"),
        ("slots = true\n" + DRIVE, "slots = true: must be a whole number"),
        ('hostname = "a/b"\n' + DRIVE, "host name 'a/b'"),
        ('hostname = "nul"\n' + DRIVE, "host name 'nul'"),
        ('allow_users = "ana"\n' + DRIVE, "must be a list of names"),
        ("beat_s = 31\n" + DRIVE, "beat_s = 31: must be at most half"),
        ("disk_max_percent = 101\n" + DRIVE, "must be from 1 to 100"),
        ('node_silent_s = 3\n[drive]\nurl = "/x"', r"this key belongs under \[drive\]"),
        ("slots = 1", r"\[drive\] url is missing"),
    ],
)
def test_a_wrong_agent_file_is_named_with_its_key(write: Write, text: str, says: str) -> None:
    path = write(text, "worker.toml")
    with pytest.raises(ConfigError, match=says) as caught:
        load_worker(path)
    assert str(caught.value).startswith(str(path))


def test_an_agent_from_the_environment(write: Write) -> None:
    path = write(DRIVE, "worker.toml")
    environ = {
        "LUDWIG_WORKER_CONFIG": str(path),
        "LUDWIG_WORKER_SLOTS": "2",
        "LUDWIG_WORKER_ALLOW_USERS": "ana, ben",
        "LUDWIG_WORKER_PYTHON": "python3",
    }
    worker = load_worker(environ=environ)
    assert (worker.slots, worker.allow_users) == (2, ("ana", "ben"))
    assert worker.python == Path("python3")


def test_every_key_is_described_and_has_its_own_variable() -> None:
    docs = config.describe_keys()
    assert all(doc.about and doc.kind and doc.env.startswith("LUDWIG_") for doc in docs)
    described = {doc.key for doc in docs if (doc.file, doc.section) == ("worker.toml", "")}
    own = {item.name for item in dataclasses.fields(WorkerConfig)}
    assert described == own - {"drive", "path"}
    variables = [doc.env for doc in docs if doc.section != "drive"]
    assert len(variables) == len(set(variables))
    assert [doc.key for doc in docs if doc.required] == ["url", "url"]
