"""The console script `parley`: the list of verbs, their help, and `main`, which runs one and reports its errors.

Exit status: 0 done; 1 done with a bad result (a broken corpus, a promise not kept); 2 a mistake that the user can fix;
130 interrupted (SIGINT); 143 terminated (SIGTERM); 141 the reader of the output has gone (`parley list | head`).

Importing this module imports nothing heavy: help is plain text.
"""

from __future__ import annotations

import errno
import importlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType

from parley.engine.core.ray import logs
from parley.engine.core.verbs.catalogue import ENTRIES

SLOGAN = "Finds out how a dialogue agent breaks, and makes it harder to break."
PRESET = "[PRESET]"


@dataclass(frozen=True)
class Verb:
    """A verb that can be typed after `parley`.

    Args:
        words: the words, such as ("train", "negotiator").
        summary: one line of help.
        target: "module:function" that runs it; the function takes the verb and the arguments after its words, and returns the
            exit status.
        examples: commands to copy and paste.
        usage: the positional arguments.
    """

    words: tuple[str, ...]
    summary: str
    target: str
    examples: tuple[str, ...]
    usage: str = ""

    @classmethod
    def of(cls, words: str, summary: str, target: str, *examples: str, usage: str = "") -> Verb:
        """Return the verb with these words, as they are typed."""
        return cls(tuple(words.split()), summary, target, examples, usage)

    @property
    def name(self) -> str:
        """The words as typed."""
        return " ".join(self.words)

    @property
    def has_presets(self) -> bool:
        """Return whether it runs a job, whose first argument may name a preset."""
        return self.usage.startswith(PRESET)

    def load(self) -> Callable[[Verb, Sequence[str]], int]:
        """Import and return the function of the verb; it takes the verb and its arguments, and returns the exit status."""
        module, _, attribute = self.target.partition(":")
        function: Callable[[Verb, Sequence[str]], int] = getattr(importlib.import_module(module), attribute)
        return function


