"""Render transcript blocks as strips of a given width."""
