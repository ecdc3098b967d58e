"""An agent that does to its workspace what agents do, and worse: seeded, without a model.

It is used in two ways: in process (`Agent(...).act(20)`), and as the program of a coder, which reads a plan
from its prompt, acts, writes down what it leaves behind (`work.record`), and ends as the plan says. It loads
the standard library alone, so that it starts fast.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.lossless import work

# Names that git does not take into an index, on any system or with its protections for NTFS and HFS.
REFUSED = (
    ".GIT/config",
    "git~1",
    "GIT~1/f",
    ".git /f",
    "sub/.Git/f",
    ".git:x",
    "a\\.git/f",
    ".git./f",
    "deep/.gIt/hooks/x",
    ".git::$INDEX_ALLOCATION/x",
)
ODD = (
    "new\nline",
    "-dash",
    "--force",
    os.fsdecode(b"bytes\xff\xfe"),
    os.fsdecode(b"dir\xff/f\xfe"),
    'quo"te',
    "back\\slash",
    "tab\there",
    "sp ace ",
    " lead",
    ":(top)magic",
    "*",
    "[a]",
    "#hash",
    "!bang",
    "ünïcode",
    "n" * 255,
    "d" * 100 + "/" + "e" * 200 + "/f",
    "con",
    "nul.txt",
    "x.lock",
    "HEAD",
    "refs/heads/work",
    ".gitkeep",
    ".git.new",
    ".gitmodules",
    "@{0}",
    "\x01ctl",
    "\U0001f600",
)
TWINS = ("A.TXT", "A.txt", "README.md", "Src/tool.py", "SRC/new.py", "Run.sh", "deep/ER/file.txt")
UNICODE_TWINS = ("caf\u00e9", "cafe\u0301")
FILE_MODES = (0o644, 0o755, 0o600, 0o700, 0o444, 0o400, 0o640, 0o664, 0o777, 0o555, 0o4755)
FOLDER_MODES = (0o755, 0o700, 0o750, 0o775, 0o555, 0o1777)
if os.geteuid() == 0:  # anybody else could not look at these again
    FILE_MODES += (0o000, 0o200)
    FOLDER_MODES += (0o000, 0o311)
SETTINGS = (
    ("core.ignoreCase", "true"),
    ("core.fileMode", "false"),
    ("core.symlinks", "false"),
    ("core.precomposeUnicode", "true"),
    ("core.autocrlf", "true"),
    ("core.autocrlf", "input"),
    ("core.eol", "crlf"),
    ("core.safecrlf", "true"),
    ("core.untrackedCache", "true"),
    ("core.splitIndex", "true"),
    ("core.trustctime", "false"),
    ("core.checkStat", "minimal"),
    ("core.protectNTFS", "false"),
    ("core.protectHFS", "true"),
    ("core.bigFileThreshold", "1k"),
    ("core.quotePath", "false"),
    ("core.preloadIndex", "true"),
    ("core.sparseCheckout", "true"),
    ("core.looseCompression", "0"),
    ("index.version", "4"),
    ("index.sparse", "true"),
    ("index.skipHash", "true"),
    ("feature.manyFiles", "true"),
    ("status.showUntrackedFiles", "no"),
    ("status.renames", "copies"),
    ("diff.ignoreSubmodules", "all"),
    ("diff.renames", "copies"),
    ("submodule.recurse", "true"),
    ("commit.gpgSign", "true"),
    ("filter.lossy.clean", "tr -d 0-9"),
    ("filter.lossy.smudge", "tr a-z A-Z"),
    ("filter.lossy.required", "true"),
    ("filter.broken.clean", "false"),
    ("filter.broken.required", "true"),
    ("filter.broken.smudge", "false"),
    ("advice.statusHints", "false"),
    ("i18n.commitEncoding", "latin1"),
)
ATTRIBUTES = (
    "*.txt filter=lossy\n",
    "*.py filter=broken\n",
    "* text=auto\n",
    "* text eol=crlf\n",
    "*.txt ident\n",
    "*.txt working-tree-encoding=UTF-16LE\n",
    "* -text -diff\n",
    "*.md eol=lf\n",
)
_IDENTITY = (
    *("-c", "user.name=agent", "-c", "user.email=agent@localhost", "-c", "commit.gpgSign=false"),
    *("-c", "protocol.file.allow=always", "-c", "advice.detachedHead=false", "-c", "gc.auto=0"),
)
_ENVIRONMENT = {"GIT_EDITOR": "true", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}


def git(folder: Path, *words: str) -> str:
    """Run git as an agent does: what fails, fails."""
    done = subprocess.run(
        ("git", *_IDENTITY, *words),
        cwd=folder,
        env={**os.environ, **_ENVIRONMENT},
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    return os.fsdecode(done.stdout).strip()


class Agent:
    """Acts on a workspace by chance. Each content that it writes is one of its own."""

    def __init__(self, workspace: Path, chance: random.Random, history: list[str] | None = None) -> None:
        self.top = workspace
        self.chance = chance
        self.history = history if history is not None else []
        self.written = 0
        self.actions: list[Callable[[], object]] = []
        for weight, actions in self._catalogue().items():
            self.actions += list(actions) * weight

    def act(self, count: int) -> None:
        for _ in range(count):
            action = self.chance.choice(self.actions)
            self.history.append(action.__name__)
            with contextlib.suppress(OSError, shutil.Error):
                action()

    def _catalogue(self) -> dict[int, Sequence[Callable[[], object]]]:
        """What it does, by how often: four times, twice or once."""
        return {
            4: (self.edit, self.new_file, self.stage, self.commit, self.odd_name, self.refused_name),
            2: (
                *(
                    self.edit_unseen,
                    self.delete,
                    self.rename,
                    self.chmod_file,
                    self.symlink,
                    self.empty_folder,
                ),
                *(self.case_twin, self.stage_then_edit, self.setting, self.attributes, self.ignored_file),
                *(self.nested_repository, self.amend, self.lossy_file),
            ),
            1: (
                *(self.delete_folder, self.rename_folder, self.file_to_folder, self.folder_to_file),
                *(self.file_to_link, self.hard_link, self.chmod_folder, self.pipe, self.unicode_twin),
                *(self.large_ignored, self.output_file, self.tool_file, self.cache_folder, self.ignore_more),
                *(self.credential, self.unstage, self.intend_to_add, self.add_ignored, self.reset_away),
                *(self.reset_hard, self.detach, self.other_branch, self.rename_branch, self.merge),
                *(self.rebase, self.cherry_pick, self.stash, self.stash_pop, self.autostash, self.own_ref),
                *(self.bogus_repository, self.init_over, self.delete_link, self.break_index, self.old_lock),
                *(self.flag, self.sparse, self.gitmodules_link, self.commit_all, self.clone, self.large_file),
                *(self.same_content, self.collect_garbage, self.restore_file, self.fsmonitor),
                *(
                    self.delete_branch,
                    self.conflict_stages,
                    self.worktree_config,
                    self.submodule,
                    self.delete_entry,
                    self.delete_marks,
                    self.nested_worktree,
                ),
            ),
        }

    # content and names

    def content(self, size: int = 0) -> bytes:
        """Return bytes that nothing else has, which filters and line-end conversion would change."""
        self.written += 1
        mark = f"{self.chance.getrandbits(64)} {self.written} Id".encode()
        form = self.chance.randrange(8)
        body = {
            0: mark + b"\n",
            1: mark + b"\r\nsecond\r\n",
            2: mark + b"\r\nmixed\n",
            3: mark + b"\0\xff\xfe binary",
            4: b"$Id$ " + mark + b"\n",
            5: b"$Id: 0123456789 $ " + mark + b"\n",
            6: mark.decode().encode("utf-16"),
            7: mark,  # without an end of line
        }[form]
        if size:
            body += self.chance.randbytes(size)
        return body

    def files(self) -> list[Path]:
        """Return the files and links of the workspace, those of repositories in it too, without git's own."""
        found: list[Path] = []
        for folder, folders, names in os.walk(self.top):
            folders[:] = sorted(name for name in folders if name != ".git")
            found += [Path(folder, name) for name in sorted(names) if name != ".git"]
        return found

    def folders(self) -> list[Path]:
        found: list[Path] = []
        for folder, folders, _ in os.walk(self.top):
            folders[:] = sorted(name for name in folders if name != ".git")
            found += [Path(folder, name) for name in folders if not Path(folder, name).is_symlink()]
        return found

    def a_file(self) -> Path:
        regular = [path for path in self.files() if stat.S_ISREG(path.lstat().st_mode)]
        return self.chance.choice(regular) if regular else self.put("first.txt")

    def a_folder(self) -> Path:
        return self.chance.choice([self.top, *self.folders()])

    def put(self, name: str, content: bytes | None = None) -> Path:
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            path.unlink()
        path.write_bytes(self.content() if content is None else content)
        return path

    def git(self, *words: str) -> str:
        return git(self.top, *words)

    # files

    def edit(self) -> None:
        path = self.a_file()
        how = self.chance.randrange(3)
        if how == 0:
            path.write_bytes(self.content())
        elif how == 1:
            with path.open("ab") as file:
                file.write(self.content())
        else:
            path.write_bytes(b"")

    def edit_unseen(self) -> None:
        """Change a file, and leave it the size and the times that it had."""
        path = self.a_file()
        before = path.stat()
        old = path.read_bytes()
        if old:
            new = self.chance.randbytes(len(old))
            with path.open("r+b") as file:
                file.write(new)
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def new_file(self) -> None:
        folder = self.chance.choice(("", "new/", "deep/er/", "src/", "x/y/z/"))
        ending = self.chance.choice(("txt", "py", "md", "nb", "c", "bat", "u16", "bin"))
        self.put(f"{folder}file{self.chance.randrange(40)}.{ending}")

    def lossy_file(self) -> None:
        """Write a file that a filter of the repository changes, and have git take it."""
        name = self.chance.choice(
            ("notes.nb", "id.c", "win.bat", "u16.u16", "fresh.nb", "fresh.c", "fresh.bat")
        )
        self.git("config", "filter.lossy.clean", "tr -d 0-9")
        self.put(name)
        if self.chance.random() < 0.5:
            self.git("add", "--", name)

    def large_file(self) -> None:
        self.put(
            f"large{self.chance.randrange(3)}.bin", self.content(self.chance.choice((70_000, 1_200_000)))
        )

    def same_content(self) -> None:
        self.put(f"copy{self.chance.randrange(5)}.txt", self.a_file().read_bytes())

    def odd_name(self) -> None:
        self.put(self.chance.choice(ODD))

    def refused_name(self) -> None:
        self.put(self.chance.choice(REFUSED))

    def gitmodules_link(self) -> None:
        name = self.chance.choice(
            (".gitmodules", ".gitattributes", ".gitignore", ".mailmap", "sub/.gitmodules")
        )
        path = self.top / name
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to("readme.md")

    def case_twin(self) -> None:
        name = self.chance.choice(TWINS)
        self.put(name)
        if self.chance.random() < 0.5:
            self.git("config", "core.ignoreCase", "true")

    def unicode_twin(self) -> None:
        for name in UNICODE_TWINS:
            self.put(name)

    def delete(self) -> None:
        files = self.files()
        if files:
            self.chance.choice(files).unlink()

    def delete_folder(self) -> None:
        if folders := self.folders():
            shutil.rmtree(self.chance.choice(folders))

    def rename(self) -> None:
        target = self.a_folder() / f"moved{self.chance.randrange(30)}"
        self.a_file().rename(target)

    def rename_folder(self) -> None:
        if folders := self.folders():
            self.chance.choice(folders).rename(self.top / f"folder{self.chance.randrange(30)}")

    def file_to_folder(self) -> None:
        path = self.a_file()
        path.unlink()
        path.mkdir()
        (path / "inside").write_bytes(self.content())

    def folder_to_file(self) -> None:
        if folders := self.folders():
            path = self.chance.choice(folders)
            shutil.rmtree(path)
            path.write_bytes(self.content())

    def file_to_link(self) -> None:
        path = self.a_file()
        path.unlink()
        path.symlink_to(self.chance.choice(("readme.md", "nowhere", "/etc/hostname", "src")))

    def symlink(self) -> None:
        target = self.chance.choice(
            (
                "readme.md",
                "src",
                "nowhere/at all",
                "/nonexistent",
                "..",
                ".",
                os.fsdecode(b"by\xfftes"),
                "a" * 900,
            )
        )
        path = self.a_folder() / f"link{self.chance.randrange(20)}"
        path.symlink_to(target)

    def hard_link(self) -> None:
        (self.top / f"hard{self.chance.randrange(20)}").hardlink_to(self.a_file())

    def chmod_file(self) -> None:
        self.a_file().chmod(self.chance.choice(FILE_MODES))

    def chmod_folder(self) -> None:
        self.a_folder().chmod(self.chance.choice(FOLDER_MODES))

    def empty_folder(self) -> None:
        path = self.a_folder() / f"empty{self.chance.randrange(20)}" / self.chance.choice(("", "deep"))
        path.mkdir(parents=True)

    def pipe(self) -> None:
        path = self.a_folder() / f"pipe{self.chance.randrange(20)}"
        if self.chance.random() < 0.7:
            os.mkfifo(path)
            return
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))

    # what git ignores, and what fleet copies

    def ignored_file(self) -> None:
        self.put(self.chance.choice(("notes.log", "src/deep.log", "data/set/1", "data/x", "UPPER.LOG")))

    def large_ignored(self) -> None:
        self.put(self.chance.choice(("huge.log", "data/huge")), self.content(1_100_000))

    def output_file(self) -> None:
        size = self.chance.choice((0, 0, 70_000))
        self.put(f"build/out{self.chance.randrange(5)}", self.content(size))

    def tool_file(self) -> None:
        self.put(f"node_modules/pkg{self.chance.randrange(5)}/index.js")

    def cache_folder(self) -> None:
        self.put("data/cache/CACHEDIR.TAG", b"Signature: 8a477f597d28d172789f06886806bc55\n")
        self.put("data/cache/thing")

    def ignore_more(self) -> None:
        line = self.chance.choice(
            ("*.txt\n", "*\n", "src/\n", "!*.log\n", "new/\n", "*.PY\n", "!node_modules/\n")
        )
        where = self.chance.choice((".gitignore", "src/.gitignore"))
        path = self.top / where
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as file:
            file.write(line)

    def credential(self) -> None:
        """Change, copy, move or delete a file that fleet has copied into the workspace."""
        path = self.top / ".env"
        how = self.chance.randrange(4)
        if how == 0:
            path.write_bytes(self.content())
        elif how == 1:
            (self.top / "env.copy").write_bytes(path.read_bytes())
        elif how == 2:
            path.rename(self.top / "env.moved")
        else:
            path.unlink()

    # git

    def stage(self) -> None:
        how = self.chance.randrange(3)
        if how == 0:
            self.git("add", "-A")
        elif how == 1:
            self.git("add", "-u")
        else:
            self.git("add", "--", str(self.a_file().relative_to(self.top)))

    def stage_then_edit(self) -> None:
        path = self.put(f"staged{self.chance.randrange(5)}.txt")
        self.git("add", "--", path.name)
        if self.chance.random() < 0.7:
            path.write_bytes(self.content())
        else:
            path.unlink()

    def unstage(self) -> None:
        self.git("rm", "-q", "--cached", "--", str(self.a_file().relative_to(self.top)))

    def intend_to_add(self) -> None:
        self.put("intended.txt")
        self.git("add", "-N", "--", "intended.txt")

    def add_ignored(self) -> None:
        self.put("forced.log")
        self.git("add", "-f", "--", "forced.log")

    def commit(self) -> None:
        self.git("add", "-u")
        self.git("commit", "-q", "--no-verify", "-m", f"change {self.chance.getrandbits(32)}")

    def commit_all(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "everything")

    def amend(self) -> None:
        self.git("commit", "-q", "--amend", "--allow-empty", "-m", f"amended {self.chance.getrandbits(32)}")

    def reset_away(self) -> None:
        self.git("commit", "-q", "--allow-empty", "-m", f"unwanted {self.chance.getrandbits(32)}")
        self.git("reset", "-q", self.chance.choice(("--soft", "--mixed", "--keep")), "HEAD~1")

    def reset_hard(self) -> None:
        self.put("before-reset.txt")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", f"reset away {self.chance.getrandbits(32)}")
        self.git("reset", "-q", "--hard", "HEAD~1")

    def restore_file(self) -> None:
        self.git("checkout", "-q", "--", str(self.a_file().relative_to(self.top)))

    def detach(self) -> None:
        self.git("checkout", "-q", "--detach", self.chance.choice(("HEAD", "HEAD~1", "theirs")))

    def other_branch(self) -> None:
        if self.chance.random() < 0.5:
            self.git("checkout", "-q", "-b", f"other-{self.chance.getrandbits(24)}")
        else:
            self.git("checkout", "-q", "-")

    def rename_branch(self) -> None:
        self.git("branch", "-m", f"renamed-{self.chance.getrandbits(24)}")

    def delete_branch(self) -> None:
        branch = self.git("symbolic-ref", "--short", "HEAD")
        if branch and branch not in ("main", "theirs"):
            self.git("checkout", "-q", "--detach")
            self.git("branch", "-q", "-D", branch)

    def merge(self) -> None:
        self.diverge()
        self.git("merge", "-q", "theirs")

    def rebase(self) -> None:
        self.diverge()
        self.git("rebase", "-q", "theirs")

    def cherry_pick(self) -> None:
        self.diverge()
        self.git(self.chance.choice(("cherry-pick", "cherry-pick", "revert")), "theirs")

    def diverge(self) -> None:
        """Commit a line that the branch `theirs` has in another way, so that there is a conflict."""
        self.put("readme.md", self.content())
        self.git("commit", "-q", "-m", f"ours {self.chance.getrandbits(32)}", "--", "readme.md")

    def autostash(self) -> None:
        self.diverge()
        self.put("a.txt")
        self.git(self.chance.choice(("rebase", "merge")), "-q", "--autostash", "theirs")

    def stash(self) -> None:
        self.git("stash", "push", "-q", *self.chance.choice(((), ("-u",), ("-a",), ("--keep-index",))))

    def stash_pop(self) -> None:
        self.git("stash", self.chance.choice(("pop", "apply")), "-q")

    def own_ref(self) -> None:
        made = self.git("commit-tree", "-m", f"own {self.chance.getrandbits(32)}", "HEAD^{tree}")
        if made:
            self.git("update-ref", self.chance.choice(("refs/worktree/mine", "refs/bisect/mine")), made)

    def flag(self) -> None:
        path = self.a_file()
        name = str(path.relative_to(self.top))
        self.git("update-index", self.chance.choice(("--assume-unchanged", "--skip-worktree")), "--", name)
        path.write_bytes(self.content())

    def sparse(self) -> None:
        self.git("sparse-checkout", "set", *self.chance.choice((("--no-cone", "/src/"), ("src",), ("deep",))))
        if self.chance.random() < 0.5:
            self.put("deep/er/file.txt")

    def worktree_config(self) -> None:
        self.git("config", "extensions.worktreeConfig", "true")
        self.git("config", "--worktree", "core.fileMode", "false")

    def setting(self) -> None:
        for name, value in self.chance.sample(SETTINGS, self.chance.choice((1, 2, 4))):
            self.git("config", name, value)

    def fsmonitor(self) -> None:
        """Tell git that nothing ever changes."""
        common = self.git("rev-parse", "--path-format=absolute", "--git-common-dir")
        if common:
            script = Path(common, "quiet.sh")
            script.write_text("#!/bin/sh\nprintf 'token\\0'\n")
            script.chmod(0o755)
            self.git("config", "core.fsmonitor", str(script))
            self.git("update-index", "--fsmonitor")
            self.git("status", "--short")

    def attributes(self) -> None:
        where = self.chance.choice((".gitattributes", "src/.gitattributes"))
        path = self.top / where
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as file:
            file.write(self.chance.choice(ATTRIBUTES))
        self.git("config", "filter.lossy.clean", "tr -d 0-9")

    def conflict_stages(self) -> None:
        """Leave a file in conflict with all its sides in the index."""
        blob = self.git("rev-parse", "HEAD:readme.md")
        entries = "".join(f"100644 {blob} {stage}\tsides.txt\n" for stage in (1, 2, 3))
        subprocess.run(
            ("git", "update-index", "--index-info"),
            cwd=self.top,
            input=entries.encode(),
            env={**os.environ, **_ENVIRONMENT},
            capture_output=True,
        )
        self.put("sides.txt")

    def collect_garbage(self) -> None:
        self.git(
            *self.chance.choice(
                (("gc", "-q", "--prune=now"), ("repack", "-q", "-ad"), ("pack-refs", "--all"))
            )
        )

    # repositories inside, and a workspace that is none any more

    def nested_repository(self) -> None:
        folder = self.top / self.chance.choice(("nested", "src/nested", "data/nested", "nested2"))
        git(self.top, "init", "-q", str(folder))
        (folder / "file").write_bytes(self.content())
        if self.chance.random() < 0.7:
            git(folder, "add", "-A")
            git(folder, "commit", "-q", "-m", "inside")
        (folder / "dirty").write_bytes(self.content())
        if self.chance.random() < 0.3:
            self.git("add", "-A")

    def clone(self) -> None:
        self.git("clone", "-q", "--no-hardlinks", "--depth=1", f"file://{self.top}", "cloned")

    def submodule(self) -> None:
        common = self.git("rev-parse", "--path-format=absolute", "--git-common-dir")
        self.git("submodule", "--quiet", "add", "-f", common, "module")
        inside = self.top / "module"
        if (inside / ".git").exists():
            (inside / "mine.txt").write_bytes(self.content())
            git(inside, "add", "-A")
            git(inside, "commit", "-q", "-m", f"in the submodule {self.chance.getrandbits(32)}")
            (inside / "dirty.txt").write_bytes(self.content())
            if self.chance.random() < 0.3:
                self.git("submodule", "--quiet", "deinit", "-f", "module")

    def bogus_repository(self) -> None:
        """Make what looks like a repository and is none."""
        folder = self.top / f"bogus{self.chance.randrange(5)}"
        folder.mkdir(exist_ok=True)
        (folder / "file").write_bytes(self.content())
        how = self.chance.randrange(3)
        if how == 0:
            (folder / ".git").write_bytes(self.content())
        elif how == 1:
            (folder / ".git").mkdir()
            (folder / ".git" / "mine").write_bytes(self.content())
        else:
            (folder / ".git").symlink_to("nowhere")

    def init_over(self) -> None:
        if self.chance.random() < 0.3:
            link = self.top / ".git"
            text = link.read_text()
            link.unlink()
            if self.chance.random() < 0.3:
                link.symlink_to(text.removeprefix("gitdir: ").strip())
                return
            self.git("init", "-q", ".")
            self.put("in-own.txt")
            self.git("add", "in-own.txt")
            self.git("commit", "-q", "-m", "a repository of its own")

    def delete_link(self) -> None:
        if self.chance.random() < 0.5 and (self.top / ".git").is_file():
            (self.top / ".git").unlink()

    def break_index(self) -> None:
        own = self.git("rev-parse", "--path-format=absolute", "--git-dir")
        if own and self.chance.random() < 0.5:
            if self.chance.random() < 0.5:
                Path(own, "index").unlink()
            else:
                Path(own, "index").write_bytes(b"no index")

    def delete_entry(self) -> None:
        """Delete what git knows of the workspace as a worktree."""
        own = self.git("rev-parse", "--path-format=absolute", "--git-dir")
        if "/worktrees/" in own and self.chance.random() < 0.3:
            shutil.rmtree(own)

    def delete_marks(self) -> None:
        """Delete what fleet has noted down about the workspace, in git's folder for it."""
        own = self.git("rev-parse", "--path-format=absolute", "--git-dir")
        if "/worktrees/" in own:
            for mark in Path(own).glob("fleet-*"):
                mark.unlink()

    def nested_worktree(self) -> None:
        """Make a worktree inside the workspace, with a commit that only its HEAD leads to."""
        self.git("worktree", "add", "-q", "--detach", "inner")
        inner = self.top / "inner"
        if inner.is_dir():
            (inner / "mine.txt").write_bytes(self.content())
            git(inner, "add", "-A")
            git(inner, "commit", "-q", "-m", f"in a worktree {self.chance.getrandbits(32)}")
            (inner / "dirty.txt").write_bytes(self.content())

    def old_lock(self) -> None:
        """Leave the lock of a git that was killed a while ago."""
        own = self.git("rev-parse", "--path-format=absolute", "--git-dir")
        if own:
            lock = Path(own, self.chance.choice(("index.lock", "HEAD.lock")))
            lock.touch()
            os.utime(lock, (time.time() - 100, time.time() - 100))


