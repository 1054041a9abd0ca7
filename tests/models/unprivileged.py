"""Run code as an unprivileged user; tests often run as root, who ignores permissions."""

import os
import pickle

NOBODY = 65534


def give_to_nobody(root):
    """Give a tree to the user of `as_nobody`."""
    if os.geteuid() == 0:
        for path in (root, *root.rglob("*")):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def as_nobody(function):
    """The result or error of a function in a child process without privileges."""
    if os.geteuid() != 0:
        return _outcome(function)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        with os.fdopen(write_end, "wb") as pipe:
            pipe.write(pickle.dumps(_outcome(function)))
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        outcome = pickle.loads(pipe.read())
    os.waitpid(child, 0)
    return outcome


def _outcome(function):
    try:
        return function()
    except Exception as error:
        return error
