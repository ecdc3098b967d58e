#!/usr/bin/env python3
# A test tool in one dense file, kept apart from the project's style.
# ruff: noqa
# pyright: basic, reportOptionalMemberAccess=false
"""fakellm: a scripted, loopback-only stand-in for the cloud LLM APIs.

One stdlib-only file.  It speaks enough of four wire protocols that the real
agent CLIs (Claude Code, Codex, Gemini CLI, Copilot CLI, OpenCode) run against
it unmodified, headless or in a TUI, with no network at all:

  Anthropic Messages      POST .../v1/messages  (+ /count_tokens), SSE or JSON
  OpenAI Responses        POST .../responses                     SSE or JSON
  OpenAI Chat Completions POST .../chat/completions              SSE or JSON
  Gemini                  POST .../models/M:generateContent, :streamGenerateContent,
                               :countTokens                      SSE or JSON
  model lists             GET  .../models

What it answers is decided by a *scenario*: a list of steps.  Step 0 answers
the first model request after a user prompt, step 1 the request that carries
the result of step 0's tool call, and so on.  The step is derived from the
conversation in the request itself, so the server keeps no session state and
any number of CLIs can use one server in parallel.

Which scenario applies (first match wins):
  1. a directive in the newest user prompt:  [[fakellm:edit]]  or inline JSON
     [[fakellm:[{"shell":"ls"},{"text":"ok"}]]]
  2. the base URL:  http://127.0.0.1:PORT/s/SCENARIO/...   (or /s/SCENARIO~KEY/...,
     KEY is any string that keeps failure counters of parallel runs apart)
  3. the server's default scenario (--default, or POST /_fakellm/default)

`build_reply` and `error_response` show the step fields; the settings each CLI
needs are written and printed by `fakellm.py setup CLI --home DIR`.

Use as a library:

    from fakellm import FakeLLM
    with FakeLLM() as llm:
        llm.add_scenario("mine", [{"shell": "echo hi > a.txt"}, {"text": "done"}])
        run = llm.setup("claude", home=tmp, cwd=repo, scenario="mine")
        subprocess.run([*run.argv, "go"], env={**os.environ, **run.env}, cwd=repo, stdin=subprocess.DEVNULL)
        assert llm.requests(scenario="mine")[-1]["status"] == 200
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import itertools
import json
import os
import re
import select
import shlex
import signal
import socket
import sys
import tempfile
import threading
import time
import uuid
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Iterator, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

__version__ = "1.0"

MAX_HANG_SECONDS = 900.0

# --------------------------------------------------------------------------
# Scenarios
# --------------------------------------------------------------------------

#: Scenarios that are always there.  A scenario is a list of steps, or a dict
#: {"steps": [...], "defaults": {...step fields merged under every step...}}.
BUILTIN: dict[str, Any] = {
    "text": [{"text": "Hello from fakellm."}],
    "edit": [
        {
            "text": "I will write the file.",
            "write": {"path": "fakellm.txt", "content": "written by fakellm\n"},
        },
        {"text": "Done: fakellm.txt is written."},
    ],
    "shell": [
        {"shell": "echo shell-ok > fakellm-shell.txt && cat fakellm-shell.txt"},
        {"text": "Done. The tool said: {tool_result}"},
    ],
    "edit-shell": [
        {"write": {"path": "fakellm.txt", "content": "written by fakellm\n"}},
        {"shell": "wc -c fakellm.txt"},
        {"text": "Done: one file written, one command run. The tool said: {tool_result}"},
    ],
    "think": [{"thinking": "Let me think about it.", "text": "Thought about it."}],
    "echo": [{"text": "[{n_prompts} prompts so far] first={first_prompt} last={prompt}"}],
    "long": [*({"shell": f"sleep 1; echo step {i}"} for i in range(1, 6)), {"text": "Five steps done."}],
    "loop": {"steps": [{"shell": "echo again"}], "repeat": True},
    "sleep-tool": [{"shell": "timeout 300 tail -f /dev/null"}, {"text": "Slept."}],
    "slow": [
        {
            "text": "This answer comes one small piece at a time, slowly. " * 6,
            "chunk_size": 8,
            "chunk_delay": 0.25,
        }
    ],
    "slow-edit": [
        {
            "text": "Slowly now. " * 10,
            "chunk_size": 8,
            "chunk_delay": 0.2,
            "write": {"path": "fakellm.txt", "content": "written by fakellm\n"},
        },
        {"text": "Done: fakellm.txt is written."},
    ],
    "hang": [{"hang": "before_headers"}],
    "hang-mid-stream": [{"text": "The first half of an answer that never", "hang": "mid_stream"}],
    "hang-after-tool": [{"shell": "echo one"}, {"hang": "before_headers"}],
    "disconnect": [{"text": "The first half of an answer that is cut", "disconnect": "mid_stream"}],
    "rate-limit": [{"fail": {"status": 429, "retry_after": 1}}],
    "rate-limit-once": [
        {"fail": {"status": 429, "retry_after": 1, "times": 1}, "text": "Hello after one 429."}
    ],
    "rate-limit-after-tool": [{"shell": "echo one"}, {"fail": {"status": 429, "retry_after": 1}}],
    "usage-limit": [{"fail": {"kind": "usage_limit", "status": 429, "resets_in": 3600}}],
    "overloaded": [{"fail": {"kind": "overloaded"}}],
    "server-error": [{"fail": {"status": 500}}],
    "server-error-once": [{"fail": {"status": 500, "times": 1}, "text": "Hello after one 500."}],
    "auth-error": [{"fail": {"status": 401}}],
    "forbidden": [{"fail": {"status": 403}}],
    "not-found": [{"fail": {"status": 404}}],
    "bad-request": [{"fail": {"status": 400}}],
    "context-overflow": [{"fail": {"kind": "context_overflow"}}],
    "stream-error": [{"text": "The first half of an answer and then", "stream_error": True}],
    "max-tokens": [{"text": "An answer that was cut by the output token li", "stop": "max_tokens"}],
    "refusal": [{"text": "I cannot help with that.", "stop": "refusal"}],
    "empty": [{"text": ""}],
    "rate-limit-headers": [
        {
            "text": "Hello, and you are near your limit.",
            "headers": {
                "anthropic-ratelimit-unified-status": "allowed_warning",
                "anthropic-ratelimit-unified-reset": "{in_1h}",
                "anthropic-ratelimit-unified-representative-claim": "five_hour",
                "anthropic-ratelimit-unified-5h-status": "allowed_warning",
                "anthropic-ratelimit-unified-5h-reset": "{in_1h}",
                "anthropic-ratelimit-unified-5h-utilization": "0.92",
                "anthropic-ratelimit-unified-7d-status": "allowed",
                "anthropic-ratelimit-unified-7d-reset": "{in_1d}",
                "anthropic-ratelimit-unified-7d-utilization": "0.41",
                "x-codex-primary-used-percent": "92",
                "x-codex-primary-window-minutes": "300",
                "x-codex-primary-reset-at": "{in_1h}",
                "x-codex-secondary-used-percent": "41",
                "x-codex-secondary-window-minutes": "10080",
                "x-codex-secondary-reset-at": "{in_1d}",
            },
        }
    ],
    "big-usage": [
        {"text": "A nearly full context.", "usage": {"input": 3000, "cache_read": 180000, "output": 500}}
    ],
}


def scenario_parts(raw: Any) -> tuple[list[dict], dict, bool]:
    """Normalise a scenario to (steps, defaults, repeat)."""
    if isinstance(raw, dict) and "steps" in raw:
        return list(raw["steps"]), dict(raw.get("defaults") or {}), bool(raw.get("repeat"))
    if isinstance(raw, dict):
        return [raw], {}, False
    return list(raw), {}, False


# --------------------------------------------------------------------------
# What a request is about, whatever the protocol
# --------------------------------------------------------------------------


class Convo:
    """A protocol-neutral view of one model request."""

    def __init__(self, api: str, body: dict, model: str, stream: bool):
        self.api = api
        self.body = body
        self.model = model
        self.stream = stream
        self.system = ""
        self.context = ""  # raw user turns, CLI-injected parts included
        self.tools: dict[str, dict] = {}  # name -> JSON schema of its input
        self.custom_tools: set[str] = set()  # OpenAI "custom" (free-form) tools
        self.turns: list[tuple[str, str]] = []  # ("user"|"assistant"|"tool", text)
        self.schema: dict | None = None  # wanted JSON output, if any
        self.namespaces: dict[str, str] = {}  # tool -> Responses API namespace

    def user_text(self, text: str, with_results: bool = False) -> None:
        """Take in the text of a user turn.  Next to tool results it is a remark the CLI
        (or the user, mid-turn) made, not a new prompt, unless it starts a new job."""
        self.context += "\n" + text
        text = strip_injected(text)
        interrupted = INTERRUPTED.search(text)
        text = INTERRUPTED.sub("", text).strip()
        if text and (not with_results or interrupted or DIRECTIVE.search(text)):
            self.turns.append(("user", text))

    @property
    def prompts(self) -> list[str]:
        return [text for who, text in self.turns if who == "user"]

    @property
    def step(self) -> int:
        """Model answers given since the newest real user prompt."""
        count, last = 0, None
        for who, _ in reversed(self.turns):
            if who == "user":
                break
            if who == "assistant" and last != "assistant":
                count += 1
            last = who
        return count

    @property
    def tool_result(self) -> str:
        for who, text in reversed(self.turns):
            if who == "tool":
                return text
        return ""

    def cwd(self) -> str | None:
        """The CLI's working directory, as it told the model."""
        text = self.system + "\n" + self.context
        for pattern in CWD_PATTERNS:
            found = re.search(pattern, text)
            if found:
                return found.group(1).strip().rstrip("/") or "/"
        return None