def main() -> None:
    """Be the program of a coder: act as the prompt says.

    The plan has: seed, actions, mark (a file for what is left behind), common (the repository's git folder),
    copied and given (contents that are not the agent's), and then: exit, crash, die, wait, write or go_on.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    text = sys.stdin.read()
    plan = json.loads(text[text.index("{") : text.rindex("}") + 1])
    where = work.Where(Path(plan["common"]), Path.cwd(), "")
    given = work.contents_in(where) if plan["given"] is None else plan["given"]
    agent = Agent(where.workspace, random.Random(plan["seed"]))
    agent.act(plan["actions"])
    mark = Path(plan["mark"])
    work.write_down(work.record(where, copied=plan["copied"], given=given), agent.history, mark)
    print(f"did {len(agent.history)} things", flush=True)
    _end(plan["then"], agent, mark.with_name(f"{mark.name}.diary"))


def _end(how: str, agent: Agent, diary: Path) -> None:
    if how == "crash":
        sys.exit(3)
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "wait":
        signal.pause()
    if how == "write":
        _write_on(agent.top, diary)
    if how == "go_on":
        # What others' commits it may prune would be known only if it told when.
        agent.actions = [action for action in agent.actions if action != agent.collect_garbage]
        with diary.open("ab", buffering=0) as told:
            while True:
                agent.act(1)
                told.write(f"{agent.history[-1]}\n".encode())


def _write_on(top: Path, diary: Path) -> None:
    """Write lines until killed, and tell of each line after it was written."""
    with (top / "journal.txt").open("ab", buffering=0) as journal, diary.open("ab", buffering=0) as told:
        for number in range(100_000):
            journal.write(f"line {number}\n".encode())
            told.write(f"{number}\n".encode())
            time.sleep(0.001)  # it writes, and leaves the machine to others
    signal.pause()


if __name__ == "__main__":
    main()
