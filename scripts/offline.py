"""Run a command in a network that has loopback and nothing else: scripts/offline.py COMMAND [ARGUMENT ...].

Linux only; who is not root gets a user namespace as well, where the system allows that.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import sys

_SET_FLAGS = 0x8914  # SIOCSIFFLAGS
_UP_AND_RUNNING = 0x1 | 0x40
_INSIDE = "ATOMIC_OFFLINE"


def main(command: list[str]) -> None:
    if _INSIDE not in os.environ:
        namespaces = ["--net"] if os.geteuid() == 0 else ["--net", "--map-root-user"]
        os.environ[_INSIDE] = "1"
        os.execvp("unshare", ["unshare", *namespaces, sys.executable, __file__, *command])
    del os.environ[_INSIDE]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP_AND_RUNNING))
    os.execvp(command[0], command)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    main(sys.argv[1:])
