"""Shared by all rooms: errors, text, files, HTTP on loopback, redaction and usage.

It must not know any other room. Start with `errors`.

Public modules: `arguments`, `errors`, `files`, `flags`, `formats`, `http`,
`http_server`, `installation`, `json_schema`, `lazy_types`, `redaction`, `secret_mark`, `sse`,
`step_names`, `terminal`, `text`, `untrusted_files`, `usage`.
"""
