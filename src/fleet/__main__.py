"""`python -m fleet` is `fleet`."""

from fleet.interfaces.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