DIRECTIVE = re.compile(r"\[\[fakellm:\s*(.+?)\s*\]\](?!\])", re.S)
INTERRUPTED = re.compile(r"\[Request interrupted by user[^\]]*\]")

CWD_PATTERNS = [
    r"<cwd>([^<\n]+)</cwd>",  # codex
    r"[Pp]rimary working directory:\s*`?(/[^\n`]*)",  # claude
    r"[Cc]urrent working directory(?: is)?:?\s*`?(/[^\n`]*)",  # copilot, gemini
    r"working in the following director(?:y|ies):\s*(?:-\s*)?`?(/[^\n`]*)",
    r"[Ww]orkspace [Dd]irector(?:y|ies):\**\s*(?:-\s*)?`?(/[^\n`]*)",  # gemini
    r"[Ww]orking directory:\s*`?(/[^\n`]*)",  # opencode
    r"directory:\s*`?(/[^\n`]*)",
]


def as_text(content: Any) -> str:
    """The text in any protocol's content value."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(filter(None, (as_text(c) for c in content)))
    if isinstance(content, dict):
        for key in ("text", "content", "output", "parts", "response", "result", "thinking"):
            if key in content and content[key] not in (None, ""):
                return as_text(content[key])
        return ""
    return str(content)


#: Text the CLIs put into user turns by themselves; not a prompt of the user's.
INJECTED = re.compile(
    r"<(system-reminder|environment_context|user_instructions|permissions[^>]*|session_context|"
    r"current_datetime|turn_aborted|reminder|todo_status|sql_tables|system_notification|skills_instructions|"
    r"collaboration_mode|apps_instructions|plugins_instructions|recommended_plugins|INSTRUCTIONS)\b[^>]*>"
    r".*?</\1\s*>|<(?:permissions instructions)>.*?</permissions instructions>",
    re.S,
)


def strip_injected(text: str) -> str:
    return INJECTED.sub("", text).strip()


def parse_anthropic(body: dict) -> Convo:
    c = Convo("anthropic", body, body.get("model", "?"), bool(body.get("stream")))
    c.system = as_text(body.get("system"))
    for t in body.get("tools") or []:
        if t.get("input_schema") is not None:
            c.tools[t["name"]] = t["input_schema"]
    for m in body.get("messages") or []:
        content = m.get("content")
        blocks = content if isinstance(content, list) else [{"type": "text", "text": as_text(content)}]
        if m.get("role") == "assistant":
            c.turns.append(("assistant", as_text([b for b in blocks if b.get("type") == "text"])))
            continue
        results = [b for b in blocks if b.get("type") == "tool_result"]
        for b in results:
            c.turns.append(("tool", as_text(b.get("content"))))
        if m.get("role") != "user":  # Claude Code sends its environment as role "system"
            c.system += "\n" + as_text(blocks)
            continue
        c.user_text(as_text([b for b in blocks if b.get("type") == "text"]), bool(results))
    fmt = (body.get("output_config") or {}).get("format") or body.get("output_format")
    if isinstance(fmt, dict) and fmt.get("schema"):
        c.schema = fmt["schema"]
    return c


def parse_responses(body: dict) -> Convo:
    c = Convo("responses", body, body.get("model", "?"), bool(body.get("stream")))
    c.system = as_text(body.get("instructions"))

    def add_tool(t: dict, namespace: str | None = None) -> None:
        kind, name = t.get("type"), t.get("name")
        if kind == "function" and name:
            c.tools[name] = t.get("parameters") or {}
        elif kind == "custom" and name:
            c.tools[name] = {}
            c.custom_tools.add(name)
        elif kind == "namespace":
            for sub in t.get("tools") or []:
                add_tool(sub, name)
        elif kind == "local_shell":
            c.tools["local_shell"] = {}
        if namespace and name:
            c.namespaces[name] = namespace

    for t in body.get("tools") or []:
        add_tool(t)
    items: Any = body.get("input")
    if isinstance(items, str):
        items = [{"type": "message", "role": "user", "content": items}]
    for it in items or []:
        kind = it.get("type") or "message"
        if kind == "message":
            role, text = it.get("role"), as_text(it.get("content"))
            if role == "assistant":
                c.turns.append(("assistant", text))
            elif role == "user":
                if not text.startswith("# AGENTS.md instructions"):
                    c.user_text(text)
            else:
                c.system += "\n" + text
        elif kind == "additional_tools":
            for t in it.get("tools") or []:
                add_tool(t)
        elif kind.endswith("_output"):
            c.turns.append(("tool", as_text(it.get("output"))))
        elif kind.endswith("_call") or kind == "reasoning":
            c.turns.append(("assistant", ""))
    fmt = (body.get("text") or {}).get("format") or {}
    if fmt.get("type") == "json_schema":
        c.schema = fmt.get("schema") or {}
    return c


def parse_chat(body: dict) -> Convo:
    c = Convo("chat", body, body.get("model", "?"), bool(body.get("stream")))
    for t in body.get("tools") or []:
        if t.get("type") == "custom":
            name = str((t.get("custom") or {}).get("name"))
            c.tools[name] = {}
            c.custom_tools.add(name)
        elif t.get("function"):
            c.tools[t["function"]["name"]] = t["function"].get("parameters") or {}
    for m in body.get("messages") or []:
        role, text = m.get("role"), as_text(m.get("content"))
        if role in ("system", "developer"):
            c.system += "\n" + text
        elif role == "assistant":
            c.turns.append(("assistant", text))
        elif role == "tool":
            c.turns.append(("tool", text))
        elif role == "user":
            c.user_text(text)
    fmt = body.get("response_format") or {}
    if fmt.get("type") == "json_schema":
        c.schema = (fmt.get("json_schema") or {}).get("schema") or {}
    return c


def parse_gemini(body: dict, model: str, stream: bool) -> Convo:
    c = Convo("gemini", body, model, stream)
    c.system = as_text(body.get("systemInstruction") or body.get("system_instruction"))
    for t in body.get("tools") or []:
        for f in t.get("functionDeclarations") or t.get("function_declarations") or []:
            c.tools[f["name"]] = f.get("parametersJsonSchema") or f.get("parameters") or {}
    for m in body.get("contents") or []:
        parts = m.get("parts") or []
        text = as_text([p for p in parts if "text" in p and not p.get("thought")])
        if m.get("role") == "model":
            c.turns.append(("assistant", text))
            continue
        results = [p["functionResponse"] for p in parts if "functionResponse" in p]
        for r in results:
            c.turns.append(("tool", as_text(r.get("response"))))
        c.user_text(text, bool(results))
    gen = body.get("generationConfig") or {}
    if gen.get("responseMimeType") == "application/json":
        c.schema = gen.get("responseJsonSchema") or gen.get("responseSchema") or {}
    return c


# --------------------------------------------------------------------------
# What to answer
# --------------------------------------------------------------------------


class Reply:
    """A protocol-neutral answer."""

    def __init__(self) -> None:
        self.thinking = ""
        self.text = ""
        self.calls: list[tuple[str, Any]] = []  # (tool name, input dict | free-form str)
        self.usage: dict[str, int] = {}
        self.stop: str | None = None  # max_tokens | refusal | None
        self.opts: dict[str, Any] = {}  # delays, hangs, headers ...


SHELL_TOOLS = [
    "Bash",
    "bash",
    "exec_command",
    "shell_command",
    "run_shell_command",
    "shell",
    "local_shell",
    "run_terminal_cmd",
    "execute_command",
    "terminal",
    "powershell",
]
WRITE_TOOLS = ["Write", "write", "write_file", "create", "create_file", "edit_file", "str_replace_editor"]
PATCH_TOOLS = ["apply_patch"]


def schema_example(schema: dict | None, root: dict | None = None, depth: int = 0) -> Any:
    """The smallest value that satisfies a JSON schema, near enough."""
    schema = schema or {}
    root = root or schema
    if depth > 8:
        return None
    if "$ref" in schema:
        node: Any = root
        for part in schema["$ref"].lstrip("#/").split("/"):
            node = node.get(part, {}) if isinstance(node, dict) else {}
        return schema_example(node, root, depth + 1)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return schema_example(schema[key][0], root, depth + 1)
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((k for k in kind if k != "null"), "null")
    kind = str(kind or ("object" if "properties" in schema else "string")).lower()
    if kind == "object":
        props = schema.get("properties") or {}
        return {k: schema_example(props.get(k), root, depth + 1) for k in schema.get("required") or []}
    if kind == "array":
        n = int(schema.get("minItems") or 0)
        return [schema_example(schema.get("items"), root, depth + 1) for _ in range(n)]
    if kind in ("integer", "number"):
        return schema.get("minimum", 1)
    if kind == "boolean":
        return False
    if kind == "null":
        return None
    return "fakellm"


def tool_input(schema: dict, wanted: dict[tuple[str, ...], Any]) -> dict:
    """Fill a tool's input: known fields from `wanted`, other required ones by example."""
    props = schema.get("properties") or {}
    out = schema_example(
        {"type": "object", "properties": props, "required": schema.get("required") or []}, schema
    )
    for names, value in wanted.items():
        for name in names:
            if name in props or (not props and name == names[0]):
                out[name] = value
                break
    return out


