"""Make golden data and archive it: ``python tests/golden/make OUTDIR``."""
import sys
from pathlib import Path

if not __package__:  # run as a directory: become the package that the modules know
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from make.command_line import main

sys.exit(main())
