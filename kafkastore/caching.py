"""Properties that are computed once, for objects that threads share."""
from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from functools import cached_property
    from functools import cached_property as cached_until_refresh
else:
    if sys.version_info >= (3, 12):
        from functools import cached_property
    else:

        class cached_property(functools.cached_property):
            """The `functools.cached_property` of Python 3.12, which has no lock.

            Up to 3.11, a thread that computes a property of one object blocks all others that
            compute the same property of any object, and a process forked meanwhile forever.
            """

            def __get__(self, instance: Any, owner: Any = None) -> Any:
                """Compute the value; from then on it is an attribute, the same for all threads."""
                if instance is None:
                    return self
                return vars(instance).setdefault(self.attrname, self.func(instance))

    class cached_until_refresh(functools.cached_property):
        """A property stored in the object's `facts`, until a refresh.

        A thread that is still computing a value at a refresh stores it in the old dictionary.
        """

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            """Return the stored value, or compute it."""
            if instance is None:
                return self
            facts = instance.facts
            try:
                return facts[self.attrname]
            except KeyError:
                return facts.setdefault(self.attrname, self.func(instance))

        def __set__(self, instance: Any, value: Any) -> None:
            """Refuse to set a value: there would be two."""
            raise AttributeError(f"{self.attrname} can't be set")


__all__ = ["cached_property", "cached_until_refresh"]
