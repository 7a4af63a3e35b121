"""Find, trust and load workflow files.

Nothing of a project runs before the user has trusted it.

Start with `catalog`.

Public modules: `added`, `catalog`, `trusted_files`, `metadata`, `new_workflow`, `packages`,
`project_check`, `project_tools`, `run_changes`, `trust`, `trust_store`, `typed_files`.
"""
