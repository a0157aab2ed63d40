"""Files of a model's replies and of the recorded ones: what stands in them, and that it depends on the settings alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.stats.statistics import REPLIES, distinct, reply_metrics
from parley.engine.core.verbs.job import Silent
from parley.engine.responders.reply import HUMAN_FILE, MACHINE_FILE, NEXT_FILE, REPLY, ReplyConfig, tabbed_line
from parley.envs.core.errors import CheckpointError, ConfigError, DataError
from parley.envs.corpora.pairs.compiled import RepliedPair, load_pairs, parse_replied
from parley.envs.corpora.pairs.contexts import examples, with_eot
from parley.envs.corpora.pairs.turns import format_turns, parse_turns, turn_words
from parley.policies.core.responder import DecoderSettings
from parley.policies.core.responders import load_responder
from parley.policies.seq2seq.model import Seq2Seq
from parley.policies.seq2seq.scoring import save_model
from parley.policies.seq2seq.settings import Seq2SeqSizes
from tests.engine.core.verbs.made_up import Notes, rows

OWN = """
class Silence:
    def respond(self, contexts):
        return [context[-1] if len(context) > 1 else ((),) for context in contexts]
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random model of the help desk that answers two turns."""
    folder = tmp_path_factory.mktemp("model")
    words = load_pairs("helpdesk", vocabulary=120).vocabulary
    made = Seq2Seq(with_eot(words), Seq2SeqSizes(embed=6, hidden=8, max_source=20, max_reply=8, turns=2))
    generator = torch.Generator().manual_seed(1)
    for parameter in made.parameters():
        parameter.data.uniform_(-2, 2, generator=generator)
    save_model(made, folder, {"corpus": "helpdesk"})
    return str(folder)


@pytest.fixture
def asked(model: str) -> ReplyConfig:
    return ReplyConfig(model=model, limit=12, batch_size=5, shard_size=7)


def lines(run: Path, name: str) -> list[list[str]]:
    return [line.split("\t") for line in (run / name).read_text().splitlines()]


@pytest.mark.usefixtures("workers_here")
def test_two_workers_write_the_rows_of_none(tmp_path: Path, asked: ReplyConfig) -> None:
    for workers in (0, 2):
        REPLY.run(replace(asked, workers=workers), tmp_path / str(workers), Silent())
    assert rows(tmp_path / "2") == rows(tmp_path / "0")


def test_the_files_are_the_models_and_the_recorded_replies_to_the_same_contexts(tmp_path: Path, asked: ReplyConfig) -> None:
    asked = replace(asked, limit=0, min_reply=5, max_reply=9)
    result = REPLY.run(asked, tmp_path / "run", Silent())
    recorded = examples(load_pairs("helpdesk", every_word=True), "test", 2, min_reply=5, max_reply=9, unseen=True)
    assert 0 < len(recorded) < len(examples(load_pairs("helpdesk", every_word=True), "test", 2))
    assert all(5 <= len([word for word in turn_words(each.reply) if word != "<eou>"]) <= 9 for each in recorded)
    columns = [[format_turns((turn,)) for turn in each.context] for each in recorded]
    assert lines(tmp_path / "run", HUMAN_FILE) == [
        [*context, format_turns((each.reply,))] for context, each in zip(columns, recorded, strict=True)
    ]
    known = [(context, each.after) for context, each in zip(columns, recorded, strict=True) if each.after]
    assert 0 < len(known) < len(recorded)
    assert lines(tmp_path / "run", NEXT_FILE) == [[*context, format_turns((after,))] for context, after in known]
    said = load_responder(asked.model).respond([each.context for each in recorded])
    replied = [[*context, format_turns((reply,))] for context, reply in zip(columns, said, strict=True) if any(reply[0])]
    assert lines(tmp_path / "run", MACHINE_FILE) == replied
    assert list(result.metrics) == list(REPLIES)
    lengths = [len(row["reply"].split()) for row in rows(tmp_path / "run")]
    assert result.metrics["limit_share"].value == lengths.count(7) / len(lengths) > 0, "it says no more than 7 words"
    assert max(lengths) == 7
    assert [path.name for path in result.files][:3] == [MACHINE_FILE, HUMAN_FILE, NEXT_FILE]
    assert max(map(len, columns)) == 2


@pytest.mark.parametrize("decoder", ["sample:1.5", "diverse:3,rate=1,repeat=2"])
def test_replies_depend_neither_on_batches_nor_on_shards(tmp_path: Path, asked: ReplyConfig, decoder: str) -> None:
    asked = replace(asked, decoder=decoder)
    REPLY.run(asked, tmp_path / "run", Silent())
    REPLY.run(replace(asked, batch_size=1, shard_size=3), tmp_path / "again", Silent())
    assert rows(tmp_path / "run") == rows(tmp_path / "again")
    assert (tmp_path / "run" / MACHINE_FILE).read_text() == (tmp_path / "again" / MACHINE_FILE).read_text()
    other = REPLY.run(replace(asked, seed=2), tmp_path / "other", Silent())
    assert other.metrics["reply_words"].n == 12


def test_what_says_nothing_is_counted_and_no_line(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    asked = ReplyConfig(model=f"{tmp_path / 'own.py'}:Silence", corpus="helpdesk", limit=20)
    result = REPLY.run(asked, tmp_path / "run", Silent())
    silent = sum(not row["reply"] for row in rows(tmp_path / "run"))
    assert 0 < silent < 20
    assert result.metrics["empty_share"].value == silent / 20
    assert len(lines(tmp_path / "run", MACHINE_FILE)) == 20 - silent
    assert len(lines(tmp_path / "run", HUMAN_FILE)) == 20


def test_contexts_that_stand_in_train_are_left_out_and_counted(tmp_path: Path, asked: ReplyConfig) -> None:
    notes = Notes()
    REPLY.run(replace(asked, limit=0, turns=1), tmp_path / "run", notes)
    sources = {each.context for each in examples(load_pairs("helpdesk", every_word=True), "train", 1)}
    replied = [parse_turns(row["context"]) for row in rows(tmp_path / "run")]
    assert not sources & set(replied)
    told = f"{260 - len(replied)} of 260 test pairs are left out, for their contexts stand in the training split."
    assert told in notes.said
    assert told in (tmp_path / "run" / SUMMARY).read_text()


def test_mistakes_are_named_and_no_run_is_made(tmp_path: Path, asked: ReplyConfig) -> None:
    (tmp_path / "own.py").write_text(OWN)
    own = f"{tmp_path / 'own.py'}:Silence"
    for config, error, message in (
        (replace(asked, model=own), ConfigError, r"does not say which corpus(.|\n)*--corpus"),
        (replace(asked, model=own, corpus="helpdesk", decoder="beam"), ConfigError, r"no decoder or option beam"),
        (replace(asked, decoder="mmi:backward=runs/nothing"), CheckpointError, r"decoder's backward needs a checkpoint"),
        (replace(asked, min_reply=900), DataError, r"no reply of such a length(.|\n)*--min-reply"),
    ):
        with pytest.raises(error, match=message):
            REPLY.run(config, tmp_path / "run", Silent())
        assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match="no decoder is called"):
        replace(asked, decoder="gredy")


def test_models_that_a_decoder_names_are_part_of_the_run(asked: ReplyConfig) -> None:
    config = replace(asked, decoder=f"mmi:backward={asked.model}")
    assert REPLY.models(config) == {"model": asked.model, "decoder backward": asked.model}
    assert DecoderSettings.parse(config.decoder).backward == asked.model


def test_figures_are_what_they_say() -> None:
    replies = [["i", "do"], ["i", "do"], [], ["i", "<unk>", "do"]]
    found = reply_metrics(zip("abcd", replies, [["yes"]] * 4, strict=True))
    assert (found["reply_words"].value, found["recorded_words"].value) == (7 / 4, 1)
    assert (found["distinct_1"].value, found["distinct_2"].value) == (3 / 7, 3 / 4)
    assert (found["commonest_share"].value, found["unknown_share"].value, found["empty_share"].value) == (0.5, 0.25, 0.25)
    assert distinct([["a"]], 2).n == 0
    assert "limit_share" not in found, "such as of a chat model"
    assert reply_metrics(zip("abcd", replies, [["yes"]] * 4, strict=True), limit=3)["limit_share"].value == 1 / 4


def test_a_mark_between_turns_is_no_word_of_a_reply() -> None:
    context = ((("who", "?"),), (("me",),))
    line = tabbed_line(context, "<eot> and <eot> you ?")
    assert parse_replied(line) == [RepliedPair((("who", "?"), ("me",)), ("and", "you", "?"))]
    assert tabbed_line(context, "<eot>") == tabbed_line(context, "") == ""


@pytest.mark.parametrize("marks", [["<eou>"], ["<eou>", "<eou>"], ["<eot>"], ["<eot>", "<eou>"]])
def test_a_reply_of_marks_alone_is_no_line_and_counted(marks: list[str]) -> None:
    assert tabbed_line(((("hi",),),), " ".join(marks)) == "", "nobody could read it"
    assert reply_metrics([("a", marks, ["yes"]), ("b", ["i", "<eou>"], ["yes"])])["empty_share"].value == 1 / 2
