"""Models of pieces of words: trained like those of words, asked and answering in words, refused where words are chosen."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from parley.engine.core.stats.known import TEXT
from parley.engine.core.verbs.job import Job, Silent
from parley.engine.responders.seq2seq import TRAIN_LM, TRAIN_SEQ2SEQ, TrainLMConfig, TrainSeq2SeqConfig
from parley.engine.responders.vhred import TRAIN_VHRED, TrainVhredConfig
from parley.engine.triggers.verbs.config import TriggerConfig
from parley.engine.triggers.verbs.models import open_models
from parley.envs.core.errors import ConfigError
from parley.envs.corpora.pairs.compiled import load_pairs
from parley.envs.corpora.pairs.contexts import examples
from parley.envs.corpora.pairs.vocabulary import UNK, PairVocabulary
from parley.policies.core.fitting.batches import evaluate, text_sizes
from parley.policies.core.responder import DecoderSettings
from parley.policies.core.responders import load_responder
from parley.policies.core.settings import FitConfig
from parley.policies.seq2seq.scoring import WordScores, load_language_model
from parley.policies.seq2seq.settings import LanguageModelSizes, Seq2SeqSizes
from parley.policies.vhred.settings import VhredSizes
from tests.engine.core.verbs.made_up import Notes

FIT = FitConfig(learning_rate=0.02, batch_size=64, max_epochs=1, decay_epochs=0)
SIZES = Seq2SeqSizes(embed=6, hidden=8, max_source=40, max_reply=12, turns=2)
VHRED = VhredSizes(embed=6, encoder=4, context=6, decoder=6, latent=3, score=3, readout=6, max_turn=20, max_reply=12)


def seq2seq(**changes: object) -> TrainSeq2SeqConfig:
    settings = {"subwords": 40, "limit": 60, "sizes": SIZES, "fit": FIT, **changes}
    return TrainSeq2SeqConfig(**settings)  # type: ignore[arg-type]  # settings of any kind, by name


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each kind of model, all of the same pieces."""
    folder = tmp_path_factory.mktemp("runs")
    lm = LanguageModelSizes(embed=6, hidden=8, max_length=30)
    asked: dict[str, tuple[Job, object]] = {
        "seq2seq": (TRAIN_SEQ2SEQ, seq2seq()),
        "lm": (TRAIN_LM, TrainLMConfig(subwords=40, limit=60, sizes=lm, fit=FIT)),
        "vhred": (TRAIN_VHRED, TrainVhredConfig(subwords=40, limit=60, sizes=VHRED, fit=FIT)),
    }
    for name, (job, config) in asked.items():
        job.run(config, folder / name, Silent())
    return {name: folder / name for name in asked}


def test_all_kinds_learn_the_same_pieces(runs: dict[str, Path]) -> None:
    found = [PairVocabulary.load(run / "checkpoint" / "vocabulary.json") for run in runs.values()]
    assert found[0] == found[1] == found[2]
    assert len(found[0].merges or ()) == 40


@pytest.mark.parametrize("kind", ["seq2seq", "vhred"])
def test_a_context_in_words_is_answered_in_words(runs: dict[str, Path], kind: str) -> None:
    responder = load_responder(runs[kind])
    found = examples(load_pairs("helpdesk", every_word=True), "test", 2)[:12]
    contexts = [each.context for each in found]
    # A turn of 500 words, one of signs that nobody has met, and one without a word.
    contexts += [((("package",) * 500,),), ((("☃☃", "😀"),),), ((),)]
    for decoder in ("greedy", "beam:3"):
        for reply in responder.respond(contexts, decoder=DecoderSettings.parse(decoder)):
            assert all(word and " " not in word for utterance in reply for word in utterance)
    vectors = responder.vectors(["package", "qqqq", UNK, "☃", "install"])
    assert len(vectors) == 3
    pieces = responder.model.vocabulary.encode(["package"])
    np.testing.assert_allclose(vectors[0], responder.embedding.weight.detach().numpy()[pieces].mean(0), rtol=1e-6)


