"""How each CLI is started, as data."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.adapters.coders.agy import AgyCoder
from fleet.adapters.coders.claude import ClaudeCoder
from fleet.adapters.coders.codex import HOOKS, CodexCoder, trusted_hash
from fleet.adapters.coders.copilot import CopilotCoder
from fleet.adapters.coders.gemini import GeminiCoder
from fleet.adapters.coders.opencode import OpencodeCoder
from fleet.adapters.coders.permissions import doer_commands
from fleet.adapters.coders.scripted import ScriptedCoder
from fleet.domain.run import Mode, Role
from fleet.errors import InvalidInput
from fleet.ports.coder import Coder, Launch, Turn

PROMPT = "\n Fix the “bug” 🐛 --now; $(rm -rf /) '\"`\\ \n\n"
TURN = Turn(
    prompt=PROMPT,
    folder="/home/me/.fleet/runs/r1/turn-1",
    workspace="/home/me/.fleet/workspaces/p/w",
    git_folders=("/p/.git", "/p/.git/worktrees/w"),
    hook=("/usr/bin/python3", "/opt/a b/hook.py", "--run", "r1"),
    new_session="11111111-2222-4333-8444-555555555555",
    allow_commands=("npm test", "make:*", "cargo build *"),
    model="cheap",
    flags=("--user-flag", "x y"),
)
RESUMED = replace(TURN, session="old-session")
REVIEW = replace(TURN, role=Role.REVIEWER)
SKIPPING = replace(TURN, skip_permissions=True)
IN_TMUX = replace(TURN, mode=Mode.TMUX)
CODERS: list[Coder] = [
    ClaudeCoder(is_root=False),
    CodexCoder(),
    GeminiCoder(),
    CopilotCoder(),
    OpencodeCoder(),
    AgyCoder(),
    ScriptedCoder(),
]
BY_STDIN = [coder for coder in CODERS if coder.facts.name != "agy"]
WITH_TERMINAL = [coder for coder in CODERS if Mode.TMUX in coder.facts.modes]


def name_of(coder: Coder) -> str:
    return coder.facts.name


def has_run(words: tuple[str, ...], *wanted: str) -> bool:
    """Whether the words stand one after the other."""
    return any(words[at : at + len(wanted)] == wanted for at in range(len(words)))


@pytest.mark.parametrize("coder", BY_STDIN, ids=name_of)
def test_a_headless_prompt_goes_to_stdin_byte_for_byte_and_nowhere_else(coder: Coder) -> None:
    launch = coder.launch(TURN)
    assert launch.stdin == PROMPT.encode()
    assert not any(PROMPT in word for word in launch.argv)
    assert not any(PROMPT.encode() in content for content in launch.files.values())


@pytest.mark.parametrize("coder", CODERS, ids=name_of)
def test_a_prompt_never_gets_into_the_environment(coder: Coder) -> None:
    turns = [TURN, RESUMED, SKIPPING, *([IN_TMUX] if Mode.TMUX in coder.facts.modes else [])]
    for turn in turns:
        assert not any("Fix the" in value for value in coder.launch(turn).env.values())


@pytest.mark.parametrize("coder", WITH_TERMINAL, ids=name_of)
def test_in_tmux_the_prompt_is_the_last_argument(coder: Coder) -> None:
    launch = coder.launch(IN_TMUX)
    assert launch.argv[-1].endswith(PROMPT)
    assert not launch.paste
    assert launch.stdin == b""


@pytest.mark.parametrize("coder", WITH_TERMINAL, ids=name_of)
def test_in_tmux_an_agent_can_be_started_without_a_prompt(coder: Coder) -> None:
    launch = coder.launch(replace(IN_TMUX, prompt=""))
    assert not launch.paste
    assert not any(word in ("--", "") or word.endswith("=") for word in launch.argv[1:])


@pytest.mark.parametrize(
    ("name", "resumes"),
    [
        ("claude", ("--resume", "old")),
        ("codex", ("codex", "resume", "old")),
        ("gemini", ("--resume", "old")),
        ("copilot", ("--resume=old",)),
        ("opencode", ("-s", "old")),
        ("scripted", ("--resume", "old")),
    ],
)
def test_in_tmux_a_session_is_resumed_without_a_prompt(name: str, resumes: tuple[str, ...]) -> None:
    coder = next(coder for coder in WITH_TERMINAL if name_of(coder) == name)
    launch = coder.launch(replace(IN_TMUX, prompt="", session="old"))
    assert has_run(launch.argv, *resumes)
    assert TURN.new_session not in launch.argv
    assert launch.session == "old"
    assert not launch.paste
    assert not {"-p", "exec", "run", "--print"} & set(launch.argv), "it is for a person, not for a pipe"
    assert not any(word in ("--", "") or word.endswith("=") for word in launch.argv[1:])


def test_every_coder_that_runs_in_tmux_is_known_to_resume_there() -> None:
    assert {name_of(coder) for coder in WITH_TERMINAL} == {name_of(coder) for coder in CODERS} - {"agy"}
    assert not AgyCoder().facts.resumes


@pytest.mark.parametrize("coder", WITH_TERMINAL, ids=name_of)
def test_a_prompt_too_long_for_an_argument_is_pasted_where_the_cli_says_when(coder: Coder) -> None:
    long = replace(IN_TMUX, prompt="x" * 200_000)
    if name_of(coder) in ("claude", "opencode", "scripted"):
        launch = coder.launch(long)
        assert launch.paste
        assert max(map(len, launch.argv)) < 100_000
    else:
        with pytest.raises(InvalidInput, match="200000 bytes"):
            coder.launch(long)


@pytest.mark.parametrize("coder", BY_STDIN, ids=name_of)
def test_a_headless_prompt_may_be_of_any_length(coder: Coder) -> None:
    launch = coder.launch(replace(TURN, prompt="é" * 3_000_000))
    assert len(launch.stdin) == 6_000_000
    assert sum(map(len, launch.argv)) < 10_000


@pytest.mark.parametrize("coder", CODERS, ids=name_of)
def test_the_users_flags_are_handed_on_as_they_are(coder: Coder) -> None:
    assert has_run(coder.launch(TURN).argv, "--user-flag", "x y")


@pytest.mark.parametrize("coder", WITH_TERMINAL, ids=name_of)
def test_the_users_flags_stand_before_the_prompt(coder: Coder) -> None:
    argv = coder.launch(IN_TMUX).argv
    assert argv.index("x y") < len(argv) - 1


@pytest.mark.parametrize("coder", CODERS, ids=name_of)
def test_a_launch_starts_the_cli_itself_and_no_shell(coder: Coder) -> None:
    turns = (TURN, IN_TMUX) if Mode.TMUX in coder.facts.modes else (TURN,)
    assert {coder.launch(turn).argv[0] for turn in turns} == {coder.facts.binary}


@pytest.mark.parametrize("coder", CODERS, ids=name_of)
def test_the_same_turn_is_always_launched_the_same_way(coder: Coder) -> None:
    assert coder.launch(TURN) == coder.launch(TURN)


@pytest.mark.parametrize("coder", CODERS, ids=name_of)
def test_files_are_put_into_the_turns_own_folder(coder: Coder) -> None:
    turns = [TURN, SKIPPING, *([IN_TMUX] if Mode.TMUX in coder.facts.modes else [])]
    assert not any("/" in name for turn in turns for name in coder.launch(turn).files)


@pytest.mark.parametrize(
    ("name", "known"),
    [("claude", True), ("gemini", True), ("copilot", True), ("codex", False), ("opencode", False)],
)
def test_a_new_sessions_id_is_known_beforehand_where_the_caller_may_choose_it(name: str, known: bool) -> None:
    coder = next(coder for coder in CODERS if name_of(coder) == name)
    launch = coder.launch(TURN)
    assert launch.session == (TURN.new_session if known else "")
    assert (TURN.new_session in launch.argv) == known


def test_claude_headless() -> None:
    launch = ClaudeCoder(is_root=False).launch(TURN)
    assert launch.argv == (
        *("claude", "-p", "--output-format", "stream-json", "--verbose"),
        *("--settings", f"{TURN.folder}/claude-settings.json", "--permission-mode", "dontAsk"),
        *("--model", "haiku", "--session-id", TURN.new_session, "--user-flag", "x y"),
    )
    assert launch.env == {"DISABLE_AUTOUPDATER": "1", "CLAUDECODE": ""}


def claude_settings(turn: Turn) -> dict[str, dict[str, list[str]]]:
    return json.loads(ClaudeCoder(is_root=False).launch(turn).files["claude-settings.json"])


def test_claude_as_doer_may_edit_and_run_what_the_project_allows_but_not_push() -> None:
    rules = claude_settings(TURN)["permissions"]
    assert rules["allow"][:2] == ["Edit(**)", "Read"]
    assert {"Bash(git commit *)", "Bash(npm test *)", "Bash(make *)", "Bash(cargo build *)"} <= set(
        rules["allow"]
    )
    assert not any(rule.startswith("Write(") for rule in rules["allow"])
    assert not any("push" in rule or rule == "Bash(git *)" for rule in rules["allow"])
    assert rules["deny"] == ["Bash(git push *)"]


def test_claude_as_reviewer_has_no_tool_that_writes() -> None:
    rules = claude_settings(REVIEW)["permissions"]
    assert rules == {"allow": ["Read"], "deny": ["Edit", "Write", "NotebookEdit"]}
    for turn in (REVIEW, replace(REVIEW, mode=Mode.TMUX)):
        assert has_run(ClaudeCoder().launch(turn).argv, "--permission-mode", "dontAsk")


@pytest.mark.parametrize(
    ("is_root", "skips", "sandbox"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_claude_claims_a_sandbox_only_as_root_and_when_told_to_skip(
    is_root: bool, skips: bool, sandbox: bool
) -> None:
    launch = ClaudeCoder(is_root=is_root).launch(replace(TURN, skip_permissions=skips))
    assert ("IS_SANDBOX" in launch.env) == sandbox
    assert has_run(launch.argv, "--permission-mode", "bypassPermissions" if skips else "dontAsk")


def test_claude_in_tmux_asks_the_person_and_tells_through_hooks() -> None:
    launch = ClaudeCoder(is_root=False).launch(IN_TMUX)
    assert launch.argv[0:3] == ("claude", "--settings", f"{TURN.folder}/claude-settings.json")
    assert has_run(launch.argv, "--permission-mode", "acceptEdits")
    assert launch.argv[-2:] == ("--", PROMPT)
    hooks = json.loads(launch.files["claude-settings.json"])["hooks"]
    assert {"SessionStart", "UserPromptSubmit", "PermissionRequest", "Stop", "StopFailure"} <= hooks.keys()
    command = hooks["Stop"][0]["hooks"][0]["command"]
    assert command == "/usr/bin/python3 '/opt/a b/hook.py' --run r1 >/dev/null 2>&1 || :"


def test_claude_resumes_by_id() -> None:
    argv = ClaudeCoder().launch(RESUMED).argv
    assert has_run(argv, "--resume", "old-session")
    assert "--session-id" not in argv


def test_codex_headless() -> None:
    assert CodexCoder().launch(TURN).argv == (
        *("codex", "exec", "--json", "--skip-git-repo-check", "-s", "workspace-write"),
        *("--add-dir", "/p/.git/objects", "--add-dir", "/p/.git/refs", "--add-dir", "/p/.git/logs"),
        *("--add-dir", "/p/.git/worktrees/w", "-m", "gpt-6-luna"),
        *("-c", "check_for_update_on_startup=false", "-c", "features.unbounded_connection_retries=false"),
        *("--user-flag", "x y", "-"),
    )


def test_codex_may_commit_in_a_plain_checkout_too() -> None:
    argv = CodexCoder().launch(replace(TURN, git_folders=())).argv
    assert has_run(argv, "--add-dir", f"{TURN.workspace}/.git")


def test_codex_takes_its_options_before_the_word_resume() -> None:
    argv = CodexCoder().launch(RESUMED).argv
    assert argv[-3:] == ("resume", "old-session", "-")
    assert argv.index("-s") < argv.index("resume")


@pytest.mark.parametrize("mode", Mode)
def test_codex_as_reviewer_is_in_a_read_only_sandbox(mode: Mode) -> None:
    argv = CodexCoder().launch(replace(REVIEW, mode=mode)).argv
    assert has_run(argv, "-s", "read-only")
    assert "--add-dir" not in argv


def test_codex_skips_its_sandbox_only_when_told() -> None:
    argv = CodexCoder().launch(SKIPPING).argv
    assert "--dangerously-bypass-approvals-and-sandbox" in argv
    assert "-s" not in argv


def test_codex_in_tmux_trusts_the_workspace_and_our_hooks_and_nothing_else() -> None:
    odd = replace(IN_TMUX, workspace='/home/me/a "quoted" \\ place')
    argv = CodexCoder().launch(odd).argv
    values = [argv[at + 1] for at, word in enumerate(argv) if word == "-c"]
    config: dict[str, Any] = {}
    for value in values:
        key, _, text = value.partition("=")
        config[key] = tomllib.loads(f"value = {text}")["value"]
    assert config["projects"] == {odd.workspace: {"trust_level": "trusted"}}
    assert config["hooks.Stop"][0]["hooks"][0]["type"] == "command"
    assert set(config["hooks.state"]) == {
        f"/<session-flags>/config.toml:{event}:0:0" for event in HOOKS.values()
    }
    assert "--dangerously-bypass-hook-trust" not in argv
    assert "--no-daemon" in argv
    assert argv[-2:] == ("--", PROMPT)


def test_codex_resumed_in_tmux() -> None:
    assert CodexCoder().launch(replace(IN_TMUX, session="old")).argv[:3] == ("codex", "resume", "old")


def test_a_codex_hook_is_trusted_by_the_hash_that_codex_itself_writes() -> None:
    """Taken from the configuration that Codex 0.166.0 wrote when a person trusted these hooks."""
    stop = "8ba29ded04038c52832548d01a197dd3c24aac6e21d816f388f046ab09768060"
    interrupt = "461557090d383e4523d199ab0e90511c3fb32340392f729fc9796e6b2b485219"
    assert trusted_hash("stop", "true") == f"sha256:{stop}"
    assert trusted_hash("interrupt", "true") == f"sha256:{interrupt}"


def test_opencode_resumed_in_tmux_gets_its_prompt_pasted() -> None:
    launch = OpencodeCoder().launch(replace(IN_TMUX, session="old"))
    assert launch.paste
    assert not any("Fix the" in word for word in launch.argv)


def test_gemini_headless() -> None:
    launch = GeminiCoder().launch(TURN)
    assert launch.argv == (
        *("gemini", "--skip-trust", "--approval-mode", "auto_edit"),
        *("--policy", f"{TURN.folder}/gemini-policy.toml", "--model", "flash-lite"),
        *("--session-id", TURN.new_session, "--user-flag", "x y", "--output-format", "stream-json"),
    )
    assert launch.env == {"GEMINI_CLI_NO_RELAUNCH": "true"}


def gemini_rules(turn: Turn) -> list[dict[str, Any]]:
    return tomllib.loads(GeminiCoder().launch(turn).files["gemini-policy.toml"].decode())["rule"]


def test_geminis_policy_forbids_to_push_before_it_allows_anything() -> None:
    odd = replace(TURN, allow_commands=('say "hi" \\ there',))
    deny, allow = gemini_rules(odd)
    assert (deny["decision"], deny["commandPrefix"]) == ("deny", ["git push"])
    assert deny["priority"] > allow["priority"]
    assert allow["commandPrefix"][-1] == 'say "hi" \\ there'


def test_gemini_as_reviewer_may_not_write() -> None:
    rules = gemini_rules(REVIEW)
    assert rules[0]["toolName"] == ["write_file", "replace"]
    assert rules[0]["decision"] == "deny"
    assert has_run(GeminiCoder().launch(REVIEW).argv, "--approval-mode", "default")


LOOKING = (
    "git diff --stat HEAD~1 -- 'src/a b.py'",
    "git log --oneline -5",
    'git log --format="%h %s" HEAD@{1}',
    "git show HEAD:README.md",
)
MISUSES = (
    "git grep --open-files='touch pwned' x",
    "git grep --op='touch pwned' x",
    "git grep -lO'touch pwned' x",
    "git grep -O'touch pwned' x",
    "git diff --output=pwned",
    "git diff --outp=pwned",
    "git diff --o=pwned",
    "git diff '--output=pwned'",
    "git diff --o'utput'=pwned",
    'git diff -"-output=pwned"',
    "git diff -\\-output=pwned",
    "git diff {-,x}-output=pwned",
    "git diff {x,-}-output=pwned",
    "git diff $'\\x2d-output=pwned'",
    "git diff -$nothing-output=pwned",
    "git diff ${nothing:---}output=pwned",
    "git diff $(touch pwned)",
    "git diff `touch pwned`",
)


def gemini_allows(command: str) -> bool:
    """As Gemini judges: patterns are sought in the arguments as JSON, and the highest priority counts."""
    arguments = json.dumps({"command": command})
    for rule in sorted(gemini_rules(REVIEW), key=lambda rule: -rule["priority"]):
        prefixes = tuple(f"{prefix} " for prefix in rule.get("commandPrefix", ()))
        if "argsPattern" in rule and re.search(rule["argsPattern"], arguments):
            return rule["decision"] == "allow"
        if prefixes and command.startswith(prefixes):
            return rule["decision"] == "allow"
    return False


def opencode_allows(command: str) -> bool:
    """As OpenCode judges: the last pattern that fits counts, and only the star is special."""
    verdicts = [
        verdict
        for pattern, verdict in opencode_rules(REVIEW)["bash"].items()
        if re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), command, re.S)
    ]
    return verdicts[-1] == "allow"


@pytest.mark.parametrize("allows", [gemini_allows, opencode_allows])
def test_a_reviewer_that_is_kept_by_patterns_may_look_but_gets_git_to_run_and_to_write_nothing(
    allows: Callable[[str], bool],
) -> None:
    assert [command for command in LOOKING if not allows(command)] == []
    assert [command for command in MISUSES if allows(command)] == []


def test_a_policy_is_toml_whatever_the_project_allows() -> None:
    odd = ("run 🎉", "del \x7f", "half \udc81")
    _, allow = gemini_rules(replace(TURN, allow_commands=odd))
    assert allow["commandPrefix"][-3:] == ["run 🎉", "del \x7f", "half ?"]


def test_gemini_skips_permissions_without_a_policy() -> None:
    launch = GeminiCoder().launch(SKIPPING)
    assert has_run(launch.argv, "--approval-mode", "yolo")
    assert launch.files == {}


def test_gemini_in_tmux_takes_a_prompt_that_begins_with_a_dash() -> None:
    launch = GeminiCoder().launch(replace(IN_TMUX, prompt="--help me"))
    assert launch.argv[-1] == "--prompt-interactive=--help me"


def test_copilot_headless() -> None:
    argv = CopilotCoder().launch(TURN).argv
    assert argv[:3] == ("copilot", "--no-auto-update", "--allow-tool=write")
    assert {
        "--allow-tool=shell(git commit)",
        "--allow-tool=shell(npm test:*)",
        "--allow-tool=shell(make:*)",
        "--deny-tool=shell(git push)",
    } <= set(argv)
    assert argv[-4:] == ("x y", "--output-format", "json", "--no-ask-user")
    assert has_run(argv, "--usage-output-file", f"{TURN.folder}/{CopilotCoder.facts.report}")
    assert not any("allow-all" in word for word in argv)


def test_copilot_as_reviewer_may_not_write() -> None:
    argv = CopilotCoder().launch(REVIEW).argv
    assert "--deny-tool=write" in argv
    assert not any(word.startswith("--allow") for word in argv)


def test_copilot_resumes_so_that_an_unknown_session_fails() -> None:
    argv = CopilotCoder().launch(RESUMED).argv
    assert "--resume=old-session" in argv
    assert "--session-id" not in argv


def test_copilot_in_tmux_loads_a_plugin_for_this_session_alone() -> None:
    launch = CopilotCoder().launch(IN_TMUX)
    assert has_run(launch.argv, "--plugin-dir", TURN.folder)
    hooks = json.loads(launch.files["hooks.json"])["hooks"]
    assert {"sessionStart", "userPromptSubmitted", "notification", "agentStop"} <= hooks.keys()
    assert json.loads(launch.files["plugin.json"])["hooks"] == "hooks.json"
    assert launch.env == {}


def opencode_rules(turn: Turn) -> dict[str, Any]:
    return json.loads(OpencodeCoder().launch(turn).env["OPENCODE_PERMISSION"])


def test_opencode_headless() -> None:
    launch = OpencodeCoder().launch(replace(RESUMED, model="anthropic/claude-x"))
    assert launch.argv == (
        *("opencode", "run", "--format", "json", "-m", "anthropic/claude-x", "-s", "old-session"),
        *("--user-flag", "x y"),
    )
    assert launch.env["PWD"] == TURN.workspace
    assert "OPENCODE_CONFIG_CONTENT" not in launch.env


def test_opencode_headless_is_never_asked_since_a_question_would_end_it() -> None:
    assert "ask" not in json.dumps(opencode_rules(TURN))
    assert '"*": "ask"' in json.dumps(opencode_rules(IN_TMUX))


def test_opencodes_last_rule_wins_so_what_is_forbidden_stands_last() -> None:
    for turn in (TURN, IN_TMUX, REVIEW):
        bash = opencode_rules(turn)["bash"]
        assert next(iter(bash)) == "*"
        assert list(bash.values())[-1] == "deny"
    assert opencode_rules(REVIEW)["edit"] == "deny"


def test_opencode_in_tmux_loads_its_plugin_from_the_turns_folder() -> None:
    launch = OpencodeCoder().launch(IN_TMUX)
    assert json.loads(launch.env["OPENCODE_CONFIG_CONTENT"]) == {
        "plugin": [f"file://{TURN.folder}/opencode_plugin.js"]
    }
    assert json.loads(launch.env["FLEET_HOOK"]) == list(TURN.hook)
    assert b"session.idle" in launch.files["opencode_plugin.js"]


def test_opencodes_plugin_is_found_in_a_folder_with_an_odd_name() -> None:
    launch = OpencodeCoder().launch(replace(IN_TMUX, folder="/a b/50%#?é"))
    assert json.loads(launch.env["OPENCODE_CONFIG_CONTENT"]) == {
        "plugin": ["file:///a%20b/50%25%23%3F%C3%A9/opencode_plugin.js"]
    }


def test_opencode_skips_permissions_with_its_own_flag() -> None:
    launch = OpencodeCoder().launch(SKIPPING)
    assert "--auto" in launch.argv
    assert "OPENCODE_PERMISSION" not in launch.env


def test_agy() -> None:
    assert AgyCoder().launch(replace(TURN, model="gemini-3-pro")).argv == (
        *("agy", "--model", "gemini-3-pro", "--mode", "accept-edits", "--user-flag", "x y", "-p", PROMPT),
    )
    assert "--dangerously-skip-permissions" in AgyCoder().launch(SKIPPING).argv


def test_agy_is_no_reviewer_since_it_cannot_be_kept_from_writing() -> None:
    with pytest.raises(InvalidInput, match="only reads"):
        AgyCoder().launch(REVIEW)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("premium", ("--model", "opus")),
        ("standard", ("--model", "sonnet")),
        ("claude-x-1", ("--model", "claude-x-1")),
    ],
)
def test_a_tier_is_this_clis_model_and_any_other_text_a_models_name(
    asked: str, words: tuple[str, ...]
) -> None:
    assert has_run(ClaudeCoder().launch(replace(TURN, model=asked)).argv, *words)


@pytest.mark.parametrize("coder", CODERS, ids=name_of)
def test_a_models_name_cannot_be_an_option(coder: Coder) -> None:
    with pytest.raises(InvalidInput, match="'--yolo' is no name of a model"):
        coder.launch(replace(TURN, model="--yolo"))


@pytest.mark.parametrize("coder", CODERS, ids=name_of)
def test_without_a_model_the_cli_chooses(coder: Coder) -> None:
    argv = coder.launch(replace(TURN, model="")).argv
    assert "--model" not in argv
    assert "-m" not in argv


def test_a_tier_that_a_cli_has_no_model_for_leaves_the_choice_to_it() -> None:
    assert "-m" not in OpencodeCoder().launch(replace(TURN, model="premium")).argv


def test_commands_are_allowed_by_what_they_begin_with() -> None:
    allowed = doer_commands(("  npm   test ", "make:*", "tox *", "", "*"))
    assert allowed[-3:] == ("npm test", "make", "tox")


def test_git_may_not_reach_the_network() -> None:
    allowed = set(doer_commands(()))
    assert not allowed & {"git", "git push", "git fetch", "git pull", "git remote", "git config", "git clone"}


def test_every_coder_says_how_to_get_it() -> None:
    for coder in CODERS:
        facts = coder.facts
        assert facts.binary
        assert Mode.HEADLESS in facts.modes
        assert facts.login_hint or facts.name == "scripted"
        assert facts.install or facts.name in ("scripted", "agy")


def test_a_launch_for_a_turn_without_a_hook_names_none() -> None:
    for coder in WITH_TERMINAL:
        launch: Launch = coder.launch(replace(IN_TMUX, hook=()))
        assert not any("hook.py" in word for word in launch.argv)


@pytest.mark.parametrize("tier", ["cheap", "standard", "premium"])
def test_the_documented_tiers_are_those_of_the_coders(tier: str) -> None:
    page = (Path(__file__).parents[2] / "docs/howto/coders.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith(f"| `{tier}` |")]
    names = ("claude", "codex", "gemini", "copilot", "opencode", "agy", "scripted")
    tiers = {name_of(coder): getattr(coder.facts.tiers, tier) or "–" for coder in CODERS}
    assert [cell.strip() for cell in row.split("|")[2:-1]] == [tiers[name] for name in names]
