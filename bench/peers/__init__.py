"""The other engines' side of each workload. Each module runs in an environment of its own (see environments.py)."""
