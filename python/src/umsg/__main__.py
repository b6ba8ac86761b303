"""`python -m umsg`: the command `umsg`."""

from ._command import main

if __name__ == "__main__":
    main()
