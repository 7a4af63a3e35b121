"""The engine: build, check, run, record and resume a graph.

Pure: no file, network, terminal or agent.

Start with `builder` and `compile`, then `token`, which walks a compiled program.
"""
