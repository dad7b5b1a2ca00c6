"""The parts of a measuring script: all of them, or those that its arguments name."""
import sys


def run(parts):
    """parts: name -> function without arguments. SystemExit at a name that there is not."""
    names = sys.argv[1:] or list(parts)
    for name in names:
        if name not in parts:
            raise SystemExit(f"no part {name}; there are {', '.join(parts)}")
        parts[name]()
