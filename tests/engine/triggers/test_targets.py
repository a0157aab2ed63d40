from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from parley.engine.core.runs.documents import write_document
from parley.engine.triggers.targets import (
    TEMPLATES,
    Target,
    TargetList,
    beyond,
    from_file,
    malicious,
    normal,
    outside,
    packed,
    prototypes,
    random_targets,
    random_words,
)
from parley.engine.triggers.verbs.models import _plain, kept_targets, num_targets, save_targets
from parley.engine.triggers.victims import Seq2SeqVictim
from parley.envs.core.errors import DataError
from parley.envs.corpora.pairs.tokens import tokenise
from parley.envs.corpora.pairs.vocabulary import EOS_ID, SPECIALS, PairVocabulary
from parley.policies.seq2seq.decoding import greedy
from parley.policies.seq2seq.model import Seq2Seq
from parley.policies.seq2seq.settings import Seq2SeqSizes

EVERY_WORD = sorted({word for words in prototypes() for word in words} | {"well", "oh", "i", "think", "."})


def vocabulary(*words: str) -> PairVocabulary:
    return PairVocabulary((*SPECIALS, *words))


def sentences(targets: TargetList) -> list[str]:
    return [" ".join(target.words) for target in targets.targets]


def test_prototypes_are_enough_short_distinct_and_plain() -> None:
    written = prototypes()
    assert len(set(written)) == len(written) >= 200
    assert max(map(len, written)) <= 7
    assert all(word.isascii() and word.isalpha() and word.islower() for words in written for word in words)


def test_prototypes_are_as_the_corpora_are_tokenised() -> None:
    assert all(tokenise(" ".join(words)) == list(words) for words in prototypes())


def test_a_thousand_malicious_targets_are_200_prototypes_in_every_template() -> None:
    found = malicious(outside(vocabulary(*EVERY_WORD)))
    first = " ".join(prototypes()[0])
    assert len(found.targets) == 1000
    assert sentences(found)[: len(TEMPLATES)] == [first, f"well {first}", f"oh {first}", f"i think {first}", f"{first} ."]
    assert found.skipped == ()


def test_prototypes_beyond_the_200_stand_in_for_those_a_vocabulary_lacks() -> None:
    lacking = [word for word in EVERY_WORD if word != "stupid"]
    found = malicious(outside(vocabulary(*lacking)))
    assert len(found.targets) == 1000
    assert not any("stupid" in target.words for target in found.targets)
    assert found.skipped
    for sentence, unknown, *_ in found.skipped:
        assert "stupid" in sentence.split()
        assert unknown == ("stupid",)


def test_a_template_is_skipped_alone_when_its_words_are_unknown() -> None:
    found = malicious(outside(vocabulary(*(word for word in EVERY_WORD if word != "oh"))))
    openings = Counter(sentence.split()[0] for sentence, *_ in found.skipped)
    assert openings == {"oh": len(found.skipped)}
    assert all(unknown == ("oh",) for _, unknown, *_ in found.skipped)


def test_keys_name_the_same_sentence_for_every_vocabulary() -> None:
    rich = {target.key: target.words for target in malicious(outside(vocabulary(*EVERY_WORD)), num=5000).targets}
    few = vocabulary(*{*EVERY_WORD[::2], "you", "are", "a", "fool"})
    poor = {target.key: target.words for target in malicious(outside(few)).targets}
    assert 0 < len(poor) < len(rich)
    assert all(rich[key] == words for key, words in poor.items())
    assert list(rich) == sorted(rich)


def test_random_targets_are_distinct_sequences_of_frequent_words() -> None:
    many = [f"w{number}" for number in range(1500)]
    found = random_targets(vocabulary(*many), seed=1)
    assert len(set(sentences(found))) == 500
    used = {word for target in found.targets for word in target.words}
    assert used <= set(many[:1000])
    lengths = Counter(len(target.words) for target in found.targets)
    assert sorted(lengths) == list(range(1, 9))
    assert min(lengths.values()) > 30
    assert sentences(random_targets(vocabulary(*many), seed=1)) == sentences(found)
    assert sentences(random_targets(vocabulary(*many), seed=2)) != sentences(found)


