"""Arguments and changes that are refused, by fields of the errors and not by their texts."""
from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kafkastore.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ChangeRefusedError,
    RefusalReason,
)


@contextmanager
def refused(
    argument: str, kind: type[ArgumentTypeError] | type[ArgumentValueError] = ArgumentValueError
) -> Iterator[None]:
    """Expect the body to refuse an argument of this name."""
    with pytest.raises(kind) as caught:
        yield
    assert caught.value.argument == argument


@contextmanager
def change_refused(
    reason: str, path: str | os.PathLike[str] | None = None
) -> Iterator[pytest.ExceptionInfo[ChangeRefusedError]]:
    """Expect the body to refuse a change for a reason, about a path if one is given."""
    with pytest.raises(ChangeRefusedError) as caught:
        yield caught
    assert caught.value.reason is RefusalReason(reason)
    if path is not None:
        assert caught.value.path is not None
        assert os.fspath(caught.value.path) == os.fspath(path)


@contextmanager
def os_error(number: int) -> Iterator[None]:
    """Expect the body to fail with an OSError of this number."""
    with pytest.raises(OSError) as caught:  # noqa: PT011
        yield
    assert caught.value.errno == number
