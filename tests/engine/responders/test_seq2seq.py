"""Training of sequence-to-sequence and language models as runs: what they leave, that they go on exactly, and mistakes."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import PREDICTION, READING, TEXT
from parley.engine.core.verbs.job import Silent
from parley.engine.generation.verbs.minmax import MINMAX_REPLIES
from parley.engine.responders import seq2seq
from parley.engine.responders.reply import REPLY
from parley.engine.responders.seq2seq import TRAIN_LM, TRAIN_SEQ2SEQ, TrainLMConfig, TrainSeq2SeqConfig
from parley.engine.triggers.verbs.config import TriggerConfig
from parley.engine.triggers.verbs.models import open_models
from parley.envs.core.errors import CheckpointError, ConfigError, DataError, RunError
from parley.envs.corpora.pairs.compiled import Ragged, load_pairs
from parley.envs.corpora.pairs.contexts import examples
from parley.envs.corpora.pairs.turns import context_words, turn_words
from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.policies.core.fitting.batches import evaluate
from parley.policies.core.responders import load_responder
from parley.policies.core.settings import FitConfig
from parley.policies.seq2seq.decoding import Seq2SeqResponder, greedy
from parley.policies.seq2seq.model import PairExamples, SentenceExamples
from parley.policies.seq2seq.scoring import (
    LANGUAGE_MODEL,
    SEQ2SEQ,
    build_seq2seq,
    load_backward,
    load_language_model,
    load_seq2seq,
    save_model,
    threshold,
)
from parley.policies.seq2seq.settings import LanguageModelSizes, Seq2SeqSizes
from tests.engine.core.verbs.made_up import Notes, assert_equal_weights, die_before_event, kill_at, timeless_events

FIT = FitConfig(learning_rate=0.02, batch_size=8, max_epochs=3, decay_epochs=1)
WORDS = ("red", "green", "blue", "grey", "brown")


def asked(corpus: str, **changes: object) -> TrainSeq2SeqConfig:
    settings = {"corpus": corpus, "sizes": Seq2SeqSizes(embed=8, hidden=8), "fit": FIT, **changes}
    return TrainSeq2SeqConfig(**settings)  # type: ignore[arg-type]  # settings of any kind, by name


def test_a_limit_trains_on_the_first_pairs(tmp_path: Path, corpus: str) -> None:
    notes = Notes()
    result = TRAIN_SEQ2SEQ.run(asked(corpus, limit=8, fit=replace(FIT, max_epochs=1)), tmp_path / "run", notes)
    assert notes.stages == [("epoch 1", 1, "batches"), ("measuring the model", 0, "")]
    assert result.metrics["test_nll"].n == 3


def test_it_leaves_a_model_and_its_figures(tmp_path: Path, corpus: str) -> None:
    notes = Notes()
    result = TRAIN_SEQ2SEQ.run(asked(corpus), tmp_path / "run", notes)
    assert list(result.metrics) == [name for name in PREDICTION | TEXT | READING if name in result.metrics]
    assert set(result.metrics) == set(PREDICTION | TEXT | READING)
    for split, size in (("test", 3), ("validation", 2)):
        loss, perplexity = result.metrics[f"{split}_nll"], result.metrics[f"{split}_ppl"]
        assert perplexity.value == pytest.approx(math.exp(loss.value))
        assert loss.low <= loss.value <= loss.high
        assert loss.n == size
    assert threshold(tmp_path / "run", SEQ2SEQ) == pytest.approx(-result.metrics["test_nll"].value)
    assert load_seq2seq(tmp_path / "run").vocabulary.digest == load_pairs(corpus).vocabulary.digest
    epochs = [event for event in RunFolder.load(tmp_path / "run").events() if event["kind"] == "epoch"]
    assert [epoch["stage"] for epoch in epochs] == ["full", "full", "decay"]
    assert notes.stages[:3] == [(f"epoch {number}", 3, "batches") for number in (1, 2, 3)]
    assert sum("training perplexity" in line for line in notes.said) == len(epochs)
    assert all(path.exists() for path in result.files)
    assert f"parley train lm --corpus {corpus}" in result.next_commands
    assert f"parley search quick --model {tmp_path / 'run'}" in result.next_commands


def test_what_contexts_tell_is_the_loss_behind_others_less_the_own(tmp_path: Path, corpus: str) -> None:
    config = TrainSeq2SeqConfig(corpus=corpus, sizes=Seq2SeqSizes(embed=8, hidden=8), fit=FIT)
    found = TRAIN_SEQ2SEQ.run(config, tmp_path / "run", Silent()).metrics["context_gain"]
    model, test = load_seq2seq(tmp_path / "run"), load_pairs(corpus).splits["test"]
    others = replace(test, pairs=np.stack([test.pairs[[2, 0, 1], 0], test.pairs[:, 1]], axis=1))
    own, other = (evaluate(model, PairExamples(split, model.sizes)).nll for split in (test, others))
    assert found.value == pytest.approx(other - own, abs=1e-6)
    assert found.value != 0
    assert found.n == 3


def test_a_language_model_leaves_the_same(tmp_path: Path, corpus: str) -> None:
    config = TrainLMConfig(corpus=corpus, sizes=LanguageModelSizes(embed=8, hidden=8), fit=FIT)
    result = TRAIN_LM.run(config, tmp_path / "run", Silent())
    assert set(result.metrics) == set(PREDICTION | TEXT)
    assert threshold(tmp_path / "run", LANGUAGE_MODEL) == pytest.approx(-result.metrics["test_nll"].value)
    model = load_language_model(tmp_path / "run")
    assert model.vocabulary.digest == load_pairs(corpus).vocabulary.digest
    assert result.metrics["test_nll"].n == len(load_pairs(corpus).splits["test"].pairs), "two utterances a dialogue"


def test_a_language_model_of_two_turns_is_fitted_to_contexts(tmp_path: Path) -> None:
    lines = [f"{word}\tgo on\ngo on\t{word} then\n" for word in WORDS]
    for split in ("train", "val", "test"):
        (tmp_path / f"{split}.tsv").write_text("".join(lines))
    sizes = LanguageModelSizes(embed=8, hidden=8, turns=2, max_length=4)
    result = TRAIN_LM.run(TrainLMConfig(corpus=str(tmp_path), sizes=sizes, fit=FIT), tmp_path / "run", Silent())
    assert "2 turns of context" in result.title
    assert "--set sizes.turns=2 --set sizes.max_source=4" in result.next_commands[0]
    model, corpus = load_language_model(tmp_path / "run"), load_pairs(str(tmp_path))
    assert model.vocabulary.words == (*corpus.vocabulary.words, "<eot>")
    # Every second reply follows two turns, of which the newest three words are read.
    read = [f"{word}" if number == 0 else "<eot> go on" for word in WORDS for number in (0, 1)]
    texts = [model.vocabulary.encode(text.split()) for text in read]
    examples = SentenceExamples(Ragged(np.concatenate(texts), np.cumsum([0, *map(len, texts)])), model.sizes)
    assert evaluate(model, examples).nll == pytest.approx(result.metrics["test_nll"].value)
    assert result.metrics["test_nll"].n == len(WORDS), "two replies a dialogue"


def test_the_vocabulary_is_as_large_as_asked_for(tmp_path: Path, corpus: str) -> None:
    TRAIN_SEQ2SEQ.run(asked(corpus, vocabulary=8), tmp_path / "run", Silent())
    assert len(load_seq2seq(tmp_path / "run").vocabulary) == 8


def test_a_model_of_two_turns_is_fitted_to_what_it_is_asked_later(tmp_path: Path) -> None:
    lines = [f"{word}\tgo on\ngo on\t{word}\n" for word in WORDS]
    for split in ("train", "val", "test"):
        (tmp_path / f"{split}.tsv").write_text("".join(lines))
    sizes = Seq2SeqSizes(embed=8, hidden=8, turns=2)
    result = TRAIN_SEQ2SEQ.run(asked(str(tmp_path), sizes=sizes), tmp_path / "run", Silent())
    judge = f"parley train lm --corpus {tmp_path} --set sizes.turns=2 --set sizes.max_length=15"
    assert result.next_commands == (f"parley evaluate robustness --model {tmp_path / 'run'}", judge)
    assert "2 turns of context" in result.title
    words = load_pairs(str(tmp_path)).vocabulary.words
    responder = load_responder(tmp_path / "run")
    assert isinstance(responder, Seq2SeqResponder)
    assert responder.model.vocabulary.words == (*words, "<eot>")
    recorded = examples(load_pairs(str(tmp_path), every_word=True), "test", turns=2)
    contexts, replies = [each.context for each in recorded], [each.reply for each in recorded]
    assert evaluate(responder.model, responder.examples(contexts, replies)).nll == pytest.approx(
        result.metrics["test_nll"].value
    )
    shorter = [context[-1:] for context in contexts]
    assert evaluate(responder.model, responder.examples(shorter, replies)).nll != pytest.approx(
        result.metrics["test_nll"].value
    )
    about = SEQ2SEQ.provenance(tmp_path / "run")
    found = {name: about[name] for name in ("corpus", "vocabulary", "turns")}
    assert found == {"corpus": str(tmp_path), "vocabulary": len(words), "turns": 2}


def test_a_backward_model_is_fitted_to_the_same_pairs_the_other_way_round(tmp_path: Path) -> None:
    lines = [f"{word}\tgo on please now\ngo on please now\t{word} then\n" for word in WORDS]
    for split in ("train", "val", "test"):
        (tmp_path / f"{split}.tsv").write_text("".join(lines))
    sizes = Seq2SeqSizes(embed=8, hidden=8, turns=2, max_source=4, max_reply=9)
    asks = asked(str(tmp_path), sizes=sizes, backward=True, min_reply=2)
    result = TRAIN_SEQ2SEQ.run(asks, tmp_path / "run", Silent())
    assert "backward" in result.title
    assert f"--decoder mmi:backward={tmp_path / 'run'}" in result.next_commands[0]
    model = load_backward(tmp_path / "run")
    assert (model.model.sizes.max_source, model.model.sizes.max_reply) == (9, 4)
    corpus = load_pairs(str(tmp_path), every_word=True)
    recorded = examples(corpus, "test", turns=2, min_reply=2)
    assert len(recorded) == len(examples(corpus, "test", turns=2)) == 10
    contexts, replies = [context_words(each.context) for each in recorded], [turn_words(each.reply) for each in recorded]
    nats = model.nats_per_word(contexts, replies)
    words = [min(len(context), 3) + 1 for context in contexts]
    assert (-nats * words).sum() / sum(words) == pytest.approx(result.metrics["test_nll"].value)
    # What is predicted of a longer context are its newest words.
    assert model.nats_per_word([["a", "b", "c", "d"]], [["red"]]) == model.nats_per_word([["x", "b", "c", "d"]], [["red"]])


def test_replies_outside_the_bounds_are_left_out(tmp_path: Path) -> None:
    lines = [f"{word}\tone\n{word} {word}\tone two\n{word} a\tone two three\n" for word in WORDS]
    for split in ("train", "val", "test"):
        (tmp_path / f"{split}.tsv").write_text("".join(lines))
    result = TRAIN_SEQ2SEQ.run(asked(str(tmp_path), min_reply=2, max_reply=2), tmp_path / "run", Silent())
    assert result.metrics["test_nll"].n == 5
    assert not (tmp_path / "none").exists()
    with pytest.raises(DataError, match="nothing to train and measure on"):
        TRAIN_SEQ2SEQ.run(asked(str(tmp_path), min_reply=9), tmp_path / "none", Silent())


def test_searches_refuse_models_that_they_do_not_know(tmp_path: Path) -> None:
    plain = Seq2SeqSizes(embed=4, hidden=4)
    fed = replace(plain, attention="dot", input_feeding=True, layers=2)
    for sizes, got in ((plain.exchanged, "a backward model"), (fed, "a model with input feeding")):
        save_model(build_seq2seq(PairVocabulary.build([WORDS], None), sizes), tmp_path / "checkpoint", {"test_nll": 1.0})
        with pytest.raises(ConfigError, match=rf"searches know models(.|\n)*{got}"):
            open_models(TriggerConfig(model=str(tmp_path)))


def test_a_finished_training_says_so_and_trains_no_more(tmp_path: Path, corpus: str) -> None:
    first = TRAIN_SEQ2SEQ.run(asked(corpus), tmp_path / "run", Silent())
    before, notes = (tmp_path / "run" / "events.jsonl").read_bytes(), Notes()
    again = TRAIN_SEQ2SEQ.run(asked(corpus, data_root=tmp_path), tmp_path / "run", notes)
    assert (again.metrics, again.title, again.files) == (first.metrics, first.title, first.files)
    assert notes.said == [f"{tmp_path / 'run'} is finished: nothing is left to do"]
    assert (tmp_path / "run" / "events.jsonl").read_bytes() == before


def test_a_killed_training_resumes_to_the_same_weights(tmp_path: Path, corpus: str) -> None:
    config = asked(corpus, fit=replace(FIT, max_epochs=12, patience=11))
    flags = ["--corpus", corpus, "--set", "sizes.embed=8", "--set", "sizes.hidden=8", "--vocabulary", "10000"]
    flags += [f"--set=fit.{name}={getattr(config.fit, name)}" for name in vars(FIT)]
    config = replace(config, vocabulary=10_000)
    TRAIN_SEQ2SEQ.run(config, tmp_path / "whole", Silent())
    kill_at('events("killed", "epoch") == 3', "train", "seq2seq", *flags, "--run", "killed", folder=tmp_path)
    notes = Notes()
    TRAIN_SEQ2SEQ.run(config, tmp_path / "killed", notes)
    assert notes.said[0].startswith("resumed after epoch ")
    assert_equal_weights(tmp_path / "killed", tmp_path / "whole")


@pytest.mark.parametrize("number", [2, 3])
def test_an_epoch_that_was_saved_and_not_logged_is_logged_once(
    tmp_path: Path, corpus: str, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    config = asked(corpus)
    TRAIN_SEQ2SEQ.run(config, tmp_path / "whole", Silent())
    whole = timeless_events(tmp_path / "whole", "epoch")
    assert [event["number"] for event in whole] == [1, 2, 3]
    die_before_event(monkeypatch, TRAIN_SEQ2SEQ, config, tmp_path / "killed", "epoch", number)
    assert timeless_events(tmp_path / "killed", "epoch") == whole[: number - 1]
    TRAIN_SEQ2SEQ.run(config, tmp_path / "killed", Silent())
    assert timeless_events(tmp_path / "killed", "epoch") == whole
    assert_equal_weights(tmp_path / "killed", tmp_path / "whole")


def test_mistakes_are_named_and_no_run_is_made(tmp_path: Path, corpus: str) -> None:
    with pytest.raises(ConfigError, match="did you mean 'helpdesk'"):
        TRAIN_SEQ2SEQ.run(asked("helpdsk"), tmp_path / "run", Silent())
    with pytest.raises(DataError, match="not complete"):
        TRAIN_SEQ2SEQ.run(asked("ubuntu_irc", data_root=tmp_path / "nothing"), tmp_path / "run", Silent())
    with pytest.raises(ConfigError, match=r"--device(.|\n)*warp"):
        TRAIN_SEQ2SEQ.run(asked(corpus, device="warp"), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_another_model_in_the_same_folder_is_an_error(tmp_path: Path, corpus: str) -> None:
    TRAIN_SEQ2SEQ.run(asked(corpus), tmp_path / "run", Silent())
    other = replace(asked(corpus), sizes=Seq2SeqSizes(embed=8, hidden=8, attention="none"))
    with pytest.raises(RunError, match=r"sizes\.attention: 'general' -> 'none'"):
        TRAIN_SEQ2SEQ.run(other, tmp_path / "run", Silent())


def test_a_run_says_in_which_precision_it_was_left_to_train(tmp_path: Path, corpus: str) -> None:
    TRAIN_SEQ2SEQ.run(asked(corpus), tmp_path / "run", Silent())
    TRAIN_SEQ2SEQ.run(replace(asked(corpus), fit=replace(FIT, precision="float32")), tmp_path / "set", Silent())
    (told,) = (event for event in RunFolder.load(tmp_path / "run").events() if event["kind"] == "precision")
    assert told["precision"] == SEQ2SEQ.provenance(tmp_path / "run")["precision"]
    assert SEQ2SEQ.provenance(tmp_path / "set")["precision"] == "float32"
    assert not [event for event in RunFolder.load(tmp_path / "set").events() if event["kind"] == "precision"]


def test_a_damaged_training_state_is_named(tmp_path: Path, corpus: str) -> None:
    TRAIN_SEQ2SEQ.run(asked(corpus), tmp_path / "run", Silent())
    (tmp_path / "run" / "summary.json").unlink()
    (tmp_path / "run" / "training.safetensors").write_bytes(b"not this")
    with pytest.raises(CheckpointError, match="training state is damaged"):
        TRAIN_SEQ2SEQ.run(asked(corpus), tmp_path / "run", Silent())


@pytest.mark.parametrize("job", [TRAIN_SEQ2SEQ, TRAIN_LM], ids=lambda job: job.name)
def test_presets_are_what_they_say(job: object) -> None:
    assert job in (TRAIN_SEQ2SEQ, TRAIN_LM)
    for name in ("small", "he2018", "demo"):
        config = job.presets[name]()
        widths = {"small": (200, 300), "he2018": (300, 600), "demo": (64, 96)}[name]
        assert (config.sizes.embed, config.sizes.hidden) == widths
        assert (config.vocabulary, config.corpus) == {
            "small": (10_000, "helpdesk"),
            "he2018": (30_000, "ubuntu_irc"),
            "demo": (None, "helpdesk"),
        }[name]
        assert config.fit.optimiser == ("sgd" if name == "he2018" else "adam")


def test_the_preset_of_dialogues_reads_two_turns() -> None:
    config = seq2seq.dialogue()
    assert (config.corpus, config.vocabulary, config.sizes.turns) == ("ubuntu_irc", 10_000, 2)
    assert (config.sizes.max_source, config.sizes.max_reply, config.sizes.attention) == (60, 30, "general")


def test_the_preset_of_li2017_is_the_released_generator() -> None:
    config = seq2seq.li2017()
    found = (config.sizes.embed, config.sizes.hidden, config.sizes.layers, config.sizes.turns)
    assert found == (512, 512, 2, 2)
    assert (config.sizes.attention, config.sizes.input_feeding, config.vocabulary) == ("dot", True, 25_000)
    # As released, but that gradients are divided by words and not by replies, which have about ten.
    assert config.fit.learning_rate * config.fit.clip == 5.0
    assert (config.fit.full_epochs, config.fit.max_epochs, config.fit.batch_size) == (6, 8, 128)


@pytest.mark.parametrize("preset", ["li2017", "replies"])
def test_generators_of_adversarial_training_learn_from_the_replies_that_it_is_judged_by(preset: str) -> None:
    config, trained, asked = TRAIN_SEQ2SEQ.presets[preset](), MINMAX_REPLIES.presets["li2017"](), REPLY.presets["li2017"]()
    assert (config.min_reply, config.max_reply) == (trained.min_reply, trained.longest) == (asked.min_reply, asked.max_reply)
    assert config.sizes.max_reply - 1 == config.max_reply, "it says no more either"
    assert (config.corpus, config.sizes.turns) == (trained.corpus, trained.sizes.turns)


@pytest.mark.slow
def test_the_demo_answers_the_help_desk(tmp_path: Path) -> None:
    figures = TRAIN_SEQ2SEQ.run(seq2seq.demo(), tmp_path / "run", Silent()).metrics
    assert figures["test_nll"].value < 1 < figures["context_gain"].low, "it reads what it answers"
    model, test = load_seq2seq(tmp_path / "run"), load_pairs("helpdesk").splits["test"]
    replies = greedy(model, [test.utterances[source] for source, _ in test.pairs])
    known = {tuple(test.utterances[reply].tolist()[:19]) for _, reply in test.pairs}
    assert len({tuple(reply) for reply in replies} & known) > 20, "its replies are few, or nobody's"


def test_a_corpus_without_anything_to_measure_on_is_refused_before_there_is_a_run(tmp_path: Path) -> None:
    for split, lines in (("train", "a\tb\n" * 3), ("val", ""), ("test", "a\tb\n")):
        (tmp_path / f"{split}.tsv").write_text(lines)
    with pytest.raises(DataError, match="empty: val"):
        TRAIN_SEQ2SEQ.run(TrainSeq2SeqConfig(corpus=str(tmp_path)), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_a_generator_of_replies_is_followed_by_its_discriminator_and_their_training() -> None:
    named = TRAIN_SEQ2SEQ.next_commands(TRAIN_SEQ2SEQ.presets["replies"](), Path("runs/a"))
    assert named == (
        "parley train discriminator --generator runs/a --corpus ubuntu_irc",
        "parley minmax replies --start runs/a --corpus ubuntu_irc",
    )
    backward = TRAIN_SEQ2SEQ.next_commands(replace(TRAIN_SEQ2SEQ.presets["replies"](), backward=True), Path("runs/b"))
    assert backward == ("parley minmax replies li2017 --start runs/seq2seq --backward runs/b --corpus ubuntu_irc",)
