"""`python -m atomic` is the `atomic` command."""

import sys

# Python searches the current folder first. Do not import a project's `json.py` from
# there.
if not sys.flags.safe_path:
    del sys.path[0]

from atomic.cli.main import main

sys.exit(main())
