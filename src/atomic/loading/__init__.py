"""Find, trust and load workflow files.

Nothing of a project runs before the user has trusted it.

Start with `catalog`.
"""
