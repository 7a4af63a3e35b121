"""The `atomic` command: one module per verb, plus arguments, output and completion.

Every start pays for its imports. `--version` and `--help` import only `main`, `verbs`
and `help`; a verb's module is imported when the verb runs. Start reading in `main.py`.

Public modules: `main`.
"""