def shell_call(c: Convo, command: str) -> tuple[str, Any]:
    for name in SHELL_TOOLS:
        if name in c.tools:
            if name in c.custom_tools:
                return name, command
            schema = c.tools[name]
            kind = ((schema.get("properties") or {}).get("command") or {}).get("type")
            value = ["bash", "-lc", command] if kind == "array" else command
            return name, tool_input(
                schema, {("command", "cmd", "script"): value, ("description",): "run a command for fakellm"}
            )
    if "exec" in c.custom_tools:  # codex "code mode": one JavaScript tool
        return "exec", (
            "const r = await tools.exec_command("
            + json.dumps({"cmd": command})
            + ");\ntext(r.output ?? JSON.stringify(r));\n"
        )
    return "shell", {"command": command}


def write_call(c: Convo, path: str, content: str) -> tuple[str, Any]:
    absolute = path if path.startswith("/") else f"{c.cwd() or '.'}/{path}"
    for name in WRITE_TOOLS:
        if name in c.tools and name not in c.custom_tools:
            return name, tool_input(
                c.tools[name],
                {
                    ("file_path", "filePath", "path", "absolute_path", "filename"): absolute,
                    ("content", "file_text", "contents", "text"): content,
                    ("command",): "create",
                },
            )
    patch = (
        "*** Begin Patch\n*** Add File: "
        + path
        + "\n"
        + "".join(f"+{line}\n" for line in content.splitlines())
        + "*** End Patch\n"
    )
    for name in PATCH_TOOLS:
        if name in c.custom_tools:
            return name, patch
        if name in c.tools:
            return name, tool_input(c.tools[name], {("input", "patch", "patchText"): patch})
    if "exec" in c.custom_tools:
        return "exec", "const r = await tools.apply_patch(" + json.dumps(
            patch
        ) + ");\ntext(typeof r === 'string' ? r : JSON.stringify(r));\n"
    heredoc = f"cat > '{path}' <<'FAKELLM_EOF'\n{content.rstrip(chr(10))}\nFAKELLM_EOF"
    return shell_call(c, heredoc)


def expand(value: Any, names: dict[str, str]) -> Any:
    """Replace {prompt}, {cwd} ... in every string of a step."""
    if isinstance(value, str):
        return re.sub(r"\{(\w+)\}", lambda m: names.get(m.group(1), m.group(0)), value)
    if isinstance(value, list):
        return [expand(v, names) for v in value]
    if isinstance(value, dict):
        return {k: expand(v, names) for k, v in value.items()}
    return value


def tokens(value: Any) -> int:
    return max(1, len(value if isinstance(value, str) else json.dumps(value)) // 4)


def build_reply(c: Convo, step: dict) -> Reply:
    names = {
        "prompt": c.prompts[-1] if c.prompts else "",
        "first_prompt": c.prompts[0] if c.prompts else "",
        "n_prompts": str(len(c.prompts)),
        "step": str(c.step),
        "model": c.model,
        "cwd": c.cwd() or ".",
        "tool_result": c.tool_result.strip(),
        "in_1h": str(int(time.time()) + 3600),
        "in_1d": str(int(time.time()) + 86400),
    }
    step = {k: v if k == "tool_result" else expand(v, names) for k, v in step.items()}
    r = Reply()
    r.opts = step
    r.thinking = step.get("thinking") or ""
    r.text = step.get("text") or ""
    if "json" in step and "StructuredOutput" in c.tools:  # claude --json-schema
        r.calls.append(("StructuredOutput", step["json"]))
    elif "json" in step:
        r.text = json.dumps(step["json"])
    for call in [step, *(step.get("calls") or [])]:
        if "write" in call:
            r.calls.append(write_call(c, call["write"]["path"], call["write"]["content"]))
        if "shell" in call:
            r.calls.append(shell_call(c, call["shell"]))
        if "tool" in call:
            r.calls.append((call["tool"]["name"], call["tool"].get("input", {})))
            if call["tool"].get("namespace"):  # Responses API: tools of MCP servers
                c.namespaces[call["tool"]["name"]] = call["tool"]["namespace"]
    r.stop = step.get("stop")
    r.usage = {
        "input": tokens(c.body),
        "cache_read": 0,
        "cache_write": 0,
        "output": tokens(r.text + r.thinking + json.dumps(r.calls)),
        "reasoning": tokens(r.thinking) if r.thinking else 0,
        **(step.get("usage") or {}),
    }
    return r


# --------------------------------------------------------------------------
# Errors, in each protocol's own dress
# --------------------------------------------------------------------------


def error_response(api: str, fail: dict) -> tuple[int, dict, dict]:
    """(status, headers, body) of a failure."""
    kind = fail.get("kind")
    status = int(
        fail.get("status")
        or {"overloaded": {"anthropic": 529}.get(api, 503), "usage_limit": 429, "context_overflow": 400}.get(
            kind or "", 500
        )
    )
    headers = {str(k).lower(): str(v) for k, v in (fail.get("headers") or {}).items()}
    if fail.get("retry_after") is not None:
        headers.setdefault("retry-after", str(fail["retry_after"]))
    resets_in = int(fail.get("resets_in") or 3600)
    resets_at = int(time.time()) + resets_in
    message = fail.get("message")
    if "body" in fail:
        return status, headers, fail["body"]

    if api == "anthropic":
        etype = fail.get("type") or {
            400: "invalid_request_error",
            401: "authentication_error",
            403: "permission_error",
            404: "not_found_error",
            413: "request_too_large",
            429: "rate_limit_error",
            529: "overloaded_error",
        }.get(status, "api_error")
        default = {
            "rate_limit_error": "This request would exceed your rate limit of requests per minute (fakellm).",
            "overloaded_error": "Overloaded",
            "api_error": "Internal server error",
            "authentication_error": "invalid x-api-key",
            "permission_error": "Not allowed (fakellm)",
            "not_found_error": "model: fakellm-no-such-model",
        }.get(etype, "Bad request (fakellm)")
        if kind == "context_overflow":
            default = "prompt is too long: 250001 tokens > 200000 maximum"
        if kind == "usage_limit":  # what a subscription (claude.ai) account gets
            default = "You have hit your usage limit (fakellm)."
            for key, value in {
                "status": "rejected",
                "reset": resets_at,
                "representative-claim": "five_hour",
                "5h-status": "rejected",
                "5h-reset": resets_at,
                "5h-utilization": "1.0",
                "fallback": "not_available",
            }.items():
                headers.setdefault(f"anthropic-ratelimit-unified-{key}", str(value))
            headers.setdefault("x-should-retry", "false")
        body = {
            "type": "error",
            "error": {"type": etype, "message": message or default},
            "request_id": "req_" + uuid.uuid4().hex[:24],
        }
    elif api == "gemini":
        gstatus = fail.get("type") or {
            400: "INVALID_ARGUMENT",
            401: "UNAUTHENTICATED",
            403: "PERMISSION_DENIED",
            404: "NOT_FOUND",
            429: "RESOURCE_EXHAUSTED",
            503: "UNAVAILABLE",
        }.get(status, "INTERNAL")
        default = {
            429: "You exceeded your current quota (fakellm).",
            503: "The model is overloaded.",
            401: "API key not valid (fakellm).",
            403: "Permission denied (fakellm).",
        }.get(status, "Internal error (fakellm).")
        if kind == "context_overflow":
            default = (
                "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
            )
        details: list[dict] = []
        if status == 429:
            daily = kind == "usage_limit"
            details.append(
                {
                    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
                    "violations": [
                        {
                            "quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_requests",
                            "quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"
                            if daily
                            else "GenerateRequestsPerMinutePerProjectPerModel-FreeTier",
                            "quotaValue": "50",
                        }
                    ],
                }
            )
            if fail.get("retry_after") is not None:
                details.append(
                    {
                        "@type": "type.googleapis.com/google.rpc.RetryInfo",
                        "retryDelay": f"{fail['retry_after']}s",
                    }
                )
        body = {
            "error": {
                "code": status,
                "message": message or default,
                "status": gstatus,
                **({"details": details} if details else {}),
            }
        }
    else:  # OpenAI, both APIs
        etype = fail.get("type") or {
            400: "invalid_request_error",
            401: "invalid_request_error",
            429: "rate_limit_error",
        }.get(status, "server_error")
        code: str | None = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}.get(
            status
        )
        default = {
            429: "Rate limit reached for requests per min (fakellm).",
            401: "Incorrect API key provided (fakellm).",
            500: "The server had an error while processing your request (fakellm).",
            503: "The server is overloaded (fakellm).",
        }.get(status, "Bad request (fakellm).")
        if kind == "context_overflow":
            code = "context_length_exceeded"
            default = "Your input exceeds the context window of this model."
        if kind == "usage_limit":  # what a ChatGPT account gets in codex
            body = {
                "error": {
                    "type": "usage_limit_reached",
                    "message": message or "The usage limit has been reached",
                    "plan_type": "plus",
                    "resets_at": resets_at,
                    "resets_in_seconds": resets_in,
                }
            }
            for key, value in {
                "primary-used-percent": "100",
                "primary-window-minutes": "300",
                "primary-reset-at": resets_at,
            }.items():
                headers.setdefault(f"x-codex-{key}", str(value))
            return status, headers, body
        if kind == "overloaded":
            etype, code = "server_error", "server_is_overloaded"
        body = {"error": {"message": message or default, "type": etype, "param": None, "code": code}}
    return status, headers, body


