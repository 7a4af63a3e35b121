"""The user's configuration of OpenCode, and what Atomic adds to it in memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from atomic.base.formats import parse_jsonc
from atomic.base.untrusted_files import read_bounded_text
from atomic.config.known_agents import OPENCODE_CONFIGS
from atomic.mcp import opencode_servers
from atomic.providers.base import AgentLike, McpServer
from atomic.providers.errors import ProviderError
from atomic.providers.model_names import named_model
from atomic.providers.opencode.tool_permissions import agent_permission

CONTENT = "OPENCODE_CONFIG_CONTENT"
_AGENTS = ("agent", "agents", "mode")  # version 2 of the configuration has plural names
_REFERENCE = re.compile(r"\{env:([^}]+)\}")
_ANY_REFERENCE = re.compile(r"\{(?=(?:env|file):)")
_BRACE = "\ue000"  # a brace that must be escaped in the JSON, so that OpenCode finds no reference
_TOOL_MILLISECONDS = 24 * 60 * 60 * 1000  # for one call of a custom tool


class UserConfiguration(msgspec.Struct, frozen=True):
    """The merged configuration, and the part from the environment."""

    merged: dict[str, Any]
    content: dict[str, Any]
    variables: frozenset[str]  # referenced by it

    def providers(self) -> set[str]:
        """Return the model providers that it names."""
        named = {*_object(self.merged.get("provider")), *_object(self.merged.get("providers"))}
        enabled = self.merged.get("enabled_providers")
        if isinstance(enabled, list):
            named.update(name for name in cast("list[Any]", enabled) if isinstance(name, str))
        models = [self.merged.get("model"), self.merged.get("small_model")]
        for group in _AGENTS:
            models += [_object(agent).get("model") for agent in _object(self.merged.get(group)).values()]
        return named | {model.partition("/")[0] for model in models if isinstance(model, str) and "/" in model}

    def servers(self) -> list[str]:
        """Return the MCP servers that it names."""
        older, newer = opencode_servers(_object(self.merged.get("mcp")))
        return list({**_object(newer), **older})


def read_user_configuration(env: Mapping[str, str]) -> UserConfiguration:
    """Read it as OpenCode does in that environment.

    A file that is not JSON is skipped: OpenCode reports it. Raise ProviderError if a
    file cannot be read, or if OPENCODE_CONFIG_CONTENT is not JSON, because Atomic could
    not add to it.
    """
    texts: list[str] = []
    for path in _files(env):
        try:
            texts.append(read_bounded_text(path))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise ProviderError(
                f"OpenCode's settings cannot be read: {path}: {error.strerror}",
                provider="opencode",
                remedy="make it a readable file of at most 1 MB, or move it away",
            ) from error
    merged: dict[str, Any] = {}
    for text in texts:
        try:
            merged = merge(merged, parse_jsonc(text))
        except ValueError:
            continue
    content = _content(env.get(CONTENT, ""))
    variables = frozenset(name for text in (*texts, env.get(CONTENT, "")) for name in _REFERENCE.findall(text))
    return UserConfiguration(merge(merged, content), content, variables)


def config_folder(env: Mapping[str, str]) -> Path:
    base = env.get("XDG_CONFIG_HOME")
    return (Path(base) if base else _home(env) / ".config") / "opencode"


def data_folder(env: Mapping[str, str]) -> Path:
    base = env.get("XDG_DATA_HOME")
    return (Path(base) if base else _home(env) / ".local" / "share") / "opencode"


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two configurations as OpenCode does: objects key by key, the rest replaced."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[key] = merge(cast("Mapping[str, Any]", old), cast("Mapping[str, Any]", value)) if both else value
    return result


def without_asking(config: Mapping[str, Any]) -> dict[str, Any]:
    """Change every `ask` to `allow`, because no user may be there to answer.

    Keep `deny`.
    """
    result = dict(config)
    if "permission" in result:
        result["permission"] = _allowed(result["permission"])
    if isinstance(result.get("permissions"), list):  # version 2 has a list of rules
        rules = cast("list[Any]", result["permissions"])
        result["permissions"] = [
            {**_object(rule), "effect": "allow"} if _object(rule).get("effect") == "ask" else rule for rule in rules
        ]
    for group in _AGENTS:
        if isinstance(result.get(group), Mapping):
            agents = _object(result[group]).items()
            result[group] = {
                name: without_asking(_object(one)) if isinstance(one, Mapping) else one for name, one in agents
            }
    return result


def agents_as_configuration(agents: Sequence[AgentLike], servers: Iterable[str]) -> dict[str, Any]:
    """Convert sub-agents. Raise ProviderError for an unknown model."""
    servers = list(servers)
    configured: dict[str, Any] = {}
    for agent in agents:
        config: dict[str, Any] = {"description": agent.description, "prompt": agent.prompt, "mode": "all"}
        if model := named_model(agent.model):
            config["model"] = "/".join(split_model(model))
        if agent.tools is not None:
            config["permission"] = agent_permission(agent.tools, servers)
        configured[agent.name] = config
    return configured


def servers_as_configuration(servers: Sequence[McpServer], disabled: Iterable[str]) -> dict[str, Any]:
    """Convert MCP servers, and disable others without changing their other settings."""
    configured: dict[str, Any] = {name: {"enabled": False} for name in disabled}
    for server in servers:
        if server.url is not None:
            config = {"type": "remote", "url": server.url, "headers": dict(server.headers)}
        else:
            config = {"type": "local", "command": list(server.command), "environment": dict(server.env)}
        configured[server.name] = {**config, "enabled": True}
    return configured


def tool_server_as_configuration(url: str, token: str) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {token}"}
    return {
        "type": "remote",
        "url": url,
        "headers": headers,
        "oauth": False,
        "enabled": True,
        "timeout": _TOOL_MILLISECONDS,
    }


def literally(value: Any) -> Any:
    """Mark braces in a value, so that OpenCode does not expand `{env:NAME}` or
    `{file:PATH}`.
    """
    if isinstance(value, str):
        return _ANY_REFERENCE.sub(_BRACE, value)
    if isinstance(value, Mapping):
        return {literally(key): literally(inner) for key, inner in _object(value).items()}
    if isinstance(value, list):
        return [literally(inner) for inner in cast("list[Any]", value)]
    return value


def encoded(content: Mapping[str, Any]) -> str:
    return msgspec.json.encode(content).decode().replace(_BRACE, "\\u007b")


def with_prompts_in_files(content: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Move the prompts of all agents to files: a variable holds at most 128 KB."""
    agents: dict[str, Any] = {}
    for number, (name, agent) in enumerate(_object(content.get("agent")).items()):
        prompt = _object(agent).get("prompt")
        if isinstance(prompt, str):
            file = folder / f"{number}.md"
            file.write_text(prompt.replace(_BRACE, "{"), "utf-8")
            agents[name] = {"prompt": f"{{file:{file}}}"}
    return merge(content, {"agent": agents})


