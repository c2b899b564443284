"""`python -m lightmeter` is the command line."""

from lightmeter.cli import main

if __name__ == "__main__":
    main()