COMPARE = "compare"
"""The verb that takes runs, or a recipe, which is a job."""
JOBS = tuple(
    Verb(
        entry.words,
        entry.summary,
        "parley.engine.core.cli.runs:run_job",
        entry.examples,
        f"{PRESET} [{entry.argument}]" if entry.argument else PRESET,
    )
    for entry in ENTRIES
    if entry.words != (COMPARE,)
)
OTHERS = (
    Verb.of(
        "scan --init",
        "print a commented policy",
        "parley.engine.scan.verbs:run_init",
        "parley scan --init > policy.yaml",
        "parley scan --init --demo                     # the policy of parley scan demo",
        "parley scan --init | head -20",
    ),
    Verb.of(
        "perturb",
        "text before and after a perturbation, changed words marked",
        "parley.engine.perturb.verbs.perturb:run_perturb",
        "parley perturb random-swap < in.txt",
        "parley perturb all --input in.txt --model runs/seq2seq --set perturb.lexicon=built-in --json",
        "parley perturb iiw,sow --context candidates.tsv",
        usage="STRATEGY",
    ),
    Verb.of(
        "perturb label",
        "read labelled lines of an audit back into its rates",
        "parley.engine.perturb.verbs.audit:run_label",
        "parley perturb label runs/audit runs/audit/sheet.csv",
        "parley perturb label runs/audit alice.csv bob.csv      # two labellers: how far they agree",
        "parley perturb label runs/audit alice.csv --json",
        usage="RUN FILE ...",
    ),
    Verb.of(
        "label",
        "a sheet of a scan's answers for people to label; read back, rates corrected for the errors of the verdicts",
        "parley.engine.scan.labels:run_label",
        "parley label runs/scan                        # writes runs/scan/sheet.csv",
        "parley label runs/scan --sheet alice.csv",
        "parley label runs/scan --sheet alice.csv --sheet bob.csv --json",
        usage="RUN",
    ),
    Verb.of(
        "list",
        "agents, corpora, presets, environments and metrics",
        "parley.engine.core.cli.listing:run_list",
        "parley list",
        "parley list --json",
        "parley list --json | python -m json.tool",
    ),
    Verb.of(
        "check",
        "whether an agent, a corpus, a model or a strategy of your own keeps what its protocol promises",
        "parley.engine.core.cli.listing:run_check",
        "parley check agent.py:MyAgent",
        "parley check strategy.py:Shout --json",
        "parley check corpus.py:CORPUS              # its files lie below PARLEY_DATA",
        usage="PART",
    ),
    Verb.of(
        "data list",
        "the corpora, their licences, and whether their files are there",
        "parley.engine.responders.data:run_list",
        "parley data list",
        "parley data list --data-root DIR",
        "parley data list --json",
    ),
    Verb.of(
        "data get",
        "download a corpus and compile it; nltk stands for what perturbations read",
        "parley.engine.responders.data:run_get",
        "parley data get dealornodeal",
        "parley data get dealornodeal --data-root DIR",
        "parley data get nltk",
        usage="NAME",
    ),
    Verb.of(
        "data info",
        "a corpus in numbers",
        "parley.engine.responders.data:run_info",
        "parley data info helpdesk",
        "parley data info dealornodeal --json",
        "parley data info corpus.py:CORPUS",
        usage="NAME",
    ),
    Verb.of(
        "data check",
        "read every line of a corpus; every problem with where it stands",
        "parley.engine.responders.data:run_check",
        "parley data check embedded",
        "parley data check dealornodeal --json",
        "parley data check corpus.py:CORPUS",
        usage="NAME",
    ),
    Verb.of(
        "data export",
        "write a corpus of chats in the format of MutualFriends",
        "parley.engine.responders.data:run_export",
        "parley data export friends exported",
        "parley data export mutualfriends_scripted exported --json",
        "parley data export corpus.py:CORPUS exported",
        usage="NAME FOLDER",
    ),
    Verb.of(
        "settings",
        "every setting of a verb, what it is and what it would be; runs nothing",
        "parley.engine.core.cli.listing:run_settings",
        "parley settings selfplay",
        "parley settings train negotiator lewis2017 --set fit.clip=1",
        "parley settings minmax population --json",
        usage="VERB ...",
    ),
    Verb.of(
        "play",
        "negotiate with an agent yourself",
        "parley.engine.negotiation.verbs.play:run_play",
        "parley play scripted",
        "parley play runs/demo/adversary --seed 7",
        "parley play scripted-tough --scenario 1,2,3/0,2,2/4,0,2   # counts / your points / its points",
        usage="AGENT",
    ),
    Verb.of(
        "play friends",
        "look with a bot for the friend both of you have",
        "parley.engine.mutual_friends.verbs.agents:run_play_friends",
        "parley play friends",
        "parley play friends --partner runs/dynonet --seed 7",
        "parley play friends --partner mine.py:Bot",
    ),
    Verb.of(
        "play secret",
        "make a defender say its secret word yourself",
        "parley.engine.secret.verbs.play:run_play_secret",
        "parley play secret",
        "parley play secret --defender decoder-filter --seed 7",
        "parley play secret --defender gguf:SmolLM2-135M-Instruct.gguf",
    ),
    Verb.of(
        "play ranking",
        "edit candidate replies yourself, and see scores, ranks and the importance of words move",
        "parley.engine.ranking.verbs.play:run_play_ranking",
        "parley play ranking                           # TF-IDF on the built-in help desk",
        "parley play ranking --model runs/matcher,bm25 --corpus ubuntu_dialogues --key test-0000012",
        "parley play ranking --json < moves.txt        # such as: attack 3",
    ),
    Verb.of(
        "play reply",
        "talk with a response model yourself",
        "parley.engine.responders.reply:run_play_reply",
        "parley play reply runs/seq2seq",
        "parley play reply runs/seq2seq --decoder sample:0.7,repeat=2",
        "parley play reply runs/seq2seq --decoder mmi:beam=20,backward=runs/backward",
        usage="MODEL",
    ),
    Verb.of(
        "report",
        "show a run, or a folder of runs, as one page",
        "parley.engine.core.cli.runs:run_report",
        "parley report runs/demo",
        "parley report runs   # all runs side by side",
        "parley report runs/selfplay page.html",
        usage="RUN [FILE]",
    ),
    Verb.of(
        COMPARE,
        "differences between runs of one verb, item by item; or a recipe: verbs with settings as the rows of a table",
        "parley.engine.core.cli.runs:run_compare",
        "parley compare runs/a-1,runs/a-2,runs/a-3 'runs/b-*' --metric advantage,agreement   # trainings",
        'parley compare runs/before runs/after --fail-if "advantage.difference.high < 0" --json',
        "parley compare recipe.yaml --workers 2        # a recipe has flags of its own: parley compare recipe.yaml --help",
        usage="RUN RUN ... | RECIPE.yaml",
    ),
    Verb.of(
        "table",
        "the tables of a run, for a paper (LaTeX), a spreadsheet (CSV), a program (JSON) or the screen",
        "parley.engine.core.cli.runs:run_table",
        "parley table runs/ranking                     # on the screen",
        "parley table runs/ranking ranking.tex         # with booktabs; .csv and .json hold all digits",
        "parley table runs/adversarial-evaluation judges.csv --heading reliability",
        usage="RUN [FILE]",
    ),
    Verb.of(
        "rows",
        "write the rows of a run as one file, for pandas, R, a spreadsheet or the viewer of inspect_ai",
        "parley.engine.core.cli.runs:run_rows",
        "parley rows runs/ranking ranking.parquet      # a line for each candidate, ranker and rule",
        "parley rows runs/selfplay dialogues.csv",
        "parley rows runs/scan scan.eval               # conversations, for inspect view, VS Code and Scout",
        usage="RUN FILE",
    ),
    Verb.of(
        "status",
        "how a run stands: running or not, how far, how fast, what failed",
        "parley.engine.core.cli.runs:run_status",
        "parley status                # all of runs/",
        "parley status runs/search",
        "parley status runs/search --json",
        usage="[RUN]",
    ),
    Verb.of(
        "resume",
        "go on with a run that was interrupted",
        "parley.engine.core.cli.runs:run_resume",
        "parley resume runs/negotiator",
        "parley resume runs/demo",
        "parley resume runs/selfplay --json",
        usage="RUN",
    ),
)
VERBS = (*JOBS, *OTHERS)
_ORDER = (
    ("start here", ("demo", "scan", "list", "settings", "play", "check")),
    ("data", ("data",)),
    ("agents", ("train", "reply")),
    ("matches and attacks", ("selfplay", "attack", "search", "perturb")),
    ("robustness", ("minmax", "evaluate", "reproduce")),
    ("sweeps", ("sweep",)),
    ("runs", ("status", "report", "table", "compare", "label", "rows", "resume")),
)