def test_perplexities_are_told_by_piece_by_word_and_by_character(tmp_path: Path) -> None:
    notes = Notes()
    found = TRAIN_SEQ2SEQ.run(seq2seq(), tmp_path / "pieces", notes).metrics
    assert set(TEXT) <= set(found)
    assert any("a word of the test split takes" in line for line in notes.said)
    assert found["test_ppl_char"].value < found["test_ppl"].value < found["test_ppl_word"].value
    assert found["test_unknown"].value == 0.0
    words = TRAIN_SEQ2SEQ.run(seq2seq(subwords=None, vocabulary=60), tmp_path / "words", Silent()).metrics
    assert words["test_ppl_word"].value == pytest.approx(words["test_ppl"].value)
    assert words["test_unknown"].value > 0.05


def test_text_is_measured_as_it_is_said(runs: dict[str, Path]) -> None:
    responder = load_responder(runs["vhred"])
    # The last reply is cut within a word: eleven pieces and the end.
    said = [(("ok",),), (("try", "it"), ("☃",)), (("zyxwvutsrqponmlk",),)]
    contexts = [((("hi",),),)] * 3
    read = responder.examples(contexts, said)
    sizes, fitness = text_sizes(read, responder.model.vocabulary), evaluate(responder.model, read)
    order = np.argsort(read.num_targets, kind="stable")
    assert sizes.num_words.tolist() == np.array([2, 5, 2])[order].tolist()
    assert sizes.num_characters.tolist() == np.array([4, 10, 12])[order].tolist()
    assert sizes.num_unknown.tolist() == np.array([0, 1, 0])[order].tolist()
    assert fitness.num_targets.tolist() == read.num_targets[order].tolist()


def test_a_language_model_scores_words(runs: dict[str, Path]) -> None:
    model = load_language_model(runs["lm"])
    scores = WordScores(model).log_probabilities([("try", "package", "it"), ("ok",), ()])
    assert [len(each) for each in scores] == [4, 2, 1]
    assert all(math.isfinite(each) and each < 0 for found in scores for each in found)


def test_searches_and_generators_refuse_pieces_before_anything_loads(
    runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parley.policies.seq2seq.scoring.load_seq2seq", None)
    for lm in ("", str(runs["lm"])):
        with pytest.raises(ConfigError, match="--model needs a model that reads words") as error:
            open_models(TriggerConfig(model=str(runs["seq2seq"]), lm=lm))
        assert "trained with subwords" in str(error.value)


@pytest.mark.parametrize("subwords", [0, -1])
def test_no_merges_are_a_mistake(subwords: int) -> None:
    with pytest.raises(ConfigError, match="subwords is out of range"):
        seq2seq(subwords=subwords)


def test_a_decoder_asks_a_language_model_of_the_same_pieces(runs: dict[str, Path], tmp_path: Path) -> None:
    responder = load_responder(runs["seq2seq"])
    contexts = [((("hi",),),)]
    responder.respond(contexts, decoder=DecoderSettings.parse(f"mmi-antilm:lm={runs['lm']}"))
    other = TrainLMConfig(subwords=7, limit=60, sizes=LanguageModelSizes(embed=4, hidden=4), fit=FIT)
    TRAIN_LM.run(other, tmp_path / "lm", Silent())
    with pytest.raises(ConfigError, match="the language model reads other pieces than the model says"):
        responder.respond(contexts, decoder=DecoderSettings.parse(f"mmi-antilm:lm={tmp_path / 'lm'}"))


def test_a_text_of_signs_alone_is_learnt(tmp_path: Path) -> None:
    for split in ("train", "val", "test"):
        (tmp_path / f"{split}.tsv").write_text("😀 😂\t😂 😂 😀\n" * 3)
    config = TrainLMConfig(corpus=str(tmp_path), subwords=5, sizes=LanguageModelSizes(embed=4, hidden=4), fit=FIT)
    found = TRAIN_LM.run(config, tmp_path / "run", Silent()).metrics
    assert found["test_unknown"].value == 0.0
    assert found["test_ppl_word"].value == pytest.approx(found["test_ppl"].value)
    # No pair of characters is there to merge.
    assert PairVocabulary.load(tmp_path / "run" / "checkpoint" / "vocabulary.json").merges == ()
