"""Pairs of branches that were changed in every way that git knows, made by the hundred in one repository."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import TypeAlias

FILE, PROGRAM, LINK = "100644", "100755", "120000"
Tree: TypeAlias = dict[str, tuple[str, bytes]]  # what is where, and how
LINES = 24
UNRELATED = 128
GAVE_UP = -6  # git 2.39 itself stumbles over one pair in some thousands: a check of its own fails


@dataclass(frozen=True)
class Pair:
    """Two commits, and what was done on the way to each."""

    ours: str
    theirs: str
    story: str


@dataclass
class Importer:
    """Speaks to `git fast-import`; commits are marks until they are looked up."""

    stream: list[bytes] = field(default_factory=list[bytes])
    marks: Iterator[int] = field(default_factory=lambda: count(1))
    clock: Iterator[int] = field(default_factory=lambda: count(1_700_000_000))

    def commit(self, tree: Tree, *parents: int) -> int:
        mark, at = next(self.marks), next(self.clock)
        said = f"commit refs/pairs/{mark}\nmark :{mark}\ncommitter T <t@localhost> {at} +0000\n"
        self.stream.append(said.encode() + _data(f"{mark}".encode()))
        for number, parent in enumerate(parents):
            self.stream.append(f"{'merge' if number else 'from'} :{parent}\n".encode())
        self.stream.append(b"deleteall\n")
        for path, (mode, content) in tree.items():
            line = f"M {mode} inline {_quoted(path)}\n"
            self.stream.append(line.encode(errors="surrogateescape") + _data(content))
        return mark

    def run(self, repository: Path) -> dict[int, str]:
        marks = repository / ".git" / "marks"
        command = ["git", "fast-import", "--quiet", f"--export-marks={marks}"]
        subprocess.run(command, cwd=repository, input=b"".join(self.stream), check=True)
        lines = (line[1:].split() for line in marks.read_text().splitlines())
        return {int(mark): sha for mark, sha in lines}


def _data(content: bytes) -> bytes:
    return f"data {len(content)}\n".encode() + content + b"\n"


def _quoted(path: str) -> str:
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


# what can be done to a tree


def text(name: str, lines: int = LINES) -> bytes:
    return "".join(f"{name} line {number}\n" for number in range(lines)).encode()


def base_tree() -> Tree:
    names = (
        "src/a.py",
        "src/b.py",
        "src/deep/c.py",
        "lib/w",
        "lib/x",
        "lib/y",
        "lib/z",
        "readme",
        'odd "näme"\n.txt',
    )
    tree: Tree = {name: (FILE, text(name)) for name in names}
    tree["not \udcff text"] = (FILE, text("not text"))
    tree["-dash"] = (FILE, text("-dash"))
    tree["run.sh"] = (PROGRAM, text("run.sh"))
    tree["link"] = (LINK, b"readme")
    tree["image"] = (FILE, bytes(range(256)) * 4)
    return tree


def _some(tree: Tree, dice: Random, *, of: Callable[[str], bool] = lambda mode: mode != LINK) -> str:
    return dice.choice(sorted(path for path, (mode, _) in tree.items() if of(mode)))


def edit(tree: Tree, dice: Random) -> None:
    path = _some(tree, dice)
    mode, content = tree[path]
    lines = content.splitlines(keepends=True) or [b"\n"]
    at = dice.randrange(len(lines))
    lines[at] = dice.choice((b"changed one way\n", b"changed another way\n", b""))
    tree[path] = (mode, b"".join(lines))


def edit_all(tree: Tree, dice: Random) -> None:
    for _ in range(6):
        edit(tree, dice)


def append(tree: Tree, dice: Random) -> None:
    path = _some(tree, dice)
    mode, content = tree[path]
    tree[path] = (mode, content + dice.choice((b"more\n", b"and more\n")))


def rename(tree: Tree, dice: Random) -> None:
    path = _some(tree, dice)
    tree[dice.choice(("moved/one", "moved/two", f"{path}.new"))] = tree.pop(path)


def rename_and_edit(tree: Tree, dice: Random) -> None:
    rename(tree, dice)
    edit(tree, dice)


def delete(tree: Tree, dice: Random) -> None:
    if len(tree) > 3:
        del tree[_some(tree, dice)]


def change_mode(tree: Tree, dice: Random) -> None:
    path = _some(tree, dice)
    mode, content = tree[path]
    tree[path] = (FILE if mode == PROGRAM else PROGRAM, content)


def add(tree: Tree, dice: Random) -> None:
    path = dice.choice(("new/one", "new/two", "src/new.py", "lib/new", "-new"))
    tree.setdefault(path, (FILE, text(dice.choice(("this", "that")), 3)))


def change_binary(tree: Tree, dice: Random) -> None:
    if "image" in tree:
        mode, content = tree["image"]
        tree["image"] = (mode, content + bytes([0, dice.randrange(2)]))


def turn_link(tree: Tree, dice: Random) -> None:
    tree["link"] = dice.choice(((LINK, b"run.sh"), (LINK, b"src"), (FILE, b"no link any more\n")))


def make_folder_of_file(tree: Tree, dice: Random) -> None:
    path = _some(tree, dice)
    tree[f"{path}/inside"] = tree.pop(path)


def make_file_of_folder(tree: Tree, dice: Random) -> None:
    folder = dice.choice(("src", "lib"))
    for path in [path for path in tree if path.startswith(f"{folder}/")]:
        del tree[path]
    tree[folder] = (FILE, text(folder, 5))


def end_lines_otherwise(tree: Tree, dice: Random) -> None:
    path = _some(tree, dice)
    mode, content = tree[path]
    tree[path] = (mode, content.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"))


def rename_folder(tree: Tree, dice: Random) -> None:
    folder, to = dice.choice(("src", "lib")), dice.choice(("went", "gone"))
    for path in [path for path in tree if path.startswith(f"{folder}/")]:
        tree[f"{to}/{path.partition('/')[2]}"] = tree.pop(path)


def split_folder(tree: Tree, dice: Random) -> None:
    for number, path in enumerate(sorted(path for path in tree if path.startswith("lib/"))):
        tree[f"half-{number % 2}/{path.partition('/')[2]}"] = tree.pop(path)


def say_how_to_merge(tree: Tree, dice: Random) -> None:
    how = dice.choice((b"* merge=union\n", b"* -merge\n", b"* binary\n", b"*.py merge=union\n"))
    tree[dice.choice((".gitattributes", "src/.gitattributes", "lib/.gitattributes"))] = (FILE, how)


CHANGES: tuple[Callable[[Tree, Random], None], ...] = (
    edit,
    edit,
    edit_all,
    edit_all,
    append,
    rename,
    rename_and_edit,
    delete,
    change_mode,
    add,
    add,
    add,
    change_binary,
    turn_link,
    make_folder_of_file,
    make_file_of_folder,
    end_lines_otherwise,
    rename_folder,
    split_folder,
    say_how_to_merge,
)


def _changed(tree: Tree, dice: Random) -> tuple[Tree, str]:
    """Return a tree after a few changes that still is one, and what was done to it."""
    while True:
        after, done = dict(tree), dice.choices(CHANGES, k=dice.randint(1, 3))
        for change in done:
            change(after, dice)
        if not any(path.startswith(f"{other}/") for path in after for other in after):
            return after, "+".join(change.__name__ for change in done)


def _grown(importer: Importer, dice: Random) -> tuple[int, int, str]:
    """Make two branches of one base; some of them crossed each other before."""
    start = base_tree()
    if dice.random() < 0.3:
        say_how_to_merge(start, dice)
    base = importer.commit(start)
    (left, told), (right, also) = _changed(start, dice), _changed(start, dice)
    ours, theirs = importer.commit(left, base), importer.commit(right, base)
    kind = dice.random()
    if kind < 0.06:  # two best bases
        (left, told), (right, also) = _changed(left, dice), _changed(left, dice)
        ours, theirs = importer.commit(left, ours, theirs), importer.commit(right, theirs, ours)
        return ours, theirs, f"crossed: {told} | {also}"
    if kind < 0.09:
        return ours, base, f"behind: {told}"
    if kind < 0.12:
        return base, theirs, f"ahead: {also}"
    if kind < 0.16:
        return importer.commit(left), theirs, f"unrelated: {told} | {also}"
    return ours, theirs, f"{told} | {also}"


def make_pairs(repository: Path, number: int, seed: int) -> list[Pair]:
    dice, importer = Random(seed), Importer()
    made = [_grown(importer, dice) for _ in range(number)]
    shas = importer.run(repository)
    return [Pair(shas[ours], shas[theirs], story) for ours, theirs, story in made]


def make_branches(repository: Path, number: int, seed: int) -> list[str]:
    """Make branches of one base; return their commits."""
    dice, importer = Random(seed), Importer()
    start = base_tree()
    base = importer.commit(start)
    made = [importer.commit(_changed(start, dice)[0], base) for _ in range(number)]
    shas = importer.run(repository)
    return [shas[mark] for mark in made]


# what git itself makes of them


@dataclass(frozen=True)
class Fact:
    """How `git merge` really ended."""

    code: int
    unmerged: frozenset[str]


def really_merge(checkout: Path, pair: Pair) -> Fact:
    def git(*words: str, codes: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(["git", *words], cwd=checkout, capture_output=True)
        assert done.returncode in codes, (words, done.stderr)
        return done

    git("checkout", "-q", "--force", "--detach", pair.ours)
    merge = ("merge", "-q", "--no-edit", "-m", "merge", pair.theirs)
    merged = git(*merge, codes=(0, 1, UNRELATED, GAVE_UP))
    is_unrelated = b"unrelated histories" in merged.stderr
    if merged.returncode == 0 or is_unrelated:
        return Fact(merged.returncode, frozenset())
    (git_folder(checkout) / "index.lock").unlink(missing_ok=True)
    entries = git("ls-files", "-u", "-z").stdout.decode(errors="backslashreplace").split("\0")
    git("reset", "-q", "--hard")
    git("clean", "-q", "-ffdx")
    if merged.returncode != 1:
        return Fact(GAVE_UP, frozenset())
    return Fact(1, frozenset(_plain(entry.partition("\t")[2], pair) for entry in entries if entry))


def git_folder(checkout: Path) -> Path:
    return Path((checkout / ".git").read_text().removeprefix("gitdir:").strip())


def _plain(path: str, pair: Pair) -> str:
    """Without whose it is, which git adds to a file that a folder is in the way of."""
    name, _, side = path.rpartition("~")
    return name if name and side.partition("_")[0] in ("HEAD", pair.theirs) else path