def find_verb(arguments: Sequence[str]) -> Verb | None:
    """Return the verb that a command line begins with, the longest of several; None if there is none."""
    matches = (verb for verb in VERBS if tuple(arguments[: len(verb.words)]) == verb.words)
    return max(matches, key=lambda verb: len(verb.words), default=None)


def below(word: str) -> list[Verb]:
    """Return the verbs that begin with a word, a verb of that word alone first."""
    return sorted((verb for verb in VERBS if verb.words[0] == word), key=lambda verb: len(verb.words) > 1)


def help_text() -> str:
    """Return the text of `parley --help`."""
    lines = ["usage: parley VERB [ARGUMENTS]", "", SLOGAN]
    for title, words in _ORDER:
        lines += ["", title, *(line for word in words for line in _lines(below(word)))]
    lines += [
        "",
        "parley VERB --help says more. The same command again goes on with an interrupted run. Text goes to standard error,",
        "results to standard output with --json. --log json makes the text JSON lines, those of Ray's workers too;",
        "--debug shows the traceback of an error. --trust-code imports Python files that a run or a settings file names;",
        "those that you type are imported anyway. parley --version names the version.",
    ]
    return "\n".join(lines)


def group_help(word: str) -> str:
    """Return the text of `parley train --help`, or of another word that begins several verbs."""
    verbs = below(word)
    endings = "|".join(verb.words[1] for verb in verbs)
    examples = [f"  {verb.examples[0]}" for verb in verbs]
    lines = [f"usage: parley {word} {endings} [ARGUMENTS]", "", *_lines(verbs), "", "examples", *examples]
    return "\n".join(lines)


def _lines(verbs: Sequence[Verb]) -> list[str]:
    return [f"  {_typed(verb):<{_WIDTH}}  {verb.summary}" for verb in verbs]


def _typed(verb: Verb) -> str:
    return f"{verb.name} {verb.usage}".rstrip()


_WIDTH = max(len(_typed(verb)) for verb in VERBS)


