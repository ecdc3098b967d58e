"""Settings: layers, origins, refusals, and the last good version of a broken file."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fleet
from fleet.bootstrap import home_folder
from fleet.config.files import line_of, project_file, user_file
from fleet.config.loading import check_text, load
from fleet.config.settings import CODER_SETTINGS, SETTINGS, find_setting
from fleet.errors import BadConfig, InvalidInput
from tests.tables import for_each

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "howto" / "configure.md"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return tmp_path / "shop"


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


# Defaults


def test_without_any_file_every_setting_has_its_default(home: Path) -> None:
    settings = load(home, environ={})
    assert settings.values == {key: setting.default for key, setting in SETTINGS.items()}
    assert {settings.origin(key) for key in SETTINGS} == {"default"}
    assert settings.warnings == ()
    assert not home.exists()


def test_the_defaults_are_the_published_ones(home: Path) -> None:
    assert load(home, environ={}).values == {
        "project.name": "",
        "project.workspaces": "",
        "coder.default": "claude",
        "coder.model": "",
        "coder.mode": "",
        "coder.skip_permissions": False,
        "setup.credential_files": (),
        "setup.commands": (),
        "setup.quick": False,
        "setup.timeout_seconds": 1800,
        "permissions.allow_commands": (),
        "tmux.prefix": "fleet",
        "limits.min_free_mb": 500,
        "limits.max_output_mb": 2048,
        "limits.max_concurrent": 3,
        "limits.per_coder": 0,
        "limits.per_project": 0,
        "limits.per_host": 0,
        "limits.allowed_repos": (),
        "limits.max_spawn_depth": 2,
        "budget.task_usd": 0,
        "budget.batch_usd": 0,
        "budget.project_usd_a_day": 0,
        "budget.usd_a_day": 0,
        "tasks.queue": "fleet",
        "tasks.max_failures": 3,
        "tasks.max_crashes": 10,
        "tasks.backoff_seconds": 10,
        "tasks.limit_pause_seconds": 300,
        "tasks.ageing_seconds": 3600,
        "tasks.silence_seconds": 1800,
        "tasks.tool_seconds": 7200,
        "tasks.turn_seconds": 0,
        "tasks.context_pct": 90,
        "tasks.gate_seconds": 1800,
        "tasks.push_to": "",
        "race.lint": "",
        "race.protect": (),
        "merge.into": "",
        "merge.gates": (),
        "merge.remote": "origin",
        "merge.forge": "",
        "merge.api_url": "https://api.github.com",
        "merge.token_variable": "GITHUB_TOKEN",
        "notify.command": "",
        "notify.webhook": "",
        "boundary.hold": True,
        "stop.grace_seconds": 10,
        "supervisor.idle_seconds": 300,
        "host.lease_seconds": 30,
        "host.labels": (),
        "database.url": "",
        "ui.log_lines": 50,
    }


def test_every_default_fits_its_own_type() -> None:
    for setting in (*SETTINGS.values(), *CODER_SETTINGS.values()):
        assert setting.kind.check(setting.default) == setting.default


def test_settings_cannot_be_changed(home: Path) -> None:
    settings = load(home, environ={})
    with pytest.raises((AttributeError, TypeError)):
        settings.coder_default = "codex"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.home = Path("/")  # type: ignore[misc]


def test_start_up_reads_no_toml_where_there_is_no_file(home: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from fleet.config.loading import load"
        "; load(Path(sys.argv[1]), environ={})"
        "; sys.exit(bool({'tomllib', 'tomlkit', 'difflib', 'string'} & set(sys.modules)))"
    )
    source = str(Path(fleet.__file__).parents[1])  # -S: what the installation itself loads is not ours
    environ = os.environ | {"PYTHONPATH": source}
    ended = subprocess.run([sys.executable, "-S", "-c", script, home], check=False, env=environ)
    assert ended.returncode == 0


# Layers and origins


def test_each_layer_wins_over_the_one_before(home: Path, project: Path) -> None:
    user = write(
        user_file(home),
        '[coder]\ndefault = "u"\nmodel = "u"\n\n[tmux]\nprefix = "u"\n[ui]\nlog_lines = 1\n',
    )
    shared = write(project_file(project), '[tmux]\nprefix = "p"\n[coder]\nmodel = "p"\ndefault = "p"\n')
    settings = load(home, project, environ={"FLEET_CODER_MODEL": "e"})
    assert (settings.ui_log_lines, settings.origin("ui.log_lines")) == (1, f"{user}:8")
    assert (settings.tmux_prefix, settings.origin("tmux.prefix")) == ("p", f"{shared}:2")
    assert (settings.coder_model, settings.origin("coder.model")) == ("e", "environment FLEET_CODER_MODEL")
    assert (settings.coder_default, settings.origin("coder.default")) == ("p", f"{shared}:5")
    assert settings.origin("stop.grace_seconds") == "default"


def test_a_home_that_is_a_repository_has_one_file_for_both(tmp_path: Path) -> None:
    file = write(tmp_path / ".fleet" / "config.toml", '[coder]\nmodel = "x"\n')
    settings = load(tmp_path / ".fleet", tmp_path, environ={})
    assert settings.origin("coder.model") == f"{file}:2"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('coder.default = "x"', 1),
        ('\n# comment\n[coder]\n# comment\n\n  default   =   "x"  # why', 6),
        ('coder = { model = "m", default = "x" }', 1),
        ('[setup]\ncommands = [\n  "a",\n  "[coder]",\n]\n[coder]\ndefault = "x"', 7),
        (
            '[project]\nname = """\n[coder]\ndefault = 1\n"""\n[coder]\nmodel = """\\\n  m"""\ndefault = "x"',
            9,
        ),
        ('[ "coder" ]\r\n"default" = "x"\r\n', 2),
        ("[coder]\n'default' = '''\nx'''", 2),
    ],
)
def test_the_line_of_a_value_is_found_in_any_layout(home: Path, text: str, line: int) -> None:
    user_file(home).parent.mkdir()
    user_file(home).write_bytes(text.encode())
    settings = load(home, environ={})
    assert settings.coder_default == "x"
    assert settings.origin("coder.default") == f"{user_file(home)}:{line}"


def test_the_line_of_a_missing_key_is_that_of_what_would_hold_it() -> None:
    assert line_of("\n[coder]\nmodel = 1", ("coder", "mode")) == 2
    assert line_of("", ("coder", "mode")) == 1


def test_an_empty_variable_counts_as_not_set(home: Path) -> None:
    settings = load(home, environ={"FLEET_CODER_DEFAULT": "", "FLEET_LIMITS_MIN_FREE_MB": ""})
    assert settings.coder_default == "claude"
    assert settings.origin("limits.min_free_mb") == "default"


def test_variables_of_other_purposes_are_left_alone(home: Path) -> None:
    assert load(home, environ={"FLEET_RUN": "x", "FLEET_HOME": "/y", "FLEET_NO": "z"}).sources == {}


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("setup.quick", "1", True),
        ("setup.quick", "Yes", True),
        ("setup.quick", "off", False),
        ("limits.min_free_mb", "7", 7),
        ("stop.grace_seconds", "0.5", 0.5),
        ("stop.grace_seconds", "3", 3),
        ("setup.commands", "npm ci", ("npm ci",)),
        ("setup.commands", "npm ci\nnpm test\n", ("npm ci", "npm test")),
        ("setup.commands", '["a, b", \'c "d"\']', ("a, b", 'c "d"')),
        ("setup.commands", "[]", ()),
        ("coder.mode", "tmux", "tmux"),
        ("coder.model", "[not a list", "[not a list"),
    ],
)
def test_a_variable_is_read_by_the_type_of_its_setting(
    home: Path, key: str, text: str, value: object
) -> None:
    settings = load(home, environ={SETTINGS[key].variable: text})
    assert settings.values[key] == value
    assert type(settings.values[key]) is type(value)


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        ("setup.quick", "maybe", "true or false"),
        ("limits.min_free_mb", "much", "whole number"),
        ("limits.min_free_mb", "1.5", "whole number"),
        ("limits.min_free_mb", "-1", "negative"),
        ("limits.min_free_mb", "9" * 5000, "whole number"),
        ("stop.grace_seconds", "inf", "from 0 up"),
        ("stop.grace_seconds", "nan", "from 0 up"),
        ("stop.grace_seconds", "-0.1", "from 0 up"),
        ("coder.mode", "screen", "tmux"),
        ("coder.default", " ", "empty"),
        ("setup.commands", "[1]", "list of texts"),
        ("setup.commands", "[", "TOML array"),
        ("setup.commands", '["a"]\nx = 1', "list of texts"),
        ("setup.commands", "[" * 5000, "TOML array"),
    ],
)
def test_a_variable_that_does_not_fit_is_named(home: Path, key: str, text: str, reason: str) -> None:
    variable = SETTINGS[key].variable
    with pytest.raises(BadConfig, match=f"environment {variable}: .*{reason}") as told:
        load(home, environ={variable: text})
    assert told.value.hint == "give it another value, or leave it out"


# Refusals


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ('[coder]\n\ndefualt = "x"', 3, "unknown setting 'coder.defualt'; did you mean 'coder.default'?"),
        ('default = "x"', 1, "unknown setting 'default'"),
        ('[nonsense]\nx = 1\n[coder]\ndefault="x"', 2, "unknown setting 'nonsense.x'"),
        ("[coder]\ndefault = 1", 2, "coder.default must be text in quotes, not 1"),
        ('[coder]\nmode = "screen"', 2, 'coder.mode must be "tmux", "headless" or ""'),
        ("[coder.default]\nx = 1", 1, "coder.default must be text in quotes"),
        ("[[coder]]\ndefault = 'x'", 1, "unknown setting 'coder'"),
        ("[setup]\n\nquick = 'yes'", 3, "setup.quick must be true or false, not 'yes'"),
        (
            "[setup]\ncommands = [\n'a',\n1,\n]",
            2,
            "setup.commands must be a list of texts, but one entry is 1",
        ),
        ("[setup]\ncommands = 'a'", 2, "setup.commands must be a list of texts"),
        ("[limits]\nmin_free_mb = true", 2, "limits.min_free_mb must be a whole number"),
        ("[limits]\nmin_free_mb = -5", 2, "must not be negative"),
        ("[tasks]\ncontext_pct = 900", 2, "tasks.context_pct must be from 0 to 100, not 900"),
        ("[stop]\ngrace_seconds = nan", 2, "from 0 up"),
        ("[tmux]\nprefix = ''", 2, "tmux.prefix must not be empty"),
        ("\n[coders]\nclaude = 1", 3, "must be a table"),
        ("coders = 1", 1, "unknown setting 'coders'"),
        ("[coders.claude]\nflags = '--x'", 2, "coders.claude.flags must be a list of texts"),
        ("[coders.mine]\nsince = 2020-01-01", 2, "not a date"),
        ("[coder]\ndefault = ", 2, "is no valid TOML: Invalid value"),
        ("[coder]\ndefault = 'x'\ndefault = 'y'\n", 3, "Cannot overwrite a value"),
        ("[coder]\n\n[coder]", 3, "Cannot declare"),
        ("x = '''\n\n", 1, "is no valid TOML"),
        ("[limits]\nmin_free_mb = " + "9" * 5000, 2, "is no valid TOML"),
    ],
)
def test_a_broken_file_is_refused_with_line_and_reason(home: Path, text: str, line: int, reason: str) -> None:
    file = write(user_file(home), text)
    with pytest.raises(BadConfig) as caught:
        load(home, environ={})
    assert caught.value.path == f"{file}:{line}"
    assert reason in caught.value.reason
    assert not (home / "last-good").exists()


def test_a_file_that_is_not_text_is_refused_with_its_line(home: Path) -> None:
    user_file(home).parent.mkdir()
    user_file(home).write_bytes(b"[coder]\n# \xff\n")
    with pytest.raises(BadConfig, match=r"config\.toml:2: is not UTF-8"):
        load(home, environ={})


def test_a_file_that_cannot_be_read_is_refused(home: Path) -> None:
    user_file(home).mkdir(parents=True)
    with pytest.raises(BadConfig, match="cannot be read: Is a directory"):
        load(home, environ={})


def test_a_file_nested_without_end_is_refused(home: Path) -> None:
    write(user_file(home), "x = " + "[" * 20_000)
    with pytest.raises(BadConfig, match="is no valid TOML"):
        load(home, environ={})


@given(st.text(alphabet=st.sampled_from("[]{}=\".\\'#\n\r\t ,codermx1-")))
def test_any_text_is_accepted_or_refused_with_a_place(text: str) -> None:
    try:
        check_text("config.toml", text)
    except BadConfig as exc:
        name, _, line = exc.path.partition(":")
        assert name == "config.toml"
        assert 1 <= int(line) <= text.count("\n") + 1


# The last good version


def test_while_a_file_is_broken_its_last_good_version_stays_in_force(home: Path, project: Path) -> None:
    file = write(project_file(project), '\n[coder]\ndefault = "codex"\n')
    load(home, project, environ={})
    write(file, "[coder]\ndefault = 1\n")
    settings = load(home, project, environ={})
    assert settings.coder_default == "codex"
    assert settings.origin("coder.default") == f"{file}:3 (last good version)"
    (warning,) = settings.warnings
    assert f"{file}:2: coder.default must be text" in warning
    assert "last good version" in warning
    write(file, '[coder]\ndefault = "gemini"\n')
    assert load(home, project, environ={}).coder_default == "gemini"
    write(file, "[coder")
    assert load(home, project, environ={}).coder_default == "gemini"


def test_a_broken_file_is_refused_when_asked_to_be_strict(home: Path) -> None:
    write(user_file(home), "")
    load(home, environ={})
    write(user_file(home), "x")
    with pytest.raises(BadConfig):
        load(home, environ={}, strict=True)


def test_the_last_good_version_of_one_file_is_not_taken_for_that_of_another(
    home: Path, tmp_path: Path
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    write(project_file(one), '[coder]\ndefault = "codex"\n')
    load(home, one, environ={})
    (copy,) = (home / "last-good").iterdir()
    write(project_file(other), "broken")
    with pytest.raises(BadConfig):
        load(home, other, environ={})
    write(project_file(one), "broken")
    copy.write_bytes(copy.read_bytes().replace(b"one", b"two"))
    with pytest.raises(BadConfig):
        load(home, one, environ={})


@pytest.mark.parametrize("content", [b"", b"\xff", b"no title"])
def test_a_useless_copy_is_no_last_good_version(home: Path, content: bytes) -> None:
    write(user_file(home), "")
    load(home, environ={})
    (copy,) = (home / "last-good").iterdir()
    copy.write_bytes(content)
    write(user_file(home), "x")
    with pytest.raises(BadConfig):
        load(home, environ={})


def test_a_copy_that_this_fleet_does_not_understand_is_no_last_good_version(home: Path) -> None:
    write(user_file(home), '[coder]\ndefault = "codex"')
    load(home, environ={})
    (copy,) = (home / "last-good").iterdir()
    copy.write_bytes(copy.read_bytes().replace(b"default", b"renamed"))
    write(user_file(home), "x")
    with pytest.raises(BadConfig, match=r"config\.toml:1: is no valid TOML"):
        load(home, environ={})


def test_copies_are_for_the_owner_alone_and_written_only_when_the_file_changed(home: Path) -> None:
    write(user_file(home), "")
    load(home, environ={})
    (copy,) = (home / "last-good").iterdir()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert stat.S_IMODE(copy.parent.stat().st_mode) == 0o700
    before = copy.stat()
    load(home, environ={})
    after = copy.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_home_that_cannot_be_written_does_not_stop_loading(tmp_path: Path, project: Path) -> None:
    write(project_file(project), '[coder]\ndefault = "codex"')
    no_folder = write(tmp_path / "file", "")
    assert load(no_folder, project, environ={}).coder_default == "codex"


# Coders


def test_a_coders_table_is_kept_whole_and_joined_over_the_files(home: Path, project: Path) -> None:
    user = write(
        user_file(home),
        '[coders.mine]\ncommand = ["mine", "{prompt}"]\nflags = ["--user"]\n'
        '[coders.mine.output]\nfield = "a.b"\n',
    )
    write(project_file(project), '[coders.mine]\nflags = ["--project"]\n[coders.claude]\nmodel = "opus"\n')
    settings = load(home, project, environ={})
    assert settings.coder_table("mine") == {
        "command": ["mine", "{prompt}"],
        "flags": ["--project"],
        "output": {"field": "a.b"},
    }
    assert settings.coder_names() == ["claude", "mine"]
    assert settings.coder_flags("mine") == ("--project",)
    assert settings.origin("coders.mine.command") == f"{user}:2"
    assert settings.origin("coders.mine.flags") == f"{project_file(project)}:2"
    assert settings.coder_table("unknown") == {}
    assert settings.coder_flags("unknown") == ()


def test_a_coders_own_model_comes_first_and_a_foreign_model_never(home: Path) -> None:
    write(user_file(home), '[coder]\nmodel = "opus"\n[coders.codex]\nmodel = "gpt"\n')
    settings = load(home, environ={})
    assert settings.coder_model_for("claude") == "opus"
    assert settings.coder_model_for("codex") == "gpt"
    assert settings.coder_model_for("gemini") == ""
    assert load(home, environ={"FLEET_CODER_MODEL": "cheap"}).coder_model_for("gemini") == "cheap"


def test_permissions_are_skipped_for_one_coder_or_for_all(home: Path) -> None:
    write(
        user_file(home),
        "[coders.claude]\nskip_permissions = true\n[coders.codex]\nskip_permissions = false\n",
    )
    assert load(home, environ={}).skips_permissions("claude")
    assert not load(home, environ={}).skips_permissions("gemini")
    everywhere = load(home, environ={"FLEET_CODER_SKIP_PERMISSIONS": "true"})
    assert everywhere.skips_permissions("gemini")
    assert not everywhere.skips_permissions("codex")


# Folders


def test_workspaces_are_kept_in_fleets_home_by_project(home: Path, project: Path) -> None:
    assert load(home, environ={}).workspaces_root(project) == home / "workspaces" / "shop"
    named = load(home, environ={"FLEET_PROJECT_NAME": "../My Shop"})
    assert named.project_name == "../My Shop"
    assert named.workspaces_root(project) == home / "workspaces" / "My-Shop"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("~/w", "/me/w"),
        ("~", "/me"),
        ("$PLACE/w", "/srv/w"),
        ("${PLACE}w", "/srvw"),
        ("/plain", "/plain"),
        ("/costs/5$", "/costs/5$"),
        ("next", "/code/shop/next"),
    ],
)
def test_the_folder_of_workspaces_is_expanded(home: Path, text: str, place: str) -> None:
    environ = {"FLEET_PROJECT_WORKSPACES": text, "HOME": "/me", "PLACE": "/srv"}
    assert load(home, environ=environ).workspaces_root(Path("/code/shop")) == Path(place)


def test_a_variable_that_is_not_set_is_named_with_its_place(home: Path, project: Path) -> None:
    file = write(project_file(project), '[project]\nworkspaces = "$NOWHERE/w"\n')
    with pytest.raises(BadConfig, match=r"config\.toml:2: .*\$NOWHERE, which is not set") as caught:
        load(home, project, environ={}).workspaces_root(project)
    assert caught.value.path.startswith(str(file))


def test_fleets_home_is_where_the_variable_says() -> None:
    assert home_folder({"HOME": "/me"}) == Path("/me/.fleet")
    assert home_folder({"HOME": "/me", "FLEET_HOME": ""}) == Path("/me/.fleet")
    assert home_folder({"HOME": "/me", "FLEET_HOME": "~/x"}) == Path("/me/x")
    assert home_folder({"FLEET_HOME": "relative"}) == Path.cwd() / "relative"


# The database's URL


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db/fleet",
        "postgres://me@db:5432/fleet",
        "postgresql://me:p%40ss@[::1]:5432/fleet?sslmode=require",
        "postgresql://me:a:b@one:5432,two:5433/fleet?target_session_attrs=read-write",
        "postgresql://me@%2Frun%2Fpostgresql/fleet",
        "postgresql:///fleet",
    ],
)
def test_a_url_of_a_database_is_taken_as_it_is(home: Path, url: str) -> None:
    assert load(home, environ={"FLEET_DATABASE_URL": url}).database_url == url


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:s3cret/x@db/fleet",
        "postgresql://me:s3cret@x@db/fleet",
        "postgresql://me:s3cret?x@db/fleet",
        "postgresql://me:s3cret#x@db/fleet",
        "postgresql://me:s3cret@db",
        "postgresql://me:s3cret@db:port/fleet",
        "postgresql+psycopg://me:s3cret@db/fleet",
        "mysql://me:s3cret@db/fleet",
        "host=db password=s3cret",
        " s3cret",
    ],
)
def test_a_url_that_could_be_misread_is_refused_without_telling_it(home: Path, url: str) -> None:
    with pytest.raises(BadConfig, match="FLEET_DATABASE_URL: must be a URL") as caught:
        load(home, environ={"FLEET_DATABASE_URL": url})
    assert "s3cret" not in caught.value.message
    write(user_file(home), f"[database]\nurl = [{json.dumps(url)}]\n")
    with pytest.raises(BadConfig, match=r"config.toml:2: database.url must be text") as caught:
        load(home, environ={})
    assert "s3cret" not in caught.value.message


def test_passwords_are_not_shown(home: Path) -> None:
    url = "postgresql://me:s3cret@db/fleet?sslmode=require&sslpassword=s3cret"
    settings = load(home, environ={"FLEET_DATABASE_URL": url})
    assert settings.shown()["database.url"] == "postgresql://me:***@db/fleet?sslmode=require&sslpassword=***"
    assert settings.shown()["ui.log_lines"] == 50


def test_a_project_cannot_choose_the_database(home: Path, project: Path) -> None:
    write(project_file(project), '[database]\nurl = "postgresql://theirs/fleet"\n')
    with pytest.raises(BadConfig, match=r"config\.toml:2: database\.url holds for all projects: .*--user"):
        load(home, project, environ={})
    assert load(home, environ={}).database_url == ""


# The table of settings


def test_every_setting_has_its_own_variable_and_a_help_of_one_line() -> None:
    assert len({setting.variable for setting in SETTINGS.values()}) == len(SETTINGS)
    for setting in (*SETTINGS.values(), *CODER_SETTINGS.values()):
        assert setting.help
        assert "\n" not in setting.help


def test_a_setting_is_found_by_its_key_or_the_nearest_one_is_named() -> None:
    assert find_setting("coder.default") is SETTINGS["coder.default"]
    assert find_setting("coders.claude.flags") is CODER_SETTINGS["flags"]
    assert find_setting("coders.mine.command") is None
    for key in ("coder.modle", "coder", "coders.x", "coders..flags", ""):
        with pytest.raises(InvalidInput, match="unknown setting"):
            find_setting(key)
    with pytest.raises(InvalidInput, match=r"did you mean 'ui\.log_lines'"):
        find_setting("ui.loglines")


@for_each("key", [*SETTINGS, *(f"coders.<name>.{name}" for name in CODER_SETTINGS)])
def test_every_setting_is_in_the_documentation_with_its_default(key: str) -> None:
    setting = SETTINGS.get(key) or CODER_SETTINGS[key.rpartition(".")[2]]
    (row,) = [line for line in DOCUMENTATION.read_text().splitlines() if line.startswith(f"| `{key}` |")]
    default = list(setting.default) if isinstance(setting.default, tuple) else setting.default
    assert f"| `{json.dumps(default)}` |" in row
    assert setting.kind.name in row


def test_the_documentation_names_no_setting_that_is_not_there() -> None:
    rows = [line for line in DOCUMENTATION.read_text().splitlines() if line.startswith("| `")]
    named = {row.split("`")[1] for row in rows}
    assert named == {*SETTINGS, *(f"coders.<name>.{name}" for name in CODER_SETTINGS)}