# --------------------------------------------------------------------------
# Answers, in each protocol's own dress
# --------------------------------------------------------------------------


def pieces(text: str, size: int) -> list[str]:
    return [text[i : i + size] for i in range(0, len(text), size)] or [""]


def rid(prefix: str, n: int = 24) -> str:
    return prefix + uuid.uuid4().hex[:n]


Event = tuple[Any, Any]  # (SSE event name or None, data: dict | str)


def anthropic_events(c: Convo, r: Reply, size: int) -> Iterator[Event]:
    u = r.usage
    usage = {
        "input_tokens": u["input"],
        "cache_creation_input_tokens": u["cache_write"],
        "cache_read_input_tokens": u["cache_read"],
        "output_tokens": 1,
        "service_tier": "standard",
    }
    yield (
        "message_start",
        {
            "type": "message_start",
            "message": {
                "id": rid("msg_"),
                "type": "message",
                "role": "assistant",
                "model": c.model,
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": usage,
            },
        },
    )
    yield "ping", {"type": "ping"}
    i = 0

    def block(start: dict, deltas: list[dict]) -> Iterator[Event]:
        yield "content_block_start", {"type": "content_block_start", "index": i, "content_block": start}
        for d in deltas:
            yield "content_block_delta", {"type": "content_block_delta", "index": i, "delta": d}
        yield "content_block_stop", {"type": "content_block_stop", "index": i}

    if r.thinking:
        yield from block(
            {"type": "thinking", "thinking": "", "signature": ""},
            [{"type": "thinking_delta", "thinking": p} for p in pieces(r.thinking, size)]
            + [{"type": "signature_delta", "signature": "ZmFrZWxsbQ=="}],
        )
        i += 1
    if r.text or not r.calls:
        yield from block(
            {"type": "text", "text": ""}, [{"type": "text_delta", "text": p} for p in pieces(r.text, size)]
        )
        i += 1
    for name, args in r.calls:
        raw = json.dumps(args if isinstance(args, dict) else {"input": args})
        yield from block(
            {"type": "tool_use", "id": rid("toolu_"), "name": name, "input": {}},
            [{"type": "input_json_delta", "partial_json": p} for p in pieces(raw, size)],
        )
        i += 1
    stop = r.stop or ("tool_use" if r.calls else "end_turn")
    yield (
        "message_delta",
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": None},
            "usage": {**usage, "output_tokens": u["output"]},
        },
    )
    yield "message_stop", {"type": "message_stop"}


def anthropic_json(c: Convo, r: Reply) -> dict:
    u = r.usage
    content: list[dict] = []
    if r.thinking:
        content.append({"type": "thinking", "thinking": r.thinking, "signature": "ZmFrZWxsbQ=="})
    if r.text or not r.calls:
        content.append({"type": "text", "text": r.text})
    for name, args in r.calls:
        content.append(
            {
                "type": "tool_use",
                "id": rid("toolu_"),
                "name": name,
                "input": args if isinstance(args, dict) else {"input": args},
            }
        )
    return {
        "id": rid("msg_"),
        "type": "message",
        "role": "assistant",
        "model": c.model,
        "content": content,
        "stop_reason": r.stop or ("tool_use" if r.calls else "end_turn"),
        "stop_sequence": None,
        "usage": {
            "input_tokens": u["input"],
            "cache_creation_input_tokens": u["cache_write"],
            "cache_read_input_tokens": u["cache_read"],
            "output_tokens": u["output"],
            "service_tier": "standard",
        },
    }


def responses_usage(r: Reply) -> dict:
    u = r.usage
    total_in = u["input"] + u["cache_read"] + u["cache_write"]
    return {
        "input_tokens": total_in,
        "input_tokens_details": {"cached_tokens": u["cache_read"]},
        "output_tokens": u["output"],
        "output_tokens_details": {"reasoning_tokens": u["reasoning"]},
        "total_tokens": total_in + u["output"],
    }


def responses_items(c: Convo, r: Reply) -> list[dict]:
    items: list[dict] = []
    if r.thinking:
        items.append(
            {
                "type": "reasoning",
                "id": rid("rs_"),
                "summary": [{"type": "summary_text", "text": r.thinking}],
                "encrypted_content": "ZmFrZWxsbQ==",
            }
        )
    if r.text or not r.calls:
        items.append(
            {
                "type": "message",
                "id": rid("msg_"),
                "status": "completed",
                "role": "assistant",
                "content": [{"type": "output_text", "text": r.text, "annotations": [], "logprobs": []}],
            }
        )
    for name, args in r.calls:
        base = {"call_id": rid("call_"), "name": name, "status": "completed"}
        if name in c.namespaces:
            base["namespace"] = c.namespaces[name]
        if isinstance(args, str):
            items.append({"type": "custom_tool_call", "id": rid("ctc_"), **base, "input": args})
        else:
            items.append({"type": "function_call", "id": rid("fc_"), **base, "arguments": json.dumps(args)})
    return items


