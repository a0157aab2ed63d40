"""Replies of a model to a corpus (`parley reply`), and to a person at the terminal (`parley play reply`).

Files of lines `turn TAB ... TAB source TAB reply` come of it: `replies.tsv` holds the model's replies and `human.tsv` the
recorded ones, to the same contexts in the same order, a line for each, and `next.tsv` in the place of a reply what followed the
recorded one, where the corpus knows. A reply without a word is no line, and is counted; so is an answer of a chat model that
is no reply (`parley.policies.chat.model.AnswerKind`), whose kind and reasoning stand in its row. Who reads the files goes by
contexts. Validation and test contexts that stand in the training split, too, are left out: a model may know their replies by
heart.

In `parley play reply`, answers of a chat model that are no reply are counted in the end; where most are
none, nobody talked and the status is 1.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from tyro import conf

from parley.engine.core.cli.flags import parse
from parley.engine.core.cli.main import Verb
from parley.engine.core.cli.screen import StandardTerminal, Terminal, make_console, show_lines, watching
from parley.engine.core.ray.record import Counts, Rows
from parley.engine.core.ray.worker import Shard
from parley.engine.core.runs.documents import SUMMARY, whole_file
from parley.engine.core.runs.parts import ANSWERED, answer_columns, ok_row, row_schema
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import (
    NO_REPLY,
    NO_REPLY_METRICS,
    NOTHING,
    REPLIES,
    Estimate,
    Metric,
    Row,
    finished,
    has_word,
    is_no_reply,
    kinds_of_rows,
    kinds_told,
    no_reply_metrics,
    reply_metrics,
)
from parley.engine.core.verbs.checkpoints import absolute_name, located
from parley.engine.core.verbs.job import Reporter, Result, Summary, drawn
from parley.engine.core.verbs.sharded import ItemsJob, Prepared, Sharded, ShardedConfig, Tally, rows_apart, spread
from parley.engine.core.verbs.transcripts import ASSISTANT, USER, Transcript, TranscriptRule
from parley.envs.core.config import Configuration, NonNegativeInt, NumItemsOrAll, PositiveInt
from parley.envs.core.errors import ConfigError, DataError, RunError
from parley.envs.core.seeds import derive_seed
from parley.envs.core.storage.copies import fetched_model
from parley.envs.core.storage.uris import display_path
from parley.envs.corpora.arrow import data_root, root_words
from parley.envs.corpora.pairs.compiled import load_pairs
from parley.envs.corpora.pairs.contexts import OWN_TURNS, examples, left_out
from parley.envs.corpora.pairs.turns import EOT, Example, Turn, Turns, context_words, detokenise, format_turns, parse_turns
from parley.policies.chat.addresses import is_chat_address
from parley.policies.chat.model import ChatUsage, RunUsage
from parley.policies.chat.settings import ChatAsking, ChatReplying
from parley.policies.core.responder import (
    CONFIG,
    GREEDY,
    DecoderSettings,
    ModelReply,
    Responder,
    model_inside,
    replies_of,
    require_decoder,
)

if TYPE_CHECKING:
    from parley.policies.core.responder import TrainableResponder


HELP = """Type what you say. Commands:
  /new    begin another dialogue
  /quit   leave"""


@dataclass(frozen=True, kw_only=True)
class PlayReplyArguments(Configuration):
    """The model, and its way to reply."""

    model: Annotated[conf.Positional[str], conf.arg(metavar="MODEL")]
    """Response model: a run or checkpoint (parley train seq2seq, parley train vhred), hf:FOLDER, gguf:FILE,
    openai:URL#MODEL, or path/file.py:Name."""
    decoder: str = GREEDY.rule
    """Decoder of replies: greedy, beam:5, sample:0.8, diverse:7,rate=0.5, mmi:backward=RUN, mmi-antilm:lm=RUN,
    blind (one reply to everybody)."""
    seed: NonNegativeInt = 1
    """Decides what is drawn, with the number of the turn."""