def test_many_targets_take_little_memory_and_are_written_as_a_whole_document_is(tmp_path: Path) -> None:
    words = [f"word{number}" for number in range(50)]
    for targets in (
        random_words(words, 1, lambda words: (), 9),
        TargetList('a "targets": {}', packed([Target("a", ("\u00e9\n", '"')), Target("b", ("x",), "ask {}")])),
    ):
        save_targets(targets, tmp_path)
        text = (tmp_path / "targets.json").read_text(encoding="utf-8")
        write_document(tmp_path / "whole.json", _plain(targets))
        assert text == (tmp_path / "whole.json").read_text(encoding="utf-8")
        assert kept_targets(tmp_path) == targets
        assert num_targets(tmp_path) == len(targets.targets)

    def peak(made: Callable[[TargetList], object]) -> int:
        gc.collect()
        tracemalloc.start()
        made(random_words(words, 1, lambda words: (), 3000))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    plain = peak(lambda targets: write_document(tmp_path / "whole.json", _plain(replace(targets, targets=[*targets.targets]))))
    assert peak(lambda targets: save_targets(targets, tmp_path)) < plain / 3


def test_few_words_give_all_their_sequences() -> None:
    found = random_targets(vocabulary("a"), seed=0)
    assert sorted(sentences(found)) == [" ".join("a" * length) for length in range(1, 9)]


def test_a_file_holds_one_sentence_a_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("You don't!\n\nyou are\r\nyou do n't !\nyou flew <unk>\n")
    found = from_file(path, outside(vocabulary("you", "do", "n't", "!", "are")))
    assert found.name == "mine"
    assert sentences(found) == ["you do n't !", "you are"]
    assert found.skipped == (("you flew <unk>", ("flew", "<unk>"), False, False),)
    assert [target.key for target in found.targets] == ["mine-000000", "mine-000001"]


def test_lines_of_a_file_end_at_line_feeds_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "mine.txt"
    path.write_bytes("\ufeffsure thing\x0cand more\r\ncaf\u2028e\n\x85\nsure thing\x0cand more\n".encode())
    found = from_file(path, lambda words: (), words_of=lambda line: [line])
    assert sentences(found) == ["sure thing\x0cand more", "caf\u2028e", "\x85"]
    assert caplog.messages == ["1 targets of 'mine' repeat others, which count once"]


def test_a_model_may_know_its_words_in_a_way_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("You don't!\nyou DO\n")
    found = from_file(path, lambda words: tuple(word for word in words if word.isupper()), words_of=str.split)
    assert sentences(found) == ["You don't!"]
    assert found.skipped == (("you DO", ("DO",), False, False),)


def test_strict_names_line_and_words(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("you are\nyou sing and dance\n")
    with pytest.raises(DataError, match=r"mine\.txt:2(.|\n)*got:   not in the vocabulary: sing, dance(.|\n)*--strict"):
        from_file(path, outside(vocabulary("you", "are", "and")), strict=True)


@pytest.mark.parametrize(("content", "message"), [(b"", "no sentence"), (b" \n\n", "no sentence"), (b"\xff", "not UTF-8")])
def test_a_file_without_sentences_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "mine.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        from_file(path, outside(vocabulary("you")))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        from_file(tmp_path / "mine.txt", outside(vocabulary("you")))


def test_a_list_that_no_word_of_fits_is_refused_with_the_reason() -> None:
    with pytest.raises(DataError, match=r"'malicious' is empty(.|\n)*not in the vocabulary"):
        malicious(outside(vocabulary("zebra"))).require_some()


@pytest.fixture(scope="module")
def model() -> Seq2Seq:
    """A model whose likeliest replies are several, sometimes hold `<unk>` and sometimes do not end."""
    model = Seq2Seq(vocabulary(*"abcdefghijkl"), Seq2SeqSizes(embed=6, hidden=8, max_source=5, max_reply=6))
    generator = torch.Generator().manual_seed(17)
    model.initialise(generator)
    for name, parameter in model.named_parameters():
        parameter.data.mul_(1 if "bias" in name else 25 if "embedding" in name else 7)
    model.output.bias.data[EOS_ID] += 1
    return model.eval()


def sources(num: int = 60) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.integers(len(SPECIALS), 17, size=4) for _ in range(num)]


