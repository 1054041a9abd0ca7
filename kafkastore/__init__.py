"""Read, check, repair and write Kafka log directories without a broker.

The public names are those of `public_names`, of `kafkastore.legacy` and `kafkastore.migration` and,
with the extra ``spark``, of `kafkastore.spark`. They are imported at the first use of one of them:
the command line prints its help, and handles Ctrl-C, before that.
"""
from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # typing's own takes longer to import than the rest
if TYPE_CHECKING:
    from kafkastore.public_names import *  # noqa: F403
else:

    def __getattr__(name):
        """Import all public names at the first use of one."""
        from importlib import import_module

        public = import_module("kafkastore.public_names")
        globals().update({each: getattr(public, each) for each in ("__all__", *public.__all__)})
        if name not in globals():
            raise AttributeError(f"module 'kafkastore' has no attribute {name!r}")
        return globals()[name]

    def __dir__():
        """List the public names too."""
        return sorted({*globals(), *__getattr__("__all__")})
