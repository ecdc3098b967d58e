"""Register fleet with the user's coding agents, and take it out of their files again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from fleet.config.files import locked
from fleet.errors import Conflict, InvalidInput, NotFound
from fleet.services import config_edits as edits
from fleet.services.clients import CLIENTS, Format, Launch, Piece, Places, Scope, clients_in_use, status_line
from fleet.services.config_edits import Change, ConfigEdit

Plan: TypeAlias = Callable[[], Change]

TRIES = 10  # to write a file that others write, too
SKILLS = ("fleet", "pm")
SKILLS_FOLDER = Path(__file__).parents[1] / "skills"


class Installer:
    """Plans first and writes then: what cannot be done leaves every file as it was."""

    def __init__(
        self,
        *,
        home: Path,
        places: Places,
        launch: Callable[[Scope], Launch],
        is_found: Callable[[str], bool],
    ) -> None:
        self._folder = home / "install"
        self._lock = home / "install.lock"
        self._places = places
        self._launch = launch
        self._is_found = is_found
        self._register = edits.EditRegister(self._folder / "placements.json")
        self._copies = edits.KeptCopies(self._folder / "before")

    # putting in

    def install(
        self, clients: Sequence[str], scope: Scope, skills: Sequence[str], *, is_dry: bool = False
    ) -> list[Change]:
        """Register the server and write the skills; what cannot be written is told before any file is."""
        chosen = self._chosen(clients)
        project = self._project(scope)
        with self._locked(is_dry):
            known = self._register.load()
            wanted: dict[str, Piece] = {}  # by place: several clients read the same folder of skills
            for client in chosen:
                for piece in self._pieces(client, scope, skills, known):
                    same = wanted.setdefault(edits.place_of(piece.file), replace(piece, project=project))
                    wanted[edits.place_of(piece.file)] = replace(same, clients=(*same.clients, client))
            plans = [
                partial(edits.plan_edit, piece, known.get(place), self._copies)
                for place, piece in wanted.items()
            ]
            return self._do(plans, known, is_dry)

    def _chosen(self, names: Sequence[str]) -> Sequence[str]:
        for name in names:
            if name not in CLIENTS:
                raise InvalidInput(f"there is no client {name!r}", hint=f"there are {', '.join(CLIENTS)}")
        found = names or clients_in_use(self._places, self._is_found)
        if not found:
            hint = f"name one: --client {'|'.join(CLIENTS)}"
            raise NotFound("none of the clients that fleet knows is here", hint=hint)
        return found

    def _project(self, scope: Scope) -> str:
        if scope is Scope.USER:
            return ""
        if self._places.project is None:
            raise InvalidInput("you are in no git repository", hint="change into one, or use --scope user")
        return str(self._places.project)

    def _pieces(
        self, name: str, scope: Scope, skills: Sequence[str], known: Container[str]
    ) -> Iterable[Piece]:
        client, launch = CLIENTS[name], self._launch(scope)
        yield client.server_piece(scope, self._places, launch)
        if name == "claude" and scope is Scope.USER:
            yield status_line(self._places, launch)
        for skill in skills:
            folder, source = client.skills_folder(scope, self._places) / skill, SKILLS_FOLDER / skill
            pieces = [
                Piece(
                    file=str(folder / file.relative_to(source)),
                    format=Format.TEXT,
                    value=file.read_text(encoding="utf-8"),
                    what=f"skill {skill}",
                )
                for file in sorted(source.rglob("*.md"))
            ]
            head = Path(pieces[0].file)  # SKILL.md
            # Into a skill of the user's own goes nothing of ours.
            is_theirs = head.exists() and edits.place_of(head) not in known
            yield from pieces[:1] if is_theirs else pieces

    def advice_on_path(self, scope: Scope, skills: Sequence[str]) -> str:
        """Return what is to be done so that what was installed finds `fleet` by its name; "" for nothing."""
        if self._is_found("fleet") or not (skills or scope is Scope.PROJECT):
            return ""
        whose = "the skills call" if skills else "a project's files name"
        command = Path(self._launch(Scope.USER).command)
        link = f"`ln -s {command} ~/.local/bin/fleet`, or " if command.name == "fleet" else ""
        return f"{whose} `fleet`, which is not on your PATH: {link}activate the environment that it is in"

    # taking out

    def uninstall(self, clients: Sequence[str], scope: Scope | None, *, is_dry: bool = False) -> list[Change]:
        """Take out what was put in: for some clients or all, in the user's files, a project's, or both."""
        chosen = set(self._chosen(clients) if clients else CLIENTS)
        project = self._project(scope) if scope else None
        with self._locked(is_dry):
            known = self._register.load()
            wanted = [one for one in known.values() if project in (None, one.project)]
            plans = [partial(self._less, one, chosen) for one in wanted if chosen & set(one.clients)]
            done = self._do(plans, known, is_dry)
            if not is_dry and not known and self._folder.is_dir():
                shutil.rmtree(self._folder)
            return done

    def _less(self, edit: ConfigEdit, clients: set[str]) -> Change:
        left = tuple(name for name in edit.clients if name not in clients)
        change = edits.plan_removal(edit, self._copies)
        if not left:
            return change
        note = f"{', '.join(left)} read{'s' if len(left) == 1 else ''} it, too"
        return replace(change, verb="keep", note=note, edit=replace(edit, clients=left))

    # both

    def _do(self, plans: Sequence[Plan], known: dict[str, ConfigEdit], is_dry: bool) -> list[Change]:
        """Plan every file, and write the plans down, before any is changed: who is killed can repeat it."""
        planned = [plan() for plan in plans]
        if is_dry:
            return planned
        self._write_down(planned, known)
        done = [self._carry_out(change, plan, known) for change, plan in zip(planned, plans, strict=True)]
        places = [edits.place_of(change.piece.file) for change in done if not change.edit]
        gone = [known.pop(place) for place in places if place in known]
        for edit in sorted(gone, key=lambda one: -len(one.folders)):
            edits.remove_folders(edit.folders)
        # What was there before a change that was made is not in its file any more.
        settled = [replace(one, edit=one.edit and replace(one.edit, was=None)) for one in done]
        self._write_down(settled, known)
        self._copies.forget_others({one.before for one in known.values()})
        return done

    def _write_down(self, changes: Iterable[Change], known: dict[str, ConfigEdit]) -> None:
        for change in changes:
            self._copies.keep(change.before)
            if change.edit:
                known[edits.place_of(change.piece.file)] = change.edit
        self._register.save(known)

    def _carry_out(self, change: Change, plan: Plan, known: dict[str, ConfigEdit]) -> Change:
        """Make a change; if somebody else was quicker, plan it anew from what they wrote."""
        for _ in range(TRIES):
            if not change.is_made or edits.write_change(change):
                return change
            change = plan()
            self._write_down([change], known)
        hint = "close that client, and repeat"
        raise Conflict(f"{change.piece.file} was written by somebody else, again and again", hint=hint)

    def _locked(self, is_dry: bool) -> AbstractContextManager[None]:
        """Let one at a time change files through us; the file stays, for all to wait at the same one."""
        if is_dry:
            return nullcontext()
        self._lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return locked(os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o600))
