"""Ralph: plan, work, check, review and fix until the work is done and proven, or the reason is known why not.

A workflow like any other: it is built with what workflow authors import, and nobody outside knows its name.
"""