def responses_events(c: Convo, r: Reply, size: int) -> Iterator[Event]:
    seq = itertools.count()
    base = {
        "id": rid("resp_"),
        "object": "response",
        "created_at": int(time.time()),
        "model": c.model,
        "status": "in_progress",
        "output": [],
        "usage": None,
        "error": None,
        "incomplete_details": None,
        "parallel_tool_calls": True,
        "tools": [],
        "tool_choice": "auto",
        "metadata": {},
    }

    def ev(kind: str, **data: Any) -> Event:
        return kind, {"type": kind, "sequence_number": next(seq), **data}

    yield ev("response.created", response=base)
    yield ev("response.in_progress", response=base)
    items = responses_items(c, r)
    for n, item in enumerate(items):
        at = {"output_index": n, "item_id": item["id"]}
        if item["type"] == "message":
            part = item["content"][0]
            yield ev(
                "response.output_item.added",
                output_index=n,
                item={**item, "status": "in_progress", "content": []},
            )
            yield ev("response.content_part.added", **at, content_index=0, part={**part, "text": ""})
            for p in pieces(part["text"], size):
                yield ev("response.output_text.delta", **at, content_index=0, delta=p, logprobs=[])
            yield ev("response.output_text.done", **at, content_index=0, text=part["text"], logprobs=[])
            yield ev("response.content_part.done", **at, content_index=0, part=part)
        elif item["type"] == "reasoning":
            yield ev("response.output_item.added", output_index=n, item={**item, "summary": []})
            yield ev(
                "response.reasoning_summary_part.added",
                **at,
                summary_index=0,
                part={"type": "summary_text", "text": ""},
            )
            for p in pieces(r.thinking, size):
                yield ev("response.reasoning_summary_text.delta", **at, summary_index=0, delta=p)
            yield ev("response.reasoning_summary_text.done", **at, summary_index=0, text=r.thinking)
            yield ev("response.reasoning_summary_part.done", **at, summary_index=0, part=item["summary"][0])
        else:
            key, kind = (
                ("input", "custom_tool_call_input")
                if item["type"] == "custom_tool_call"
                else ("arguments", "function_call_arguments")
            )
            yield ev(
                "response.output_item.added", output_index=n, item={**item, key: "", "status": "in_progress"}
            )
            for p in pieces(item[key], size):
                yield ev(f"response.{kind}.delta", **at, delta=p)
            yield ev(f"response.{kind}.done", **at, **{key: item[key]})
        yield ev("response.output_item.done", output_index=n, item=item)
    done = {**base, "output": items, "usage": responses_usage(r), "status": "completed"}
    if r.stop == "max_tokens":
        yield ev(
            "response.incomplete",
            response={**done, "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
        )
    else:
        yield ev("response.completed", response=done)


def responses_json(c: Convo, r: Reply) -> dict:
    return {
        "id": rid("resp_"),
        "object": "response",
        "created_at": int(time.time()),
        "model": c.model,
        "status": "completed",
        "output": responses_items(c, r),
        "usage": responses_usage(r),
        "error": None,
        "incomplete_details": None,
        "parallel_tool_calls": True,
        "tools": [],
        "tool_choice": "auto",
        "metadata": {},
    }


def chat_usage(r: Reply) -> dict:
    u = responses_usage(r)
    return {
        "prompt_tokens": u["input_tokens"],
        "completion_tokens": u["output_tokens"],
        "total_tokens": u["total_tokens"],
        "prompt_tokens_details": {"cached_tokens": r.usage["cache_read"]},
        "completion_tokens_details": {"reasoning_tokens": r.usage["reasoning"]},
    }


def chat_calls(c: Convo, r: Reply) -> list[dict]:
    out = []
    for name, args in r.calls:
        if isinstance(args, str) and name in c.custom_tools:
            out.append({"id": rid("call_"), "type": "custom", "custom": {"name": name, "input": args}})
        else:
            raw = json.dumps(args if isinstance(args, dict) else {"input": args})
            out.append({"id": rid("call_"), "type": "function", "function": {"name": name, "arguments": raw}})
    return out


def chat_finish(r: Reply) -> str:
    return {"max_tokens": "length", "refusal": "content_filter"}.get(r.stop or "") or (
        "tool_calls" if r.calls else "stop"
    )


def chat_events(c: Convo, r: Reply, size: int) -> Iterator[Event]:
    base = {
        "id": rid("chatcmpl-"),
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": c.model,
    }

    def chunk(delta: dict, finish: str | None = None) -> Event:
        return None, {
            **base,
            "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
        }

    yield chunk({"role": "assistant", "content": ""})
    for p in pieces(r.thinking, size) if r.thinking else []:
        yield chunk({"reasoning_content": p})
    for p in pieces(r.text, size) if r.text else []:
        yield chunk({"content": p})
    for i, call in enumerate(chat_calls(c, r)):
        if call["type"] == "custom":
            yield chunk({"tool_calls": [{"index": i, **call}]})
            continue
        raw = call["function"]["arguments"]
        yield chunk({"tool_calls": [{"index": i, **call, "function": {**call["function"], "arguments": ""}}]})
        for p in pieces(raw, size):
            yield chunk({"tool_calls": [{"index": i, "function": {"arguments": p}}]})
    yield chunk({}, chat_finish(r))
    if (c.body.get("stream_options") or {}).get("include_usage"):
        yield None, {**base, "choices": [], "usage": chat_usage(r)}
    yield None, "[DONE]"


def chat_json(c: Convo, r: Reply) -> dict:
    message: dict[str, Any] = {"role": "assistant", "content": r.text or None, "refusal": None}
    if r.calls:
        message["tool_calls"] = chat_calls(c, r)
    return {
        "id": rid("chatcmpl-"),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": c.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": chat_finish(r)}],
        "usage": chat_usage(r),
    }


def gemini_usage(r: Reply) -> dict:
    u = r.usage
    prompt = u["input"] + u["cache_read"] + u["cache_write"]
    out = {
        "promptTokenCount": prompt,
        "candidatesTokenCount": u["output"],
        "totalTokenCount": prompt + u["output"] + u["reasoning"],
    }
    if u["cache_read"]:
        out["cachedContentTokenCount"] = u["cache_read"]
    if u["reasoning"]:
        out["thoughtsTokenCount"] = u["reasoning"]
    return out


def gemini_parts(r: Reply, size: int) -> list[dict]:
    parts: list[dict] = []
    if r.thinking:
        parts.append({"text": r.thinking, "thought": True})
    if r.text or not r.calls:
        parts += [{"text": p} for p in pieces(r.text, size)]
    for name, args in r.calls:
        parts.append(
            {
                "functionCall": {"name": name, "args": args if isinstance(args, dict) else {"input": args}},
                "thoughtSignature": "ZmFrZWxsbQ==",
            }
        )
    return parts


def gemini_finish(r: Reply) -> str:
    return {"max_tokens": "MAX_TOKENS", "refusal": "SAFETY"}.get(r.stop or "", "STOP")


def gemini_events(c: Convo, r: Reply, size: int) -> Iterator[Event]:
    base = {"modelVersion": c.model, "responseId": rid("r")}
    parts = gemini_parts(r, size)
    for n, part in enumerate(parts):
        cand: dict[str, Any] = {"content": {"role": "model", "parts": [part]}, "index": 0}
        data: dict[str, Any] = {"candidates": [cand], **base, "usageMetadata": gemini_usage(r)}
        if n == len(parts) - 1:
            cand["finishReason"] = gemini_finish(r)
        yield None, data


def gemini_json(c: Convo, r: Reply) -> dict:
    return {
        "candidates": [
            {
                "content": {"role": "model", "parts": gemini_parts(r, 1 << 30)},
                "index": 0,
                "finishReason": gemini_finish(r),
            }
        ],
        "usageMetadata": gemini_usage(r),
        "modelVersion": c.model,
        "responseId": rid("r"),
    }


APIS: dict[str, tuple[Any, Any]] = {
    "anthropic": (anthropic_events, anthropic_json),
    "responses": (responses_events, responses_json),
    "chat": (chat_events, chat_json),
    "gemini": (gemini_events, gemini_json),
}