def run_play_reply(verb: Verb, arguments: Sequence[str]) -> int:
    """Talk until the person leaves; return the exit status, 1 where most answers are no reply."""
    from parley.policies.core.responders import load_responder

    options = parse(PlayReplyArguments, verb, arguments)
    with watching():
        decoder = located(DecoderSettings.parse(options.decoder))
        responder = load_responder(absolute_name(options.model, "MODEL"))
        require_decoder(responder, decoder, options.model)
    terminal = StandardTerminal()
    terminal.show(f"You talk with {options.model}, which replies by {options.decoder}.\n\n{HELP}\n")
    try:
        talk(terminal, responder, decoder, options.seed)
    except KeyboardInterrupt:
        terminal.show("")
    again = ["parley", "reply", "quick", "--model", options.model, "--decoder", options.decoder]
    console, usage = make_console(), usage_of(responder, options.model)
    failure = usage.failure()
    lost = [] if failure else usage.warnings(ChatAsking())
    show_lines(console, "warning", lost)
    show_lines(console, "failed", [failure] if failure else [])
    show_lines(console, "next", [shlex.join(again)])
    return 1 if failure else 0


def usage_of(responder: Responder, name: str) -> RunUsage:
    """Return what a response model that is a chat model was asked; nothing of others."""
    usage = getattr(getattr(responder, "chat_model", None), "usage", None)
    return RunUsage({name: usage} if isinstance(usage, ChatUsage) else {})


def talk(terminal: Terminal, responder: Responder, decoder: DecoderSettings, seed: int) -> None:
    """Reply to each typed line, with the turns before it as context.

    Args:
        terminal: where the person sits.
        responder: what replies; it reads as many of the newest turns as it was made for.
        decoder: how, which it knows.
        seed: decides what is drawn.

    Raises:
        KeyboardInterrupt: the input has come to its end.
    """
    turns: list[Turn] = []
    while (line := terminal.ask("you:   ")) != "/quit":
        if line == "/new":
            turns = []
            terminal.show("another dialogue")
            continue
        turns += [turn for turn in parse_turns(line) if any(turn)]
        if not line:
            continue
        (reply,) = replies_of(responder, [tuple(turns)], decoder, [derive_seed(seed, "play", len(turns))])
        text = " / ".join(detokenise(utterance) for utterance in reply.turn if utterance)
        nothing = "(says nothing)" if reply.answer is None or reply.is_reply else f"(no reply: {reply.answer.kind})"
        terminal.show(f"model: {text or nothing}")
        turns += [reply.turn] if text else []


MACHINE_FILE, HUMAN_FILE, NEXT_FILE = "replies.tsv", "human.tsv", "next.tsv"
MOST_ALIKE = 0.5
"""Share of contexts that may get one reply without a warning."""
NUM_CONTEXTS = "contexts"
"""Entry of the summary: how many contexts there are."""
# What was said before, what followed, and what the model replied: lines as
# `parley.envs.corpora.pairs.turns.format_turns` writes them.
REPLIED = row_schema({"context truth reply": str, **ANSWERED})
"""One context per row, with the recorded reply and the model's."""


def reply_transcript(row: Row) -> Transcript:
    """Return a context and the reply as a conversation; the turn before the reply is the user's."""
    turns = [" ".join(" ".join(words) for words in turn) for turn in parse_turns(row["context"])]
    roles = [(USER, ASSISTANT)[(len(turns) - 1 - number) % 2] for number in range(len(turns))]
    messages = (*zip(roles, turns, strict=True), *([(ASSISTANT, row["reply"])] if row["reply"] else []))
    return Transcript(messages, target=row["truth"] or "", scores={"words": len((row["reply"] or "").split())})