def test_normal_targets_are_the_distinct_likeliest_replies_in_corpus_order(model: Seq2Seq) -> None:
    replies = [" ".join(model.vocabulary.decode(reply)) for reply in greedy(model, sources(), beyond=1)]
    distinct = [reply for reply in dict.fromkeys(replies) if reply and not set(reply.split()) & set(SPECIALS)]
    assert len(distinct) < len(set(replies)) < len(replies), "some are repeated and some hold <unk>"
    distinct = [reply for reply in distinct if len(reply.split()) < model.sizes.max_reply]
    found = normal(model, sources(), batch_size=7)
    assert sentences(found) == distinct
    assert sentences(normal(model, sources(), 3)) == distinct[:3]
    assert all(set(sentence.split()) & set(SPECIALS) for sentence, _, too_long, _ in found.skipped if not too_long)


@pytest.mark.parametrize("t_out", [None, -6.0])
def test_normal_targets_are_replies_that_the_model_ends_itself(model: Seq2Seq, t_out: float | None) -> None:
    longest = 0
    for max_reply in (3, 4, 6):
        short = Seq2Seq(model.vocabulary, replace(model.sizes, max_reply=max_reply)).eval()
        short.load_state_dict(model.state_dict())
        found = normal(short, sources(), t_out=t_out)
        cut = [sentence for sentence, _, too_long, _ in found.skipped if too_long]
        assert cut, "the longest reply cuts some"
        victim = Seq2SeqVictim(short)
        said = {" ".join(short.vocabulary.decode(reply)) for reply in greedy(short, sources())}
        for sentence in sentences(found):
            assert len(victim.target(sentence)) <= victim.longest_reply
            longest = max(longest, len(sentence.split()) + 1 - max_reply)
        if t_out is None:
            assert set(sentences(found)) <= said
            ended = greedy(short, sources(), beyond=20)
            assert set(sentences(found)) <= {" ".join(short.vocabulary.decode(reply)) for reply in ended}
    assert longest == 0, "a reply that ends just in time is one"


def test_sentences_that_are_longer_than_replies_are_set_aside_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("a b c\na b c d\nz z z z\n")
    known = outside(vocabulary(*"abcd"))
    found = from_file(path, known, too_long=beyond(4))
    assert sentences(found) == ["a b c"]
    assert found.skipped == (("a b c d", (), True, False), ("z z z z", ("z",), False, False))
    assert [each.reason for each in found.skipped] == ["longer than the model's replies", "not in the vocabulary: z"]
    assert "'a b c d'" in caplog.text
    with pytest.raises(DataError, match=r"mine\.txt:2(.|\n)*longer than the model's replies"):
        from_file(path, known, too_long=beyond(4), strict=True)
    assert all(len(target.words) < 4 for target in random_targets(vocabulary(*"abcd"), seed=1, longest=3).targets)
    few = malicious(outside(vocabulary(*EVERY_WORD)), too_long=beyond(4))
    assert few.targets
    assert all(len(target.words) < 4 for target in few.targets)


def test_no_source_is_read_beyond_what_is_needed(model: Seq2Seq) -> None:
    read = []
    normal(model, (read.append(number) or source for number, source in enumerate(sources())), 2, batch_size=5)  # type: ignore[func-returns-value]
    assert len(read) < 60


def test_drawn_normal_targets_depend_on_the_seed_and_not_on_the_batch(model: Seq2Seq) -> None:
    drawn = normal(model, sources(), t_out=-3.0, seed=1, batch_size=60)
    assert sentences(normal(model, sources(), t_out=-3.0, seed=1, batch_size=7)) == sentences(drawn)
    assert sentences(normal(model, sources(), t_out=-3.0, seed=2)) != sentences(drawn)
    assert sentences(normal(model, sources())) != sentences(drawn)
    assert sentences(normal(model, sources(), t_out=-0.5, seed=1)) != sentences(drawn), "the bar counts"


def test_one_source_twice_is_drawn_twice(model: Seq2Seq) -> None:
    assert len(normal(model, sources()[:1] * 30, t_out=-20.0).targets) > 5
