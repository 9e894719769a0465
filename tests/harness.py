"""What tests import: real servers, waiting, and the programs they need.

    from tests.harness import wait_until

The fixtures that go with it (`smb_share`, `smb_server`, `ssh_home`, `sftp_server`) are in
`tests/conftest.py`.
"""

from tests.processes import Daemon, release_port, reserve_port, wait_until
from tests.sftp_server import SftpServer, SshHome
from tests.smb_server import SmbServer, SmbShare
from tests.tools import program, require

__all__ = [
    "Daemon",
    "SftpServer",
    "SmbServer",
    "SmbShare",
    "SshHome",
    "program",
    "release_port",
    "require",
    "reserve_port",
    "wait_until",
]
