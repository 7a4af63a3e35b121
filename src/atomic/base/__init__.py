"""Shared by all rooms: errors, text, files, HTTP on loopback, redaction and usage.

It must not know any other room. Start with `errors`.
"""