def split_model(id: str) -> tuple[str, str]:
    """Split `provider/model`. Raise ProviderError."""
    provider, slash, model = id.partition("/")
    if not (provider and slash and model):
        raise ProviderError(
            f'OpenCode has no model "{id}"', provider="opencode", remedy="name it as provider/model, see: atomic models"
        )
    return provider, model


def _files(env: Mapping[str, str]) -> list[Path]:
    """Return the user's files; later ones win."""
    folder = config_folder(env)
    found = [folder / "config.json", *(folder / name for name in OPENCODE_CONFIGS)]
    if chosen := env.get("OPENCODE_CONFIG"):
        found.append(Path(chosen))
    found += [_home(env) / ".opencode" / name for name in OPENCODE_CONFIGS]
    if folder_chosen := env.get("OPENCODE_CONFIG_DIR"):
        found += [Path(folder_chosen) / name for name in OPENCODE_CONFIGS]
    return found


def _home(env: Mapping[str, str]) -> Path:
    return Path(env["HOME"]) if env.get("HOME") else Path.home()


def _content(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        return parse_jsonc(text)
    except ValueError as error:
        raise ProviderError(
            f"{CONTENT} is not JSON: {error}", provider="opencode", remedy="correct or remove it"
        ) from error


def _allowed(rules: Any) -> Any:
    if isinstance(rules, Mapping):
        return {name: _allowed(rule) for name, rule in _object(rules).items()}
    return "allow" if rules == "ask" else rules


def _object(value: Any) -> Mapping[str, Any]:
    """Return the object, an empty one for anything else."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
