"""Ralph: plan, work, check, review and fix until the work is done and proven, or the
user must decide.

It is a workflow like any other. Only the catalog of workflows, `atomic salvage` and
`atomic accept` know it by name. Start reading in `workflow.py`, then `task_nodes.py`.
The roles' instructions are in `entities/builtin/agents/`, the data of each prompt in
`prompts.py`, the report in `report.py`.

Public modules: `definition`, `file_copies`, `file_names`, `merge_run`, `opening`,
`position`, `report`, `users_files`.
"""
