"""Options of the data source that are refused, by fields of the error and not by its text."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kafkastore.spark.source.option_values import OptionError, OptionProblem


@contextmanager
def option_refused(problem: str, *options: str) -> Iterator[pytest.ExceptionInfo[OptionError]]:
    """Expect the body to refuse options of these names for a kind of problem."""
    with pytest.raises(OptionError) as caught:
        yield caught
    assert (caught.value.problem, caught.value.options) == (OptionProblem(problem), options)
    assert "\n" not in str(caught.value)