@dataclass(frozen=True, kw_only=True)
class ReplyConfig(ShardedConfig):
    """The contexts that a model replies to, and its way to reply."""

    model: str = "runs/seq2seq"
    """Response model: a run or checkpoint (parley train seq2seq, parley train vhred), hf:FOLDER, gguf:FILE,
    openai:URL#MODEL, or path/file.py:Name."""
    decoder: str = GREEDY.rule
    """Decoder of replies: greedy, beam:5, sample:0.8, diverse:7,rate=0.5, mmi:backward=RUN, mmi-antilm:lm=RUN,
    blind (one reply to everybody)."""
    corpus: str = ""
    """Corpus whose contexts are replied to; the one that the model was fitted to when empty."""
    split: Literal["test", "val", "train"] = "test"
    """Split of the corpus; contexts of val and test that stand in train, too, are left out."""
    limit: NumItemsOrAll = 0
    """Number of contexts at most, the seed's choice; 0 for all."""
    min_reply: PositiveInt = 1
    """Words of the recorded reply at least; contexts of shorter ones are left out."""
    max_reply: PositiveInt | None = None
    """Words of the recorded reply at most; contexts of longer ones are left out."""
    turns: PositiveInt | None = None
    """Most turns of a context; as many as the model reads when not given."""
    batch_size: PositiveInt = 64
    """Contexts that are replied to side by side."""
    chat: ChatReplying = field(default_factory=ChatReplying)
    """Settings of a chat model."""

    def __post_init__(self) -> None:
        super().__post_init__()
        DecoderSettings.parse(self.decoder)


@dataclass(frozen=True)
class ReplyTask(Sharded[Example]):
    """A model that replies.

    Args:
        config: the settings.
        model: its name, absolute.
        decoder: how it replies.
        answers: folder in which a chat model's answers are kept.
    """

    unit = "contexts"
    event = "replied"
    purpose = "reply"

    config: ReplyConfig
    model: str
    decoder: DecoderSettings
    answers: str = field(default="", kw_only=True)

    def worker(self) -> ReplyWorker:
        return ReplyWorker(self)

    def shard_size(self, num_items: int, num_workers: int) -> int:
        return spread(num_items, num_workers, 4 * self.config.batch_size)

    def digest(self, rows: Rows) -> Counts:
        done = finished(rows)
        return Counter({self.unit: len(done), NO_REPLY: sum(map(is_no_reply, done))})

    def describe(self, tally: Tally) -> str:
        return f"no reply: {tally.total[NO_REPLY]:,}" if tally.total[NO_REPLY] else ""


class ReplyWorker:
    """A worker that replies with a model."""

    def __init__(self, reply_task: ReplyTask) -> None:
        from parley.policies.core.responders import load_responder

        config, answers = reply_task.config, Path(reply_task.answers) if reply_task.answers else None
        chat, most = config.chat.on(config.device), config.chat.max_tokens
        self.reply_task, self.responder = reply_task, load_responder(reply_task.model, chat, answers=answers, max_tokens=most)
        if _is_ours(reply_task.config):
            responder: TrainableResponder = self.responder  # type: ignore[assignment]  # as the kind of its checkpoint says
            responder.model.to(reply_task.config.device)

    def run(self, shard: Shard[Example]) -> list[dict[str, Any]]:
        """Return one row per context; contexts of similar length are one batch."""
        return rows_apart(self._replied, shard, self.reply_task.seed)

    def _replied(self, shard: Shard[Example]) -> list[dict[str, Any]]:
        reply_task, size = self.reply_task, self.reply_task.config.batch_size
        order = sorted(range(len(shard.items)), key=lambda index: len(context_words(shard.items[index].context)))
        replies_by_index: dict[int, ModelReply] = {}
        for start in range(0, len(order), size):
            indices = order[start : start + size]
            seeds = [reply_task.seed(shard.keys[index]) for index in indices]
            contexts = [shard.items[index].context for index in indices]
            replies_by_index |= zip(indices, replies_of(self.responder, contexts, reply_task.decoder, seeds), strict=True)
        return [
            ok_row(key, reply_task.seed(key))
            | {
                "context": format_turns(example.context),
                "truth": format_turns((example.reply,)),
                "reply": format_turns((replies_by_index[index].turn,)),
                **answer_columns(replies_by_index[index].answer),
            }
            for index, (key, example) in enumerate(zip(shard.keys, shard.items, strict=True))
        ]


