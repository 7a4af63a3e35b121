"""One execution of a workflow: agent calls, budget, events, the event log, and how it
ended.

Start with `executor`, the one path for every workflow and every host.

Public modules: `agent_calls`, `ended_run`, `endings`, `events`, `executor`, `host`,
`kept_tasks`, `limits`, `log_follower`, `open_agents`, `results`, `spending`, `subagents`.
"""
