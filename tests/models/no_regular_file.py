"""Kinds of paths that are not regular files, and how to create them."""

import os
import socket
from pathlib import Path


def make_socket(path):
    """Leave a socket; its path would be too long for the kernel."""
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


KINDS = {
    "a FIFO": os.mkfifo,
    "a socket": make_socket,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a directory": Path.mkdir,
    "a link to nothing": lambda path: path.symlink_to("/nowhere"),
    "a link that leads back to itself": lambda path: path.symlink_to(path.name),
}
