"""Builds what a host needs, once and only when it is asked for, and hands it down: there is no global."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from atomic.commands import CommandRegistry, builtin_commands, entity_commands, workflow_commands
from atomic.config import Settings, find_project, load_settings
from atomic.entities import EntityRegistry
from atomic.mcp import McpList, load_mcp_entries
from atomic.workflows import WorkflowDefinition
from atomic.workflows.catalog import WorkflowCatalog


class Wiring:
    """The settings, entities, workflows, commands and MCP servers of one project and its user."""

    def __init__(self, project: Path | None = None, user: Path | None = None) -> None:
        self.project, self._user = project or find_project(), user

    @cached_property
    def settings(self) -> Settings:
        """Raises ConfigError."""
        return load_settings(self.project, None if self._user is None else self._user / ".atomic")

    @cached_property
    def entities(self) -> EntityRegistry:
        return EntityRegistry.load(self.project, self._user)

    @cached_property
    def commands(self) -> CommandRegistry:
        """All commands of the prompt."""
        workflows = workflow_commands(self.workflows.all())
        return CommandRegistry.of([*builtin_commands(), *workflows, *entity_commands(self.entities)])

    @cached_property
    def workflows(self) -> WorkflowCatalog:
        """Nothing of a project's code runs to find them."""
        return WorkflowCatalog(self.project, self._user)

    @cached_property
    def mcp(self) -> McpList:
        return load_mcp_entries(self.project, self._user)

    def refresh(self) -> bool:
        """See what changed on the disk since; whether the commands are others now."""
        changed = self.entities.refresh()
        if "workflows" in self.__dict__:
            fresh = WorkflowCatalog(self.project, self._user)
            changed = [*map(_facts, fresh.all())] != [*map(_facts, self.workflows.all())] or changed
            self.__dict__["workflows"] = fresh
        if changed:
            self.__dict__.pop("commands", None)  # computed anew when somebody asks
        return changed


def _facts(definition: WorkflowDefinition) -> tuple[object, ...]:
    return (*definition.aliases, definition.name, definition.description, definition.argument_hint, definition.path)
