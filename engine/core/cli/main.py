"""The entry point of the console script `parley`: finds the verb, runs it, and says in few words what went wrong.

Exit status: 0 done, 1 done but not as it should be (a broken corpus, a promise not kept), 2 a mistake that the user can
mend, 130 interrupted (SIGINT), 143 terminated (SIGTERM), 141 nobody reads on (`parley list | head`), as of other programs.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType

from parley.engine.core.cli.verbs import VERBS, below, find_verb, group_help, help_text
from parley.engine.core.ray import logs

DEBUG, TRUST_CODE = "--debug", "--trust-code"
MISTAKE, INTERRUPTED, UNREAD, TERMINATED = 2, 130, 141, 143
_HELP = ("-h", "--help")
_VERSION = "--version"
LOG, FORMS = "--log", ("text", "json")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: the arguments without the program's name; those of the process when not given.

    Returns:
        The exit status.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    trusts_code = TRUST_CODE in arguments
    with ExitStack() as stack:
        terminations = stack.enter_context(_sigterm_interrupts())
        if DEBUG in arguments:
            stack.enter_context(logs.debugging())
        debug = logs.is_debug()
        _drop_sizes_of_nothing()
        try:
            arguments, in_json = _take_log([argument for argument in arguments if argument not in (DEBUG, TRUST_CODE)])
            if in_json:
                stack.enter_context(logs.json_lines())
            status = _run(arguments, trusts_code)
            sys.stdout.flush()
            return status
        except SystemExit as end:
            # Help was asked for, or a value was of the wrong type and tyro has said so.
            return end.code if isinstance(end.code, int) else 0
        except KeyboardInterrupt:
            if debug:
                raise
            sys.stderr.write(f"\n{'terminated' if terminations else 'interrupted'}; the same command resumes\n")
            return TERMINATED if terminations else INTERRUPTED
        except BrokenPipeError:
            if debug or not _unread():
                raise
            return UNREAD
        except OSError as error:
            if debug or not _is_of_output(error):
                raise
            return _output_lost(error)
        except ValueError as error:
            # Imported late, because the tree of errors lies in a package whose import takes longer than help may.
            from parley.envs.core.errors import ParleyError

            if debug or not isinstance(error, ParleyError):
                raise
            from parley.engine.core.cli.tables import show_error

            show_error(error)
            return MISTAKE


@contextmanager
def _sigterm_interrupts() -> Iterator[list[int]]:
    """Lets SIGTERM do whatever SIGINT does, for the length of a `with` block; hands out a list that it is noted in."""
    noted: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        noted.append(number)
        answer = signal.getsignal(signal.SIGINT)
        # A shell lets what it starts in the background ignore SIGINT.
        (answer if callable(answer) else signal.default_int_handler)(signal.SIGINT, frame)

    if threading.current_thread() is not threading.main_thread():
        yield noted
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGTERM, before)


def _unread() -> bool:
    """Whether nobody reads standard output any more; what is left for it goes nowhere then."""
    try:
        output = sys.stdout.fileno()
    except (OSError, ValueError):
        return False
    poll = select.poll()
    poll.register(output, select.POLLOUT)
    if not any(event & select.POLLERR for _, event in poll.poll(0)):
        return False
    _write_nowhere(output)
    return True


def _write_nowhere(output: int) -> None:
    """Let what is buffered for a descriptor go nowhere: it is written when Python ends, and would fail once more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, output)
    os.close(nowhere)


def _is_of_output(error: OSError) -> bool:
    """Whether standard output takes no more, such as a file on a full disk: a line end more is tried."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
        return False
    try:
        os.write(sys.stdout.fileno(), b"\n")
    except OSError:
        return True
    return False


def _output_lost(error: OSError) -> int:
    from parley.engine.core.cli.tables import show_error
    from parley.envs.core.errors import RunError

    _write_nowhere(sys.stdout.fileno())
    fix = "make room, or send the output elsewhere; the same command prints it again, and what a run has saved is kept"
    show_error(RunError("standard output cannot be written", got=error.strerror, fix=fix))
    return MISTAKE


def _drop_sizes_of_nothing() -> None:
    """Forget a terminal's width or height of 0, as some schedulers set it: text would be folded to nothing."""
    for name in ("COLUMNS", "LINES"):
        if os.environ.get(name, "1").strip().strip("0") == "":
            del os.environ[name]


def _take_log(arguments: list[str]) -> tuple[list[str], bool]:
    """The arguments without `--log text|json`, and whether it says json."""
    if LOG not in arguments:
        return arguments, False
    place = arguments.index(LOG)
    form = arguments[place + 1] if place + 1 < len(arguments) else None
    if form not in FORMS:
        from parley.envs.core.errors import ConfigError

        raise ConfigError(f"{LOG} takes one of {', '.join(FORMS)}", got=form, fix=f"{LOG} json")
    return arguments[:place] + arguments[place + 2 :], form == "json"


def _run(arguments: list[str], trusts_code: bool) -> int:
    if not arguments or arguments[0] in _HELP:
        sys.stdout.write(f"{help_text()}\n")
        return 0
    if arguments == [_VERSION]:
        from importlib.metadata import version

        sys.stdout.write(f"parley {version('parley-redteam')}\n")
        return 0
    verb = find_verb(arguments)
    if verb is not None:
        from parley.engine.core.cli.trust import trusting_what_is_typed

        with trusting_what_is_typed(arguments, trusts_code):
            return verb.run(arguments[len(verb.words) :])
    word = arguments[0]
    if below(word) and set(arguments[1:]) & set(_HELP):
        sys.stdout.write(f"{group_help(word)}\n")
        return 0
    from parley.envs.core.errors import ConfigError
    from parley.envs.core.registry import nearest

    if below(word):
        endings = [verb.words[1] for verb in below(word)]
        got = arguments[1] if len(arguments) > 1 else None
        what = f"parley {word} takes one of {', '.join(endings)}{nearest(got or '', endings)}"
        raise ConfigError(what, got=got, fix=f"parley {word} --help")
    names = {verb.words[0] for verb in VERBS}
    raise ConfigError(f"no verb is called {word!r}{nearest(word, names)}", fix="parley --help lists the verbs")
