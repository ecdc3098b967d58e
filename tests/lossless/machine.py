"""Seeded sequences in which nothing may be lost: `python -m tests.lossless [--sequences 2000] [--seed 1]`.

Agents do all kinds of things to their workspaces, and are settled, removed and brought back, while processes
are killed, repositories are pruned and disks fill up. After each step every byte, commit and staged content
must be in the workspace, on a branch, under a ref or in the kept folder; after `undo` all is as it was. What
is exempt is what docs/guarantees.md exempts.

Most sequences call the workspace layer itself; one in four drives the real `fleet` command, its supervisor
and agents. A sequence that fails is played again with `--only N`.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import re
import shutil
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Report:
    seed: int
    violation: str = ""
    history: list[str] = field(default_factory=list[str])
    refused: Counter[str] = field(default_factory=Counter[str])
    seconds: float = 0.0


def play(folder: Path, seed: int, whole_every: int) -> Report:
    """Play one sequence in a folder of its own."""
    from tests.lossless.layer import LayerSequence
    from tests.lossless.model import Violation
    from tests.lossless.whole import WholeSequence

    logging.getLogger("fleet").addHandler(logging.NullHandler())  # what it logs is no result
    begun = time.monotonic()
    own = folder / f"sequence-{seed}"
    kind = WholeSequence if seed % whole_every == 0 else LayerSequence
    sequence = kind(own, folder / f"templates-{os.getpid()}", seed)
    report = Report(seed, history=sequence.history, refused=sequence.refused)
    try:
        sequence.play()
    except Violation as exc:
        report.violation = str(exc)
    except Exception:
        report.violation = f"the machine itself failed: {traceback.format_exc()}"
    finally:
        shutil.rmtree(own, ignore_errors=True)
    report.seconds = time.monotonic() - begun
    return report


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sequences", type=int, default=200)
    parser.add_argument(
        "--seed", type=int, default=1, help="of the first sequence; the next has the next number"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--whole-every", type=int, default=4, help="how seldom a sequence drives the real command"
    )
    parser.add_argument("--only", type=int, help="play this sequence alone")
    parser.add_argument("--verbose", action="store_true", help="also show what was refused without a fault")
    given = parser.parse_args()
    seeds = [given.only] if given.only is not None else range(given.seed, given.seed + given.sequences)
    memory = Path("/dev/shm")
    begun = time.monotonic()
    reports: list[Report] = []
    with tempfile.TemporaryDirectory(
        prefix="fleet-lossless-", dir=memory if memory.is_dir() else None, ignore_cleanup_errors=True
    ) as folder:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(given.jobs, mp_context=context) as pool:
            waiting = [pool.submit(play, Path(folder), seed, given.whole_every) for seed in seeds]
            for one in waiting:
                report = one.result()
                reports.append(report)
                if report.violation:
                    print(f"seed {report.seed}: violation: {report.violation}", flush=True)
                    print("".join(f"    {line}\n" for line in report.history), flush=True)
                elif given.only is not None:
                    print("".join(f"    {line}\n" for line in report.history), flush=True)
    return _summarize(reports, time.monotonic() - begun, verbose=given.verbose)


def _summarize(reports: list[Report], seconds: float, *, verbose: bool) -> int:
    broken = [report for report in reports if report.violation]
    if verbose:
        refused = Counter[str]()
        for report in reports:
            for text, count in report.refused.items():
                refused[re.sub(r"[0-9a-f]{7,}|/\S+", "…", text)[:150]] += count
        for text, count in refused.most_common():
            print(f"{count:5} × refused: {text}")
    slowest = max(reports, key=lambda report: report.seconds)
    print(
        f"{len(reports)} sequences, {len(broken)} violations, in {seconds:.0f} s"
        f" (the slowest, seed {slowest.seed}, took {slowest.seconds:.1f} s)"
    )
    return 1 if broken else 0
