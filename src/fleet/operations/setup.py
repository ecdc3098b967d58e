"""The setup of this machine: configuration, health checks, the supervisor, entries in other programs."""

from __future__ import annotations

from fleet.operations.spec import (
    Next,
    Operation,
    Shape,
    choice,
    flag,
    integer,
    json,
    moment,
    shape,
    string,
    strings,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from fleet.domain.event import Json
    from fleet.operations.call import Call
    from fleet.ports.supervisor_link import SupervisorLink
    from fleet.services.config_edits import Change
    from fleet.services.setup import Row


class OfProject(Operation):
    """An operation on the settings of a project, or on those for all projects."""

    repo_path: str = string("Folder in a git repository.", brief="of a project", default=".", cli=False)


# configuration


class Setting(Shape):
    """A setting in force."""

    key: str = string(key=True)
    value: Json = json(key=True)
    origin: str = string("Where the value comes from.", key=True)

    @classmethod
    def of(cls, row: Row) -> Setting:
        return cls.copy_of(row, value=[*row.value] if isinstance(row.value, tuple) else row.value)


class ConfigFile(Shape):
    path: str = string()
    exists: bool = flag()

    @classmethod
    def of(cls, file: Path) -> ConfigFile:
        return cls(path=str(file), exists=file.exists())


class ConfigFiles(Shape):
    """The files that hold the configuration."""

    user: ConfigFile = shape(ConfigFile, "For all projects.", key=True)
    project: ConfigFile | None = shape(
        ConfigFile, "For this project; null outside of one.", key=True, optional=True
    )


class ConfigCheck(Shape):
    is_valid: bool = flag(key=True)
    warnings: tuple[str, ...] = strings(key=True)


class SettingChange(Shape):
    key: str = string()
    file: str = string()


class ShowConfig(
    OfProject,
    op="config.show",
    output=Setting,
    is_list=True,
    items="settings",
    tool="list_settings",
    tool_set="setup",
    title="List settings",
    examples=("fleet config show --origin",),
):
    """Show every setting in force."""

    def __call__(self, call: Call) -> tuple[list[Setting], list[Next]]:
        return [Setting.of(row) for row in call.fleet.config.show()], []


class SetConfig(
    Operation,
    op="config.set",
    output=SettingChange,
    access="person",
    why_no_tool="settings decide what agents may do: a person changes them, in a shell",
    examples=(
        'fleet config set setup.commands \'["npm ci", "npm run build"]\'',
        "fleet config set limits.min_free_mb 2000 --user",
    ),
):
    """Set one value in the project's file.

    Everything else in the file stays as it is. A list is one entry, or a TOML array.
    """

    key: str = string("Setting.", position=1, complete="setting")
    value: str = string("Value.", position=2)
    user: bool = flag("In the file of fleet's home, for all projects.", default=False)

    def __call__(self, call: Call) -> tuple[SettingChange, list[Next]]:
        file = call.fleet.config.set(self.key, self.value, for_user=self.user, by=lambda: call.caller.name)
        return SettingChange(key=self.key, file=str(file)), []


class ValidateConfig(
    OfProject,
    op="config.validate",
    output=ConfigCheck,
    tool="validate_config",
    tool_set="setup",
    title="Validate the configuration",
    examples=("fleet config validate",),
):
    """Check the configuration files."""

    def __call__(self, call: Call) -> tuple[ConfigCheck, list[Next]]:
        return ConfigCheck(is_valid=True, warnings=tuple(call.fleet.config.validate())), []


class ShowConfigFiles(
    OfProject,
    op="config.path",
    output=ConfigFiles,
    tool="get_config_files",
    tool_set="setup",
    title="Configuration files",
    examples=("fleet config path",),
):
    """Show which files hold the configuration."""

    def __call__(self, call: Call) -> tuple[ConfigFiles, list[Next]]:
        user, project = call.fleet.config.files()
        return ConfigFiles(user=ConfigFile.of(user), project=project and ConfigFile.of(project)), []


# health


class Check(Shape):
    """Whether something that agents need is in place."""

    name: str = string(key=True)
    verdict: str = choice(("ok", "warn", "fail"), key=True)
    found: str = string(key=True)
    fix: str = string(key=True)
    is_needed: bool = flag("Nothing works without it.", key=True)

    @property
    def is_broken(self) -> bool:
        return self.is_needed and self.verdict == "fail"


class RunDoctor(
    OfProject,
    op="doctor.show",
    output=Check,
    is_list=True,
    items="checks",
    tool="list_checks",
    tool_set="setup",
    title="Check the setup",
    examples=("fleet doctor",),
):
    """Check that everything agents need is in place.

    The exit code is 1 only if something that nothing works without is broken: git, the store, the disk, the
    configuration.
    """

    def __call__(self, call: Call) -> tuple[list[Check], list[Next]]:
        return [Check.copy_of(check) for check in call.fleet.doctor.examine()], []


# the supervisor


class SupervisorStatus(Shape):
    is_up: bool = flag("Its process is there.", key=True)
    pid: int | None = integer(optional=True)
    since: str | None = moment(key=True)
    is_background: bool | None = flag(optional=True)
    is_ready: bool = flag("It is past its start.")
    version: str | None = string(optional=True)
    is_draining: bool = flag("It starts no more tasks.", key=True)
    log: str = string(key=True)

    @classmethod
    def of(cls, link: SupervisorLink) -> SupervisorStatus:
        log = str(link.log_path)
        if holder := link.holder():
            return cls.copy_of(holder, is_up=True, is_ready=holder.is_up, log=log)
        return cls(
            is_up=False,
            pid=None,
            since=None,
            is_background=None,
            is_ready=False,
            version=None,
            is_draining=False,
            log=log,
        )


class ShowSupervisor(
    Operation,
    op="supervisor.show",
    output=SupervisorStatus,
    tool="get_supervisor",
    tool_set="setup",
    title="Supervisor status",
    examples=("fleet run --status",),
):
    """Show whether a supervisor is up."""

    def __call__(self, call: Call) -> tuple[SupervisorStatus, list[Next]]:
        return SupervisorStatus.of(call.fleet.supervisor_link), []


class StartSupervisor(
    Operation,
    op="supervisor.start",
    output=SupervisorStatus,
    why_no_tool="every call that has work for a supervisor starts one",
    examples=("fleet run --background",),
):
    """Start a supervisor that stops by itself when idle."""

    def __call__(self, call: Call) -> tuple[SupervisorStatus, list[Next]]:
        link = call.fleet.supervisor_link
        link.ensure_up()
        return SupervisorStatus.of(link), []


# entries in other programs


class ConfigEditRow(Shape):
    """What installing or uninstalling does to a file of another program."""

    file: str = string()
    what: str = string()
    clients: tuple[str, ...] = strings()
    change: str = choice(("add", "update", "remove", "same", "keep"))
    note: str = string()

    @classmethod
    def of(cls, change: Change) -> ConfigEditRow:
        return cls.copy_of(change, change=change.verb)
