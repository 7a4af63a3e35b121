"""`python -m atomic` is the `atomic` command."""

import sys

# Python puts the current folder first: a stranger's `json.py` there must not be ours.
if not sys.flags.safe_path:
    del sys.path[0]

from atomic.cli.main import main

sys.exit(main())
