"""How the tools of this directory end: with a result, or with one sentence on standard error.

    if __name__ == "__main__":
        sentence.run(main)

What a person can mend (a file that is not there, a program that is not installed, a machine that
died) is one sentence. An error in the tool itself is still a traceback, because that is what its
author needs.
"""
import importlib
import os
import subprocess
import sys

APT_PYTHON = "/usr/bin/python3"  # the only one that has the modules that apt installs
INTERRUPTED, BROKEN_PIPE = 130, 141  # the exit codes that a shell shows for SIGINT and SIGPIPE


class Problem(Exception):
    """One sentence: what is wrong, where, and what would help."""


def count(number, noun):
    """Returns "1 machine", "2 machines"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def need(module, package):
    """Returns the imported module. Raises Problem if this Python does not have it."""
    try:
        return importlib.import_module(module)
    except ImportError as e:
        raise Problem(f"needs the Python module {module}, which {sys.executable} does not have: "
                      f"install {package} with apt and start this program with {APT_PYTHON}") from e


def of_os_error(e):
    """Returns a sentence about what the operating system refused."""
    what = e.strerror or str(e) or type(e).__name__
    if not e.filename:
        return what
    is_name = os.sep not in str(e.filename)  # perhaps a program that was looked for in PATH
    if isinstance(e, FileNotFoundError) and is_name and not os.path.exists(e.filename):
        return (f"{e.filename}: there is no such file, or no such program is installed "
                "(tools/deps.sh installs what is needed)")
    return f"{e.filename}: {what}"


def of_failed_command(e):
    """Returns a sentence about a program that was started and did not succeed. What the program
    said is on the screen already, unless it was captured."""
    words = e.cmd if isinstance(e.cmd, str) else os.path.basename(str(e.cmd[0]))
    said = e.stderr if isinstance(e.stderr, str) else (e.stderr or b"").decode("utf-8", "replace")
    last = f": {said.strip().splitlines()[-1]}" if said.strip() else ""
    how = f"failed with exit status {e.returncode}"
    if e.returncode < 0:
        how = f"was ended by signal {-e.returncode}"
    return f"{words} {how}{last}"


def problems():
    """Returns the exceptions whose text is a sentence for a person."""
    kinds = [Problem]
    for module, name in (("machine", "Died"), ("hostnet", "Missing"), ("clients", "Failed")):
        kind = getattr(sys.modules.get(module), name, None)
        kinds += [kind] if kind else []
    return tuple(kinds)


def run(main):
    """Calls main(), whose result is the exit status (None is 0), and exits."""
    name = os.path.basename(sys.argv[0]).removesuffix(".py")
    sentence = None
    try:
        code = main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        print(f"\n{name}: interrupted", file=sys.stderr)
        code = INTERRUPTED
    except BrokenPipeError:  # The reader has read enough, such as `head`.
        # Otherwise Python complains when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = BROKEN_PIPE
    except problems() as e:
        sentence = str(e)
    except subprocess.CalledProcessError as e:
        sentence = of_failed_command(e)
    except OSError as e:
        sentence = of_os_error(e)
    if sentence is not None:
        print(f"{name}: {sentence}", file=sys.stderr)
        code = 1
    sys.exit(code)