def stream_error_event(api: str) -> Event:
    if api == "anthropic":
        return "error", {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    if api == "responses":
        return "response.failed", {
            "type": "response.failed",
            "sequence_number": 999,
            "response": {
                "id": rid("resp_"),
                "object": "response",
                "status": "failed",
                "output": [],
                "usage": None,
                "error": {"code": "server_error", "message": "The model failed mid-stream (fakellm)."},
            },
        }
    return None, {
        "error": {
            "code": 503,
            "message": "The model failed mid-stream (fakellm).",
            "status": "UNAVAILABLE",
            "type": "server_error",
        }
    }


# --------------------------------------------------------------------------
# The server
# --------------------------------------------------------------------------

MODELS = [
    "fake-model",
    "claude-sonnet-4-5",
    "claude-opus-4-5",
    "claude-haiku-4-5",
    "gpt-5",
    "gpt-5-codex",
    "gemini-2.5-pro",
    "gemini-2.5-flash",
    "gemini-3-pro-preview",
]


class FakeLLM:
    """The server.  `with FakeLLM() as llm:` starts it on a free loopback port."""

    def __init__(
        self,
        port: int = 0,
        default: str = "edit",
        scenarios: dict | None = None,
        host: str = "127.0.0.1",
        log: str | None = None,
        bodies: bool = False,
    ):
        if host not in ("127.0.0.1", "::1", "localhost"):
            raise ValueError("fakellm listens on loopback only")
        self.default = default
        self.scenarios: dict[str, Any] = {**BUILTIN, **(scenarios or {})}
        self.bodies = bodies
        self._log: list[dict] = []
        self._counts: dict[tuple, int] = {}
        self._lock = threading.Lock()
        self._logfile = open(log, "a", encoding="utf-8") if log else None
        outer = self

        class H(Handler):
            llm = outer

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
            request_queue_size = 128

        self._server = Server((host, port), H)
        self.port: int = self._server.server_address[1]
        self.url = f"http://{'[::1]' if ':' in host else host}:{self.port}"
        self._thread: threading.Thread | None = None
        self.closing = threading.Event()

    # -- lifecycle
    def start(self) -> "FakeLLM":
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()
        return self

    def serve(self) -> None:
        self._server.serve_forever(0.2)

    def close(self) -> None:
        self.closing.set()
        if self._thread:
            self._server.shutdown()
            self._thread.join(5)
        self._server.server_close()
        if self._logfile:
            self._logfile.close()

    def __enter__(self) -> "FakeLLM":
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- for tests
    def add_scenario(self, name: str, steps: Any) -> None:
        self.scenarios[name] = steps

    def base(self, scenario: str | None = None, key: str | None = None) -> str:
        """The base URL that selects `scenario` (no trailing slash, no /v1)."""
        if not scenario:
            return self.url
        return f"{self.url}/s/{scenario}" + (f"~{key}" if key else "")

    def setup(
        self,
        cli: str,
        home: str,
        cwd: str,
        scenario: str | None = None,
        key: str | None = None,
        model: str | None = None,
    ) -> "Setup":
        """Write `cli`'s config below `home` and return its environment and headless command."""
        return cli_setup(cli, self.base(scenario, key), str(home), str(cwd), model).write()

    def requests(
        self, scenario: str | None = None, key: str | None = None, api: str | None = None
    ) -> list[dict]:
        with self._lock:
            rows = [dict(r) for r in self._log]
        return [
            r
            for r in rows
            if (scenario is None or r.get("scenario") == scenario)
            and (key is None or r.get("key") == key)
            and (api is None or r.get("api") == api)
        ]

    def reset(self) -> None:
        with self._lock:
            self._log.clear()
            self._counts.clear()

    # -- inside
    def begin(self, row: dict) -> None:
        with self._lock:
            self._log.append(row)
            del self._log[:-5000]

    def finish(self, row: dict) -> None:
        row["seconds"] = round(time.time() - row["t"], 3)
        with self._lock:
            if self._logfile and not self._logfile.closed:
                self._logfile.write(json.dumps(row) + "\n")
                self._logfile.flush()

    def count(self, key: tuple) -> int:
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + 1
            return self._counts[key]

    def choose(self, c: Convo, from_url: str | None) -> tuple[str, dict]:
        """(scenario name, step) for this request."""
        name: str = from_url or self.default
        raw: Any = self.scenarios.get(name)
        if is_side_call(c, raw):
            return "(side call)", {"json": schema_example(c.schema)} if c.schema is not None else {
                "text": "fakellm"
            }
        found = DIRECTIVE.findall(c.prompts[-1]) if c.prompts else []
        if found and found[-1][0] in "[{":
            name, raw = "(inline)", inline_steps(found[-1])
        elif found:
            name, raw = found[-1], self.scenarios.get(found[-1])
        if raw is None:
            return name, {"fail": {"status": 400, "message": f"fakellm knows no scenario named {name!r}"}}
        steps, defaults, repeat = scenario_parts(raw)
        n = c.step
        if n < len(steps):
            step = steps[n]
        elif repeat:
            step = steps[n % len(steps)]
        else:
            step = {"text": "Nothing more to do."}
        step = {**defaults, **step}
        if c.schema is not None and not any(k in step for k in (*CALL_KEYS, "json", "fail")):
            step["json"] = schema_example(c.schema)
        return name, step


CALL_KEYS = ("write", "shell", "tool", "calls")
SIDE_JOB = re.compile(r"\b(title|summar|topic|classif|quota|branch name)", re.I)


def is_side_call(c: Convo, raw: Any) -> bool:
    """Titles, summaries, routing: what a CLI asks on its own, without tools.  A script must not answer those."""
    if c.tools:
        return False
    steps = scenario_parts(raw)[0] if raw is not None else []
    if c.schema is not None or (steps and any(k in steps[0] for k in CALL_KEYS)):
        return True
    return bool(SIDE_JOB.search(c.system[:600] + " ".join(c.prompts[-1:])[:200]))


def inline_steps(text: str) -> Any:
    """Steps given in a prompt.  OpenCode quotes its arguments, hence the second try."""
    for attempt in (text, text.replace('\\"', '"').replace("\\\\", "\\")):
        try:
            return json.loads(attempt)
        except ValueError:
            pass
    return [{"fail": {"status": 400, "message": f"fakellm cannot read this directive: {text[:200]}"}}]


class ClientGone(Exception):
    pass


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "fakellm/" + __version__
    llm: FakeLLM
    disable_nagle_algorithm = True

    def log_message(self, *args: Any) -> None:
        pass

    # -- plumbing
    def read_body(self) -> bytes:
        if "chunked" in (self.headers.get("Transfer-Encoding") or "").lower():
            data = b""
            while True:
                size = int(self.rfile.readline().split(b";")[0].strip() or b"0", 16)
                if not size:
                    while self.rfile.readline().strip():
                        pass
                    break
                data += self.rfile.read(size)
                self.rfile.readline()
        else:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        encoding = (self.headers.get("Content-Encoding") or "").lower()
        if encoding == "gzip":
            data = gzip.decompress(data)
        elif encoding == "deflate":
            data = zlib.decompress(data)
        return data

    def send_json(self, status: int, body: Any, headers: dict | None = None) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        for k, v in (headers or {}).items():
            self.send_header(k, v)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(raw)

    def wait(self, seconds: float) -> None:
        """Sleep, but notice a client that went away and a server that stops."""
        end = time.monotonic() + min(seconds, MAX_HANG_SECONDS)
        while True:
            left = end - time.monotonic()
            if left <= 0:
                return
            if self.llm.closing.is_set():
                raise ClientGone
            readable, _, _ = select.select([self.connection], [], [], min(left, 0.2))
            if readable:
                try:
                    if not self.connection.recv(1, socket.MSG_PEEK):
                        raise ClientGone
                except OSError as e:
                    raise ClientGone from e
                time.sleep(min(left, 0.05))  # pipelined bytes: just wait

    def drop(self) -> None:
        self.close_connection = True
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    # -- verbs
    def do_HEAD(self) -> None:
        self.send_json(200, {})

    def do_GET(self) -> None:
        self.dispatch(b"")

    def do_DELETE(self) -> None:
        self.dispatch(b"")

    def do_POST(self) -> None:
        self.dispatch(self.read_body())

    do_PUT = do_PATCH = do_POST

    def dispatch(self, raw: bytes) -> None:
        row: dict[str, Any] = {
            "t": round(time.time(), 3),
            "method": self.command,
            "path": self.path.split("?")[0],
            "agent": self.headers.get("User-Agent", ""),
        }
        try:
            self.handle_request(raw, row)
        except (ClientGone, BrokenPipeError, ConnectionResetError):
            row["client_gone"] = True
            self.close_connection = True
        except Exception as e:  # a bug here must not look like a hang
            row["error"] = repr(e)
            try:
                self.send_json(
                    500, {"error": {"message": f"fakellm bug: {e!r}", "type": "fakellm", "code": 500}}
                )
            except OSError:
                pass
        if row.get("api") != "admin":
            self.llm.finish(row)

    def handle_request(self, raw: bytes, row: dict) -> None:
        parts = urlsplit(self.path)
        path, query = unquote(parts.path), parse_qs(parts.query)
        if path.startswith("/_fakellm/"):
            row["api"] = "admin"
            self.admin(path[len("/_fakellm/") :], raw)
            return
        scenario = key = None
        found = re.match(r"/s/([^/~]+)(?:~([^/]*))?(/.*)?$", path)
        if found:
            scenario, key, path = found.group(1), found.group(2), found.group(3) or "/"
        row.update(scenario=scenario, key=key)
        self.llm.begin(row)  # visible at once; "seconds" is set when it is over
        if (self.headers.get("Upgrade") or "").lower() == "websocket":
            row["status"] = 426
            self.send_json(426, {"error": {"message": "fakellm speaks no websockets", "code": 426}})
            return
        if self.command in ("GET", "HEAD"):
            row["status"] = self.get(path)
            return
        body = json.loads(raw) if raw else {}
        convo: Convo | None = None
        gem = re.search(r"/models/([^/:]+):(\w+)$", path)
        if path.endswith("/messages/count_tokens"):
            row.update(api="anthropic", status=200)
            self.send_json(200, {"input_tokens": tokens(body)})
            return
        if path.endswith("/messages"):
            convo = parse_anthropic(body)
        elif path.endswith("/responses") or path.endswith("/responses/compact"):
            convo = parse_responses(body)
        elif path.endswith("/chat/completions"):
            convo = parse_chat(body)
        elif gem and gem.group(2) in ("generateContent", "streamGenerateContent"):
            convo = parse_gemini(body, gem.group(1), gem.group(2) == "streamGenerateContent")
        elif gem and gem.group(2) == "countTokens":
            row.update(api="gemini", status=200)
            self.send_json(200, {"totalTokens": tokens(body)})
            return
        elif gem and "mbedContent" in gem.group(2):
            row.update(api="gemini", status=200)
            self.send_json(200, {"embedding": {"values": [0.0] * 8}, "embeddings": [{"values": [0.0] * 8}]})
            return
        if convo is None:
            row["status"] = 404
            self.send_json(
                404,
                {
                    "type": "error",
                    "error": {
                        "type": "not_found_error",
                        "code": 404,
                        "message": f"fakellm has nothing at {path}",
                    },
                },
            )
            return
        name, step = self.llm.choose(convo, scenario)
        row.update(
            api=convo.api,
            scenario=name if scenario is None else scenario,
            ran=name,
            model=convo.model,
            step=convo.step,
            stream=convo.stream,
            tools=len(convo.tools),
            prompts=len(convo.prompts),
            prompt=(convo.prompts[-1] if convo.prompts else "")[-400:],
        )
        if self.llm.bodies:
            row["body"] = body
            row["headers"] = {
                k.lower(): ("***" if k.lower() in ("authorization", "x-api-key", "x-goog-api-key") else v)
                for k, v in self.headers.items()
            }
        self.answer(convo, step, name, key, row, sse=not gem or query.get("alt") == ["sse"])

    def get(self, path: str) -> int:
        if re.search(r"/models(/[^/]+)?$", path):
            if "/v1beta/" in path:
                body: Any = {
                    "models": [
                        {
                            "name": f"models/{m}",
                            "displayName": m,
                            "inputTokenLimit": 1048576,
                            "outputTokenLimit": 65536,
                            "supportedGenerationMethods": ["generateContent"],
                        }
                        for m in MODELS
                    ]
                }
            else:
                body = {
                    "object": "list",
                    "has_more": False,
                    "first_id": MODELS[0],
                    "last_id": MODELS[-1],
                    "data": [
                        {
                            "id": m,
                            "object": "model",
                            "type": "model",
                            "display_name": m,
                            "created": 1,
                            "created_at": "2025-01-01T00:00:00Z",
                            "owned_by": "fakellm",
                        }
                        for m in MODELS
                    ],
                }
            self.send_json(200, body)
            return 200
        if path in ("", "/"):
            self.send_json(200, {"fakellm": __version__})
            return 200
        self.send_json(
            404,
            {"error": {"message": f"fakellm has nothing at {path}", "type": "not_found_error", "code": 404}},
        )
        return 404

    def admin(self, what: str, raw: bytes) -> None:
        body = json.loads(raw) if raw else None
        if what == "health":
            self.send_json(200, {"ok": True, "version": __version__, "default": self.llm.default})
        elif what == "requests":
            self.send_json(200, self.llm.requests())
        elif what == "scenarios" and self.command == "GET":
            self.send_json(200, self.llm.scenarios)
        elif what == "scenarios":
            self.llm.scenarios.update(body or {})
            self.send_json(200, {"ok": True})
        elif what == "default":
            self.llm.default = (body or {})["scenario"]
            self.send_json(200, {"ok": True})
        elif what == "reset":
            self.llm.reset()
            self.send_json(200, {"ok": True})
        else:
            self.send_json(404, {"error": f"no admin verb {what!r}"})

    # -- answering
    def answer(self, c: Convo, step: dict, name: str, key: str | None, row: dict, sse: bool) -> None:
        if step.get("delay"):
            self.wait(float(step["delay"]))
        fail = step.get("fail")
        if fail:
            tag = (key, name, hashlib.sha1((c.prompts[-1] if c.prompts else "").encode()).hexdigest(), c.step)
            nth = self.llm.count(tag)
            if fail.get("times") is None or nth <= int(fail["times"]):
                status, headers, body = error_response(c.api, fail)
                row.update(status=status, nth=nth)
                self.send_json(status, body, headers)
                return
        r = build_reply(c, step)
        hang, cut = step.get("hang"), step.get("disconnect")
        limit = float(step.get("hang_seconds") or MAX_HANG_SECONDS)
        if hang == "before_headers":
            row["status"] = "hang"
            self.wait(limit)
            self.drop()
            return
        if cut == "before_headers":
            row["status"] = "disconnect"
            self.drop()
            return
        headers = {str(k).lower(): str(v) for k, v in (r.opts.get("headers") or {}).items()}
        if c.api == "anthropic":
            headers.setdefault("request-id", rid("req_"))
        else:
            headers.setdefault("x-request-id", rid("req_"))
        row.update(status=200, usage=r.usage, calls=[n for n, _ in r.calls], text=r.text[:200])
        events_of, json_of = APIS[c.api]
        if not c.stream:  # some CLIs fall back to this when a stream breaks
            if hang:
                row["status"] = "hang"
                self.wait(limit)
            if hang or cut:
                row["status"] = "hang" if hang else "disconnect"
                self.drop()
            elif step.get("stream_error"):
                status, _, body = error_response(c.api, {"kind": "overloaded"})
                row["status"] = status
                self.send_json(status, body)
            else:
                self.send_json(200, json_of(c, r), headers)
            return
        size = int(step.get("chunk_size") or 24)
        events = list(events_of(c, r, size))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if sse else "application/json")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Transfer-Encoding", "chunked")
        for k, v in headers.items():
            self.send_header(k, v)
        self.end_headers()
        if not sse:  # Gemini streaming without alt=sse is a JSON array
            self.chunk(json.dumps([d for _, d in events]).encode())
            self.chunk(b"")
            return
        broken = hang == "mid_stream" or cut == "mid_stream" or step.get("stream_error")
        stop_at = max(1, len(events) * 2 // 3) if broken else len(events)
        if broken:  # never let a terminal event out
            stop_at = min(stop_at, len(events) - (1 if c.api == "gemini" else 2))
        for kind, data in events[:stop_at]:
            self.sse(kind, data)
            if step.get("chunk_delay"):
                self.wait(float(step["chunk_delay"]))
        if hang == "mid_stream":
            row["status"] = "hang mid-stream"
            self.wait(limit)
            self.drop()
        elif cut == "mid_stream":
            row["status"] = "disconnect mid-stream"
            self.drop()
        elif step.get("stream_error"):
            row["status"] = "error mid-stream"
            self.sse(*stream_error_event(c.api))
            self.chunk(b"")
        else:
            self.chunk(b"")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def sse(self, kind: str | None, data: Any) -> None:
        text = data if isinstance(data, str) else json.dumps(data)
        self.chunk(((f"event: {kind}\n" if kind else "") + f"data: {text}\n\n").encode())


# --------------------------------------------------------------------------
# How each CLI is pointed here
# --------------------------------------------------------------------------

CLIS = ("claude", "codex", "gemini", "copilot", "opencode")


class Setup(NamedTuple):
    """How to run one CLI against this server, isolated from the user's own setup."""

    env: dict[str, str]  # add to (a copy of) the environment
    files: dict[str, str]  # config files: path -> content; `Setup.write()` writes them
    argv: list[str]  # headless command; append the prompt

    def write(self) -> "Setup":
        for path, content in self.files.items():
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as f:
                f.write(content)
        return self


def cli_setup(
    cli: str, base: str, home: str, cwd: str, model: str | None = None, api_key: str = "test-key"
) -> Setup:
    """Environment, config files and command that point `cli` at `base` (see FakeLLM.base).

    `home` becomes the CLI's HOME, `cwd` is the directory it will run in (it is marked as trusted,
    so that no first-run dialog shows up in a TUI either).  No update check, no telemetry, few retries.
    """
    home, cwd = os.path.abspath(home), os.path.abspath(cwd)
    env, files = {"HOME": home}, {}
    if cli == "claude":
        conf = f"{home}/.claude"
        env |= {
            "ANTHROPIC_BASE_URL": base,
            "ANTHROPIC_API_KEY": api_key,
            "CLAUDE_CONFIG_DIR": conf,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL": "1",
            "CLAUDE_CODE_MAX_RETRIES": "2",
            "IS_SANDBOX": "1",
        }  # IS_SANDBOX: bypassPermissions as root
        files[f"{conf}/.claude.json"] = json.dumps(
            {
                "hasCompletedOnboarding": True,
                "customApiKeyResponses": {"approved": [api_key[-20:]], "rejected": []},
                "projects": {cwd: {"hasTrustDialogAccepted": True}},
            }
        )
        files[f"{conf}/settings.json"] = json.dumps({"skipDangerousModePermissionPrompt": True})
        argv = [
            "claude",
            "-p",
            "--output-format",
            "stream-json",
            "--verbose",
            "--permission-mode",
            "bypassPermissions",
            *(["--model", model] if model else []),
        ]
    elif cli == "codex":
        env |= {"CODEX_HOME": f"{home}/.codex", "FAKELLM_API_KEY": api_key}
        if f"{home}/".startswith(os.path.realpath(tempfile.gettempdir()) + "/"):
            env["TMPDIR"] = f"{home}/tmp"  # Codex refuses its sandbox helpers in a CODEX_HOME below TMPDIR
            files[f"{home}/tmp/.keep"] = ""
        model = model or "gpt-5.5"
        files[f"{home}/.codex/config.toml"] = f'''\
model = "{model}"
model_provider = "fakellm"
check_for_update_on_startup = false

[model_providers.fakellm]
name = "fakellm"
base_url = "{base}/v1"
env_key = "FAKELLM_API_KEY"
wire_api = "responses"
request_max_retries = 1
stream_max_retries = 1

[features]
plugins = false                        # or it asks github.com and chatgpt.com
daemon_auto_start = false              # or a TUI leaves a background server behind
unbounded_connection_retries = false   # or a refused connection is retried for ever

[analytics]
enabled = false

[notice.model_migrations]
"gpt-5.5" = "gpt-6-sol"

[projects."{cwd}"]
trust_level = "trusted"
'''
        argv = ["codex", "exec", "--json", "--skip-git-repo-check", "-s", "workspace-write"]
    elif cli == "gemini":
        env |= {
            "GEMINI_API_KEY": api_key,
            "GOOGLE_GEMINI_BASE_URL": base,
            "GEMINI_CLI_HOME": home,
            "GEMINI_CLI_NO_RELAUNCH": "true",
        }
        files[f"{home}/.gemini/settings.json"] = json.dumps(
            {
                "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
                "privacy": {"usageStatisticsEnabled": False},
                "telemetry": {"enabled": False},
                "general": {
                    "enableAutoUpdate": False,
                    "enableAutoUpdateNotification": False,
                    "maxAttempts": 2,
                },
            }
        )
        argv = [
            "gemini",
            "-m",
            model or "gemini-2.5-pro",
            "-o",
            "stream-json",
            "--approval-mode",
            "yolo",
            "-p",
        ]
    elif cli == "copilot":
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        env |= {
            "COPILOT_PROVIDER_BASE_URL": f"{base}/v1",
            "COPILOT_PROVIDER_API_KEY": api_key,
            "COPILOT_PROVIDER_TYPE": "openai",
            "COPILOT_PROVIDER_WIRE_API": "responses",
            "COPILOT_MODEL": model or "gpt-5.4",
            "COPILOT_HOME": f"{home}/.copilot",
            "COPILOT_OFFLINE": "true",
            "COPILOT_AUTO_UPDATE": "false",
            "XDG_CACHE_HOME": cache,
        }  # it unpacks 235 MB there once
        files[f"{home}/.copilot/config.json"] = json.dumps({"trustedFolders": [cwd]})
        argv = ["copilot", "--output-format", "json", "--allow-all-tools", "--no-ask-user", "-p"]
    elif cli == "opencode":
        limit = {"limit": {"context": 200000, "output": 8192}}
        env |= {
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "npm_config_offline": "true",
        }
        files[f"{home}/.config/opencode/opencode.json"] = json.dumps(
            {
                "autoupdate": False,
                "share": "disabled",
                "enabled_providers": ["fakellm"],
                "model": f"fakellm/{model or 'fake-model'}",
                "small_model": "fakellm/fake-small",
                "provider": {
                    "fakellm": {
                        "npm": "@ai-sdk/openai-compatible",
                        "name": "fakellm",
                        "options": {"baseURL": f"{base}/v1", "apiKey": api_key},
                        "models": {model or "fake-model": limit, "fake-small": limit},
                    }
                },
            }
        )
        argv = ["opencode", "run", "--format", "json"]
    else:
        raise ValueError(f"no such CLI: {cli!r} (one of {', '.join(CLIS)})")
    return Setup(env, files, argv)


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["setup"]:
        p = argparse.ArgumentParser(
            prog="fakellm setup", description="Write a CLI's config and print its environment."
        )
        p.add_argument("cli", choices=CLIS)
        p.add_argument(
            "--home", required=True, help="directory to use as the CLI's HOME (config is written there)"
        )
        p.add_argument("--cwd", default=".", help="directory the CLI will run in (marked as trusted)")
        p.add_argument("--url", default="http://127.0.0.1:8399", help="where fakellm listens")
        p.add_argument("--scenario", help="scenario to select by URL")
        p.add_argument("--key", help="keeps failure counters of parallel runs apart")
        p.add_argument("--model")
        a = p.parse_args(argv[1:])
        base = a.url + (f"/s/{a.scenario}" + (f"~{a.key}" if a.key else "") if a.scenario else "")
        done = cli_setup(a.cli, base, a.home, a.cwd, a.model).write()
        for k, v in done.env.items():
            print(f"export {k}={shlex.quote(v)}")
        print("# wrote: " + " ".join(done.files))
        print("# run:   " + shlex.join(done.argv) + " 'PROMPT' </dev/null")
        return 0
    p = argparse.ArgumentParser(
        prog="fakellm",
        description="Scripted loopback stand-in for the cloud LLM APIs.",
        epilog="`fakellm.py setup CLI --home DIR` prepares a CLI to use it.",
    )
    p.add_argument("--host", default="127.0.0.1", help="loopback address to listen on")
    p.add_argument("--port", type=int, default=8399, help="0 picks a free port")
    p.add_argument("--default", default="edit", help="scenario when neither prompt nor URL names one")
    p.add_argument("--scenarios", metavar="FILE", help="JSON file: {name: steps, ...}")
    p.add_argument("--log", metavar="FILE", help="append one JSON line per request")
    p.add_argument("--bodies", action="store_true", help="put request bodies (not keys) in the log too")
    p.add_argument("--list", action="store_true", help="print the built-in scenarios and exit")
    a = p.parse_args(argv)
    if a.list:
        for name, steps in BUILTIN.items():
            print(name, json.dumps(steps))
        return 0
    extra = None
    if a.scenarios:
        with open(a.scenarios, encoding="utf-8") as f:
            extra = json.load(f)
    llm = FakeLLM(a.port, a.default, extra, a.host, a.log, a.bodies)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(
        json.dumps({"fakellm": __version__, "url": llm.url, "port": llm.port, "pid": os.getpid()}), flush=True
    )
    try:
        llm.serve()
    except (KeyboardInterrupt, SystemExit):
        pass
    finally:
        llm.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