PreparedReplies = Prepared[ReplyTask, Example]
"""Facts: the corpus whose contexts they are; words that the model can say at most, None if it has no limit in words; how many
contexts are left out because the training split has them, empty if there are none."""


def full() -> ReplyConfig:
    """Every context of the test split."""
    return ReplyConfig()


def li2017() -> ReplyConfig:
    """Reply to contexts whose recorded replies have 5 to 20 words, as in Li et al. 2017."""
    return ReplyConfig(min_reply=5, max_reply=20)


def quick() -> ReplyConfig:
    """Take a first look: 100 contexts."""
    return ReplyConfig(limit=100)


class ReplyJob(ItemsJob[ReplyConfig, ReplyTask, Example]):
    """`parley reply`."""

    words = ("reply",)
    run_name = "replies"
    config = ReplyConfig
    presets = {"full": full, "li2017": li2017, "quick": quick}
    schema = REPLIED
    legend: Mapping[str, Metric] = MappingProxyType({**REPLIES, **NO_REPLY_METRICS})
    files = (MACHINE_FILE, HUMAN_FILE, NEXT_FILE, SUMMARY, "rows")
    num_rows_entry = NUM_CONTEXTS
    doing = "replying"

    def transcripts(self, run: RunFolder) -> TranscriptRule:
        return reply_transcript

    def prepare(self, config: ReplyConfig, path: Path, reporter: Reporter) -> PreparedReplies:
        from parley.policies.core.responders import load_responder

        config.require_device()
        config = replace(config, data_root=data_root(config.data_root))
        name, decoder = absolute_name(config.model), located(DecoderSettings.parse(config.decoder))
        responder = load_responder(name, config.chat.on(config.device))
        require_decoder(responder, decoder, config.model)
        corpus = config.corpus or (_fitted_to(name) if _is_ours(config) else "")
        if not corpus:
            what = "the model does not say which corpus it was fitted to, so there is nothing to reply to"
            raise ConfigError(what, where=config.model, fix="name one with --corpus")
        turns = config.turns or int(getattr(responder, "turns", OWN_TURNS))
        recorded = load_pairs(corpus, config.data_root, every_word=True)
        lengths: dict[str, Any] = {"min_reply": config.min_reply, "max_reply": config.max_reply}
        fitting, unseen_examples = (
            examples(recorded, config.split, turns, **lengths, unseen=unseen) for unseen in (False, True)
        )
        note = left_out(len(fitting) - len(unseen_examples), len(fitting), config.split)
        if not len(unseen_examples):
            got = f"{len(recorded.splits[config.split]):,} pairs. {note}".rstrip(". ")
            fix = "name another --split or --corpus, or change --min-reply and --max-reply"
            raise DataError(f"the {config.split} split has no reply of such a length", where=corpus, got=got, fix=fix)
        if note:
            reporter.say(note)
        chosen = drawn(unseen_examples, config.limit, config.seed, corpus)
        longest = _longest(responder) if _is_ours(config) else None
        facts = {"corpus": corpus, "longest": longest, "note": note}
        return Prepared(ReplyTask(config, name, decoder), {example.key: example for example in chosen}, facts)

    def measure(self, run: RunFolder, prepared: PreparedReplies) -> Summary:
        # Rows lie in the order of their keys.
        rows = finished(run.rows())
        after = {example.key: format_turns((example.after,)) for example in prepared.items.values() if example.after}
        for file, column in ((MACHINE_FILE, "reply"), (HUMAN_FILE, "truth")):
            _write(run.path / file, ((row["context"], row[column]) for row in rows))
        _write(run.path / NEXT_FILE, ((row["context"], after.get(row["item_key"], "")) for row in rows))
        config, facts, num = prepared.task.config, prepared.facts, len(rows)
        what = f"{num:,} {config.split} contexts, replies by {config.decoder}, seed {config.seed}."
        replied = ((row["context"], row["reply"].split(), row["truth"].split()) for row in rows if not is_no_reply(row))
        metrics = dict(reply_metrics(replied, facts["longest"]))
        if any(row["kind"] for row in rows):
            metrics |= no_reply_metrics(kinds_of_rows(rows), np.ones(num), [row["context"] for row in rows])
        without = without_line(metrics)
        return Summary(
            f"replies of {config.model} on {facts['corpus']}",
            " ".join(filter(None, [what, facts["note"], without])),
            metrics,
            {NUM_CONTEXTS: len(prepared.items)},
        )

    def present(self, result: Result, run: RunFolder) -> Result:
        share, without = result.metrics.get("commonest_share", NOTHING).value, without_line(result.metrics)
        alike = f"one reply to {share:.0%} of contexts" if share > MOST_ALIKE else ""
        return replace(result, warnings=[*filter(None, (without, alike)), *result.warnings])

    def next_commands(self, config: ReplyConfig, path: Path) -> tuple[str, ...]:
        named = {"human": HUMAN_FILE, "machine": MACHINE_FILE, "next-utterances": NEXT_FILE}
        files = [word for flag, file in named.items() for word in (f"--{flag}", display_path(path / file))]
        judge = ["parley", "evaluate", "adversarial", *files, *root_words(config.data_root)]
        return (*super().next_commands(config, path), shlex.join(judge))

    def models(self, config: ReplyConfig) -> Mapping[str, str]:
        named = DecoderSettings.parse(config.decoder).models
        return {"model": config.model, **{f"decoder {option}": name for option, name in named.items()}}