DEBUG, TRUST_CODE = "--debug", "--trust-code"
MISTAKE, INTERRUPTED, UNREAD, TERMINATED = 2, 130, 141, 143
_HELP = ("-h", "--help")
_VERSION = "--version"
LOG, FORMS = "--log", ("text", "json")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments without the program's name; those of the process if not given.

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
        _drop_zero_sizes()
        # Arrow and Python then use each other's freed memory; read when pyarrow is imported.
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
        try:
            arguments, in_json = _take_log([argument for argument in arguments if argument not in (DEBUG, TRUST_CODE)])
            if in_json:
                stack.enter_context(logs.json_lines())
            verb = find_verb(arguments)
            if verb is None:
                _answer_without_verb(arguments)
                status = 0
            else:
                from parley.engine.core.cli.screen import trusting_what_is_typed

                with trusting_what_is_typed(arguments, trusts_code):
                    status = verb.load()(verb, arguments[len(verb.words) :])
            sys.stdout.flush()
            return status
        except SystemExit as end:
            # Help was printed, or tyro has reported a value of the wrong type.
            return end.code if isinstance(end.code, int) else 0
        except KeyboardInterrupt:
            if debug:
                raise
            sys.stderr.write(f"\n{'terminated' if terminations else 'interrupted'}; the same command resumes\n")
            return TERMINATED if terminations else INTERRUPTED
        except BrokenPipeError:
            if debug or not _has_no_reader():
                raise
            return UNREAD
        except OSError as error:
            if debug or not _is_output_full(error):
                raise
            return _report_lost_output(error)
        except ValueError as error:
            # Imported late, because the import of the errors' package takes longer than help may.
            from parley.envs.core.errors import ParleyError

            if debug or not isinstance(error, ParleyError):
                raise
            from parley.engine.core.cli.screen import show_error

            show_error(error)
            return MISTAKE


@contextmanager
def _sigterm_interrupts() -> Iterator[list[int]]:
    """Let SIGTERM do the same as SIGINT within a `with` block; yield a list that records it."""
    signals: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        handler = signal.getsignal(signal.SIGINT)
        # A shell makes its background processes ignore SIGINT.
        (handler if callable(handler) else signal.default_int_handler)(signal.SIGINT, frame)

    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield signals
    finally:
        signal.signal(signal.SIGTERM, before)


def _has_no_reader() -> bool:
    """Return whether the reader of standard output has gone; then discard the rest of the output."""
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
    """Discard the buffered output of a descriptor: Python writes it at exit, which would fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, output)
    os.close(nowhere)


def _is_output_full(error: OSError) -> bool:
    """Return whether standard output takes no more, such as a file on a full disk; a line end is written to find out."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
        return False
    try:
        os.write(sys.stdout.fileno(), b"\n")
    except OSError:
        return True
    return False


def _report_lost_output(error: OSError) -> int:
    from parley.engine.core.cli.screen import show_error
    from parley.envs.core.errors import RunError

    _write_nowhere(sys.stdout.fileno())
    fix = "make room, or send the output elsewhere; the same command prints it again, and what a run has saved is kept"
    show_error(RunError("standard output cannot be written", got=error.strerror, fix=fix))
    return MISTAKE


def _drop_zero_sizes() -> None:
    """Remove a terminal's width or height of 0, which some schedulers set: text would be folded to nothing."""
    for name in ("COLUMNS", "LINES"):
        if os.environ.get(name, "1").strip().strip("0") == "":
            del os.environ[name]


def _take_log(arguments: list[str]) -> tuple[list[str], bool]:
    """Return the arguments without `--log text|json`, and whether it is json."""
    if LOG not in arguments:
        return arguments, False
    index = arguments.index(LOG)
    form = arguments[index + 1] if index + 1 < len(arguments) else None
    if form not in FORMS:
        from parley.envs.core.errors import ConfigError

        raise ConfigError(f"{LOG} takes one of {', '.join(FORMS)}", got=form, fix=f"{LOG} json")
    return arguments[:index] + arguments[index + 2 :], form == "json"


def _answer_without_verb(arguments: list[str]) -> None:
    """Write help or the version."""
    if not arguments or arguments[0] in _HELP:
        sys.stdout.write(f"{help_text()}\n")
        return
    if arguments == [_VERSION]:
        from importlib.metadata import version

        sys.stdout.write(f"parley {version('parley-redteam')}\n")
        return
    word = arguments[0]
    if below(word) and set(arguments[1:]) & set(_HELP):
        sys.stdout.write(f"{group_help(word)}\n")
        return
    from parley.envs.core.errors import ConfigError
    from parley.envs.core.registry import nearest

    if below(word):
        endings = [verb.words[1] for verb in below(word)]
        got = arguments[1] if len(arguments) > 1 else None
        what = f"parley {word} takes one of {', '.join(endings)}{nearest(got or '', endings)}"
        raise ConfigError(what, got=got, fix=f"parley {word} --help")
    names = {verb.words[0] for verb in VERBS}
    raise ConfigError(f"no verb is called {word!r}{nearest(word, names)}", fix="parley --help lists the verbs")
