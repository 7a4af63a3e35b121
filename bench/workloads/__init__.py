"""The hand-written bounds and Atomic's side of each workload."""
