"""`python -m atomic` is the `atomic` command."""

import sys

from atomic.cli.main import main

sys.exit(main())
