"""The `fleet` command, also as `python -m fleet`."""

import gc


def main() -> int:
    # Loading modules and reading a thousand records makes much that lives to the end: without this,
    # the collector would look through all of it dozens of times and take a tenth of the time.
    gc.set_threshold(50_000)
    from fleet.interfaces.cli.main import main as run

    return run()


if __name__ == "__main__":
    raise SystemExit(main())