def _longest(ours: Any) -> int | None:
    """Return the most words of a responder of Parley's; None if it says pieces of words."""
    model = ours.model
    return None if model.vocabulary.merges is not None else int(model.sizes.max_reply) - 1


def _is_ours(config: ReplyConfig) -> bool:
    return ".py:" not in config.model and not is_chat_address(config.model)


def _fitted_to(name: str) -> str:
    corpus = json.loads((model_inside(fetched_model(name)) / CONFIG).read_text(encoding="utf-8"))["provenance"].get("corpus")
    return corpus if isinstance(corpus, str) else ""


def without_line(metrics: Mapping[str, Estimate]) -> str:
    """Return a sentence on contexts without a reply, which have no line in the file; empty where there are none."""
    # The share counts equal contexts as one unit.
    lost = [metrics[name] for name in NO_REPLY_METRICS if name != NO_REPLY and name in metrics]
    if not lost:
        return ""
    what = f"{sum(kind.value for kind in lost):,.0f} of {lost[0].n:,} contexts got no reply, and have no line in {MACHINE_FILE}"
    return f"{what} ({kinds_told(metrics)})"


def tabbed_line(context: Turns, reply: str) -> str:
    """`turn TAB ... TAB source TAB reply`; empty where the reply has no word: marks are none, and `<eot>` ends turns."""
    words = [word for word in reply.split() if word != EOT]
    return "\t".join([*(format_turns((turn,)) for turn in context), " ".join(words)]) if has_word(words) else ""


def _write(path: Path, replies: Iterable[tuple[str, str]]) -> None:
    """Write one file of contexts and their replies, a line each."""
    lines = (tabbed_line(parse_turns(context), reply) for context, reply in replies)
    try:
        with whole_file(path) as file:
            file.writelines(f"{line}\n".encode() for line in lines if line)
    except OSError as error:
        fix = "free some space, then the same command writes it"
        raise RunError("the replies cannot be written", where=path, got=error.strerror, fix=fix) from None


REPLY = ReplyJob()
