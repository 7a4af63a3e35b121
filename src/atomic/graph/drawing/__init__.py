"""Drawings of graphs as text, SVG and Mermaid.

Start reading with `tree`: what there is to draw.
"""
