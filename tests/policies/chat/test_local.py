"""Chat models whose weights are here: what they answer, how likely a reply is, and what is refused."""

from __future__ import annotations

import inspect
import json
import math
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from parley.envs.core.errors import CheckpointError, ConfigError, ModelError
from parley.policies.chat.addresses import absolute_address, chat_models
from parley.policies.chat.answers import kept_answers
from parley.policies.chat.loading import load_chat_model
from parley.policies.chat.local import LocalChatModel
from parley.policies.chat.model import ANSWERS, Access, Answer, Chat, ChatDecoding, Message, ReplyScore, require_access
from parley.policies.chat.settings import ChatModelSettings
from parley.policies.core.responders import load_responder
from parley.policies.hugging_face.caches import (
    KeptReadings,
    can_select_rows,
    continues_reading,
    give_room,
    pads_left,
    reads_trees,
    select_rows,
)
from parley.policies.hugging_face.models import read_model
from tests.policies.chat.tiny import saved, tiny_chat
from tests.policies.small_hugging_face import EOS_ID, VOCABULARY
from tests.real_models import smollm2

GREEDY, DRAWN = ChatDecoding(max_tokens=6), ChatDecoding(max_tokens=6, temperature=1.0)


def said(*texts: str) -> Chat:
    roles = ("user", "assistant")
    return tuple(Message(roles[number % 2], text) for number, text in enumerate(texts))


CHATS = [said("hello there"), said("you"), said("what are you ?", "a fool .", "oh well how are you ?"), said("oh")]


def tiny(batch_size: int = 1) -> LocalChatModel:
    return LocalChatModel("tiny", *tiny_chat(), batch_size)


def ids(text: str) -> list[int]:
    return [VOCABULARY.index(word) for word in text.split()]


def test_an_answer_is_what_the_model_generates_after_its_own_template() -> None:
    model = tiny()
    (answer,) = model.answer(CHATS[2:3], decoding=GREEDY)
    read = ids("<s> what are you ? </s> <s> a fool . </s> <s> oh well how are you ? </s> well")
    generated = model.model.generate(torch.tensor([read]), max_new_tokens=6, do_sample=False, num_beams=1)[0, len(read) :]
    wanted = generated.tolist()
    ended = EOS_ID in wanted
    wanted = wanted[: wanted.index(EOS_ID)] if ended else wanted
    assert answer == Answer(
        model.tokenizer.decode(wanted, skip_special_tokens=True), "stop" if ended else "length", len(read), len(wanted)
    )


@pytest.mark.parametrize("decoding", [GREEDY, DRAWN], ids=["greedy", "drawn"])
@pytest.mark.parametrize("batch_size", [0, 3])
def test_chats_side_by_side_are_answered_as_alone_and_in_any_order(decoding: ChatDecoding, batch_size: int) -> None:
    alone, beside = tiny(), tiny(batch_size)
    wanted = alone.answer(CHATS, decoding=decoding, seeds=[1, 2, 3, 4])
    assert beside.answer(CHATS, decoding=decoding, seeds=[1, 2, 3, 4]) == wanted
    assert beside.answer(CHATS[::-1], decoding=decoding, seeds=[4, 3, 2, 1]) == wanted[::-1]


def test_draws_follow_the_seed_and_the_temperature() -> None:
    model = tiny()
    many = model.answer(CHATS[:1] * 400, decoding=ChatDecoding(max_tokens=1, temperature=0.7), seeds=range(400))
    again = model.answer(CHATS[:1] * 2, decoding=ChatDecoding(max_tokens=1, temperature=0.7), seeds=[7, 7])
    assert again == [many[7]] * 2
    read = torch.tensor([model.prompts.ids(CHATS[0])])
    shares = (model.model(read).logits[0, -1] / 0.7).softmax(-1)
    likeliest = int(shares.argmax())
    share = float(shares[likeliest])
    word = model.tokenizer.decode([likeliest], skip_special_tokens=True)
    found = sum(answer.text == word for answer in many) / 400
    assert abs(found - share) < 4 * math.sqrt(share * (1 - share) / 400)


def test_every_end_that_the_model_names_ends_an_answer() -> None:
    model, tokenizer = tiny_chat()
    first = LocalChatModel("tiny", model, tokenizer).answer(CHATS, decoding=GREEDY)
    longest = max(first, key=lambda answer: answer.num_tokens or 0)
    assert longest.num_tokens, "some answer has a word to end at"
    end = tokenizer(longest.text, add_special_tokens=False).input_ids[0]
    model.generation_config.eos_token_id = [EOS_ID, end]
    ended = LocalChatModel("tiny", model, tokenizer)
    assert ended.prompts.end_ids == tuple(sorted({EOS_ID, end}))
    (answer,) = ended.answer([CHATS[first.index(longest)]], decoding=GREEDY)
    assert (answer.text, answer.ended) == ("", True)


@pytest.mark.parametrize("batch_size", [1, 0])
def test_a_score_is_the_log_probability_of_the_reply_alone(batch_size: int) -> None:
    model = tiny(batch_size)
    replies = ["you are a fool", "oh", "well . oh ?", "there"]
    for score, chat, reply in zip(model.score(CHATS, replies), CHATS, replies, strict=True):
        before, after = model.prompts.ids(chat), ids(reply)
        logits = model.model(torch.tensor([[*before, *after]])).logits[0, len(before) - 1 : -1].log_softmax(-1)
        assert score.nats == pytest.approx(float(logits.gather(1, torch.tensor(after)[:, None]).sum()), rel=1e-4)
        assert score.num_tokens == len(after)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_the_probability_of_an_answer_is_that_of_its_draws(temperature: float) -> None:
    model = tiny()
    read, probability = model.prompts.ids(CHATS[0]), 1.0
    for wanted in [[token] for token in ids("you are")] + [list(model.prompts.end_ids)]:
        probabilities_V = (model.model(torch.tensor([read])).logits[0, -1].double() / temperature).softmax(-1)
        probability *= float(probabilities_V[wanted].sum())
        read = [*read, wanted[0]]
    assert model.probability(CHATS[0], "you are", temperature) == pytest.approx(probability, rel=1e-4)


def test_at_temperature_0_an_answer_is_certain_or_impossible() -> None:
    model = tiny()
    for chat, answer in zip(CHATS, model.answer(CHATS, decoding=ChatDecoding(temperature=0, max_tokens=4)), strict=True):
        if answer.text:
            assert model.probability(chat, answer.text, 0) == float(answer.ended)
            assert model.probability(chat, f"{answer.text} fool", 0) == 0


def test_memory_that_runs_out_halves_the_batch_for_good() -> None:
    model, asked = tiny(4), (CHATS[:1] * 4, ["oh oh", "there", "oh", "you oh"])
    wanted, forward, sizes = tiny().score(*asked), model.model.forward, list[int]()
    assert reads_trees(model.model)
    assert continues_reading(model.model)

    def small(input_ids: torch.Tensor, **more: Any) -> Any:
        sizes.append(input_ids.shape[1])
        if len(sizes) == 2:
            raise torch.OutOfMemoryError("no room")
        return forward(input_ids=input_ids, **more)

    model.model.forward = small
    assert [score.nats for score in model.score(*asked)] == pytest.approx([score.nats for score in wanted], rel=1e-5)
    model.score(*asked)
    # The messages are read once for all replies to them; of a reply all but its last token, once for those that begin with it.
    messages = len(model.prompts.ids(CHATS[0]))
    assert sizes == [messages, 2, 1, 1, messages, 1, 1]


def test_a_score_reads_what_is_new_alone() -> None:
    model, plain = (LocalChatModel("tiny", *tiny_chat(positions=64), size) for size in (4, 1))
    sizes = list[int]()
    assert reads_trees(model.model)
    assert pads_left(model.model)
    chat = said("what are you ?", "a fool .", "oh well")
    (answer,) = model.answer([chat], decoding=GREEDY)
    longer = (*chat, Message("assistant", answer.text), Message("user", "you are ?"))
    (known,) = model._readings.begin([model.prompts.ids(longer)])[1]
    model.model.register_forward_pre_hook(
        lambda _model, _inputs, given: sizes.append(given["input_ids"].shape[1]), with_kwargs=True
    )
    replies = ["you are a fool", "you are oh", "oh"]
    scores = model.score([longer] * 3, replies)
    assert known >= len(model.prompts.ids(chat)) - 1
    assert sizes == [len(model.prompts.ids(longer)) - known, len(["you", "are", "a"])]
    wanted = plain.score([longer] * 3, replies)
    assert [score.nats for score in scores] == pytest.approx([score.nats for score in wanted], rel=1e-5)


def test_what_several_chats_begin_with_is_read_once_before_their_replies() -> None:
    model, sizes = LocalChatModel("tiny", *tiny_chat(positions=128), 4), list[tuple[int, ...]]()
    assert pads_left(model.model)
    assert reads_trees(model.model)
    chats = [said(" ".join(["oh well", *["you are a fool"] * 6]), "oh", last) for last in ("you ?", "there", "you ?")]
    wanted = LocalChatModel("tiny", *tiny_chat(positions=128)).score(chats, ["oh", "you are", "well there"])
    model.model.register_forward_pre_hook(
        lambda _model, _inputs, given: sizes.append(tuple(given["input_ids"].shape)), with_kwargs=True
    )
    scores = model.score(chats, ["oh", "you are", "well there"])
    assert [score.nats for score in scores] == pytest.approx([score.nats for score in wanted], rel=1e-5)
    # The beginning; then the rest of each chat, and its replies but for their last tokens.
    assert sizes == [(1, 32), (1, 4), (1, 1), (1, 3), (1, 1)]


@pytest.mark.usefixtures("own_cache")
def test_answers_before_a_break_are_kept(tmp_path: Path) -> None:
    model = tiny()
    assert continues_reading(model.model)
    read, num = model.model.forward, count(1)

    def broken(*given: Any, **asked: Any) -> Any:
        if next(num) > 8:
            raise KeyboardInterrupt
        return read(*given, **asked)

    model.model.forward = broken
    with pytest.raises(KeyboardInterrupt):
        kept_answers(model, tmp_path).answer(CHATS, decoding=GREEDY)
    known = len((tmp_path / ANSWERS).read_text().splitlines())
    assert 0 < known < len(CHATS)
    again = tiny()
    answers = kept_answers(again, tmp_path).answer(CHATS, decoding=GREEDY)
    assert [answer.text for answer in answers] == [answer.text for answer in tiny().answer(CHATS, decoding=GREEDY)]
    assert again.usage.known == known


def test_answers_of_a_function_of_ones_own_are_kept_before_it_breaks(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def reply(messages):\n    return str(1 // ('what' not in str(messages)))\n")
    with pytest.raises(ConfigError, match="raised an error"):
        load_chat_model(f"{tmp_path}/own.py:reply", answers=tmp_path).answer(CHATS, decoding=GREEDY)
    assert len((tmp_path / ANSWERS).read_text().splitlines()) == 2


def test_a_model_of_an_installed_package_keeps_its_name_for_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_models, "_targets", {"beggar": lambda messages: "please"})
    assert absolute_address("beggar") == "beggar"
    assert load_chat_model(absolute_address("beggar")).answer(CHATS[:1], decoding=GREEDY)[0].text == "please"
    assert absolute_address("runs/beggar") == str(Path("runs/beggar").absolute())


def test_a_saved_model_is_found_by_its_address(tmp_path: Path) -> None:
    model = load_chat_model(f"hf:{saved(tmp_path)}")
    assert model.access is Access.GRADIENTS
    assert model.answer(CHATS, decoding=GREEDY) == tiny().answer(CHATS, decoding=GREEDY)
    kept = load_chat_model(f"hf:{tmp_path}", answers=tmp_path / "answers")
    first, again = (kept.answer(CHATS, decoding=GREEDY) for _ in range(2))
    assert ([answer.known for answer in first], [answer.known for answer in again]) == ([False] * 4, [True] * 4)
    half = load_chat_model(f"hf:{tmp_path}", ChatModelSettings(dtype="bfloat16"))
    assert half.model.dtype is torch.bfloat16  # type: ignore[attr-defined]


def test_messages_that_do_not_fit_are_refused() -> None:
    model = tiny()
    with pytest.raises(ConfigError, match=r"longer than the model reads(.|\n)*33 tokens, and it reads 32"):
        model.answer([said("oh " * 30)], decoding=GREEDY)
    (cut,) = model.answer([said("oh " * 28)], decoding=GREEDY)
    assert (cut.num_prompt_tokens, cut.num_tokens) == (31, 1) or cut.ended
    with pytest.raises(ConfigError, match="longer than the model reads"):
        model.score([said("oh " * 28)], ["oh oh oh"])
    with pytest.raises(ConfigError, match="no such role"):
        model.answer([(Message("tool", "oh"),)], decoding=GREEDY)
    with pytest.raises(ConfigError, match="without messages"):
        model.answer([()], decoding=GREEDY)
    with pytest.raises(ConfigError, match="without tokens"):
        model.score([said("oh")], [""])
    with pytest.raises(ConfigError, match="one seed a chat"):
        model.answer(CHATS, decoding=DRAWN)


def test_a_token_that_the_model_lacks_is_told_before_it_is_read() -> None:
    model, tokenizer = tiny_chat()
    tokenizer.add_tokens(["more", "and more", "brandnew"])
    with pytest.raises(ConfigError, match=r"the model lacks(.|\n)*'brandnew', number 20 of 20"):
        LocalChatModel("tiny", model, tokenizer).answer([said("oh brandnew")], decoding=GREEDY)


def test_a_template_that_does_not_take_messages_says_so() -> None:
    picky = "{{ raise_exception('you speak first') if messages[0]['role'] == 'assistant' else messages[0]['content'] }}"
    with pytest.raises(ConfigError, match=r"does not take these messages(.|\n)*assistant: you speak first"):
        LocalChatModel("tiny", *tiny_chat(picky)).answer([(Message("assistant", "oh"),)], decoding=GREEDY)


def _without_end(folder: Path) -> None:
    model, tokenizer = tiny_chat()
    tokenizer.eos_token, model.generation_config.eos_token_id, model.config.eos_token_id = None, None, None
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _remote(folder: Path) -> None:
    saved(folder)
    config = json.loads((folder / "config.json").read_text())
    more = {"model_type": "nobodys", "auto_map": {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}}
    (folder / "config.json").write_text(json.dumps({**config, **more}))
    (folder / "evil.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")


def _remote_alone(folder: Path) -> None:
    _remote(folder)
    for path in folder.glob("tokenizer*"):
        path.unlink()


def _pickled(folder: Path) -> None:
    saved(folder)
    torch.save(tiny_chat()[0].state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def _says(folder: Path, **more: object) -> None:
    saved(folder)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))


def _without_tokenizer(folder: Path) -> None:
    saved(folder)
    for path in folder.glob("tokenizer*"):
        path.unlink()


def _encoder(folder: Path) -> None:
    _says(folder, architectures=["GPT2Model"])
    # Told by the configuration alone.
    (folder / "model.safetensors").write_bytes(b"never read")


def _bad_tokenizer(folder: Path) -> None:
    saved(folder)
    (folder / "tokenizer.json").write_text("{}")


REFUSED = {
    "nothing there": (lambda folder: None, r"config\.json"),
    "no end": (_without_end, "has a token that ends a reply"),
    "no place": (lambda folder: saved(folder, "hello"), "no place for what the user says"),
    "remote code": (_remote, "code of its own"),
    "remote code without a tokenizer": (_remote_alone, "code of its own"),
    "other shapes": (lambda folder: _says(folder, vocab_size=77), r"other shapes(.|\n)*wte\.weight is \(20, 8\), and \(77"),
    "squeezed": (
        lambda folder: _says(folder, quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True}),
        "package(.|\n)*bitsandbytes(.|\n)*plain weights",
    ),
    "no tokenizer": (_without_tokenizer, "no tokenizer with words"),
    "no whole tokenizer": (_bad_tokenizer, "can be read(.|\n)*KeyError: 'added_tokens'"),
    "an encoder": (_encoder, "causal model(.|\n)*architecture GPT2Model"),
    "pickled": (_pickled, r"weights are pickled(.|\n)*pytorch_model\.bin(.|\n)*save_pretrained"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_folder_that_is_no_chat_model_is_refused(name: str, tmp_path: Path) -> None:
    make, told = REFUSED[name]
    make(tmp_path)
    with pytest.raises((ConfigError, CheckpointError), match=told):
        load_chat_model(f"hf:{tmp_path}")
    assert not (tmp_path / "ran").exists()


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    name = f"gguf:{tmp_path}/model.gguf"
    # Who searches its inputs is told the same as who asks it.
    for load in (load_chat_model, read_model, load_responder):
        (tmp_path / "model.gguf").unlink(missing_ok=True)
        with pytest.raises(CheckpointError, match="no such GGUF file"):
            load(name)
        (tmp_path / "model.gguf").write_bytes(b"PK\x03\x04")
        with pytest.raises(CheckpointError, match="no GGUF file"):
            load(name)


@pytest.mark.skipif(find_spec("gguf") is None, reason="the extra gguf is not installed")
def test_a_file_that_was_cut_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF\x03\x00\x00\x00\x01")
    with pytest.raises(CheckpointError, match="cut short"):
        load_chat_model(f"gguf:{tmp_path}/model.gguf")


OWN = """
from parley.policies.chat.model import ReplyScore

class Asked:
    def answer(self, chats, *, decoding, seeds=()):
        return [chat[-1].content.upper() for chat in chats]

    def score(self, chats, replies):
        return [ReplyScore(-float(len(reply)), 1) for reply in replies]

class Replies:
    def reply(self, messages):
        return f"{messages[-1]['role']}: {messages[-1]['content']}"

def reply(messages):
    return messages[0]["content"]

def made():
    return Replies()

def silent(messages):
    return None

def broken(messages):
    raise RuntimeError("oh no")

class Short:
    def answer(self, chats, *, decoding, seeds=()):
        return []

class Single:
    def answer(self, chats, *, decoding, seeds=()):
        return "abc"

class Nothing:
    pass
"""


def test_a_file_of_ones_own_is_a_chat_model(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    texts = {
        name: load_chat_model(f"{path}:{name}").answer(CHATS[1:2], decoding=GREEDY)[0].text
        for name in ("Asked", "Replies", "reply", "made")
    }
    assert texts == {"Asked": "YOU", "Replies": "user: you", "reply": "you", "made": "user: you"}
    scoring = load_chat_model(f"{path}:Asked")
    assert scoring.access is Access.SCORES
    assert scoring.score(CHATS[:1], ["abc"]) == [ReplyScore(-3.0, 1)]  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="needs scores of a model"):
        require_access(load_chat_model(f"{path}:reply"), Access.SCORES, "ranking")
    for name, told in (("silent", "no text"), ("Short", "every chat"), ("Single", "every chat(.|\n)*the text 'abc' for 4")):
        with pytest.raises(ModelError, match=told):
            load_chat_model(f"{path}:{name}").answer(CHATS, decoding=GREEDY)
    with pytest.raises(ConfigError, match=r"raised an error(.|\n)*oh no"):
        load_chat_model(f"{path}:broken").answer(CHATS, decoding=GREEDY)
    with pytest.raises(ConfigError, match="makes no chat model"):
        load_chat_model(f"{path}:Nothing")


def test_a_name_of_no_form_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no chat model is called so(.|\n)*openai:URL#MODEL"):
        load_chat_model("gpt-4")


@pytest.mark.slow
def test_a_real_model_knows_the_capital_of_france() -> None:
    model = load_chat_model(smollm2())
    (answer,) = model.answer([said("What is the capital of France?")], decoding=ChatDecoding(max_tokens=12))
    assert (answer.text, answer.ended) == ("The capital of France is Paris.", True)
    paris, rome = model.score([said("What is the capital of France?")] * 2, ["Paris", "Rome"])  # type: ignore[attr-defined]
    assert paris.nats > rome.nats


def test_a_conversation_is_read_once_over_its_turns_and_answers_stay_the_same() -> None:
    reads: list[tuple[int, int]] = []
    model, alone = (LocalChatModel("tiny", *tiny_chat(positions=64), size) for size in (4, 1))
    forward = model.model.forward
    model.model.forward = lambda *, input_ids, **rest: (
        reads.append(tuple(input_ids.shape)) or forward(input_ids=input_ids, **rest)
    )
    model.model.forward.__signature__ = inspect.signature(forward)
    chats = [said("what are you ?", "a fool .", other) for other in ("hello there", "you", "oh well how are you ?", "oh")]
    for turn in ("how are you ?", "oh well", "you fool"):
        reads.clear()
        answers = model.answer(chats, decoding=GREEDY)
        assert [answer.text for answer in answers] == [alone.answer([chat], decoding=GREEDY)[0].text for chat in chats]
        longest = max(len(model.prompts.ids(chat)) for chat in chats)
        # The first turn reads what all begin with once, in a row of its own.
        assert reads[0][0] == (1 if turn == "how are you ?" else 4)
        assert reads[1 if turn == "how are you ?" else 0][1] < longest - 6
        chats = [
            (*chat, Message("assistant", answer.text or "well"), Message("user", turn))
            for chat, answer in zip(chats, answers, strict=True)
        ]


def test_a_text_that_several_chats_repeat_is_read_once() -> None:
    reads: list[tuple[int, int]] = []
    model, alone = (LocalChatModel("tiny", *tiny_chat(positions=64), size) for size in (8, 1))
    forward = model.model.forward
    model.model.forward = lambda *, input_ids, **rest: (
        reads.append(tuple(input_ids.shape)) or forward(input_ids=input_ids, **rest)
    )
    model.model.forward.__signature__ = inspect.signature(forward)
    texts = ("hello there you fool", "what are you ?", "oh well how are you ?")
    chats = [said(text, "a fool .", text) for text in texts for _ in range(3)]
    drawn = ChatDecoding(temperature=1.0, max_tokens=4)
    answers = model.answer(chats, decoding=drawn, seeds=range(9))
    # Each text once, and of the nine chats no more than their ends.
    # The three texts once, side by side; of the eight chats that are answered together only their last tokens.
    assert [rows for rows, _ in reads].count(3) == 1
    assert {num for rows, num in reads if rows == 8} == {1}
    expected = [alone.answer([chat], decoding=drawn, seeds=[seed])[0].text for seed, chat in enumerate(chats)]
    assert [answer.text for answer in answers] == expected


def test_the_head_of_a_model_that_is_read_gets_one_block(tmp_path: Path) -> None:
    _, model = read_model(saved(tmp_path / "model"))
    blocks: list[bool] = []
    model.get_output_embeddings().register_forward_hook(
        lambda _layer, inputs, _logits: blocks.append(inputs[0].is_contiguous())
    )
    texts = torch.tensor([[1, 2, 3, 4], [4, 3, 2, 1]])
    with torch.inference_mode():
        last, whole = model(input_ids=texts, logits_to_keep=1).logits, model(input_ids=texts).logits
    assert blocks == [True, True]
    torch.testing.assert_close(last, whole[:, -1:])


def read(readings: KeptReadings, model: Any, text: str) -> None:
    tokens = torch.tensor([ids(text)])
    readings.keep({0: ids(text)}, model(input_ids=tokens, use_cache=True).past_key_values, torch.ones_like(tokens))


def test_readings_are_forgotten_when_weights_change() -> None:
    model, _ = tiny_chat(positions=64)
    readings = KeptReadings(model)
    read(readings, model, "oh well how are you")
    assert readings.begin([ids("oh well how you"), ids("hello")])[1] == [3, 0]
    with torch.no_grad():
        next(model.parameters()).add_(0.1)
    assert readings.begin([ids("oh well how you")])[1] == [0]


def test_readings_are_forgotten_when_their_room_is_needed() -> None:
    model, other = (tiny_chat(positions=64)[0] for _ in range(2))
    readings, stays = KeptReadings(model), KeptReadings(other)
    read(readings, model, "hello there you fool")
    read(stays, other, "hello there you fool")
    KeptReadings.forget(model)
    assert [kept.begin([ids("hello there you fool")])[1] for kept in (readings, stays)] == [[0], [3]]


def test_readers_of_a_model_have_room_together_and_what_was_not_used_lately_goes() -> None:
    model, _ = tiny_chat(positions=64)
    first, second = (KeptReadings(model, most_bytes=1) for _ in range(2))
    read(first, model, "hello there you fool")
    read(second, model, "oh well how are you")
    assert (first.begin([ids("hello there you fool")])[1], second._kept) == ([3], {}), "what the next turn needs stays"
    for _ in range(KeptReadings._lately):
        second.begin([ids("what")])
    read(second, model, "oh well how are you")
    assert (first.begin([ids("hello there you fool")])[1], len(second._kept)) == ([0], 1)


def test_a_longer_reading_takes_the_place_of_what_it_begins_with() -> None:
    model, _ = tiny_chat(positions=64)
    readings = KeptReadings(model)
    for number in (5, 3, 9, 9):
        tokens = torch.tensor([[2, 3, 4] * 4])[:, :number]
        readings.keep({0: tokens[0].tolist()}, model(input_ids=tokens, use_cache=True).past_key_values, torch.ones_like(tokens))
    assert list(map(len, readings._kept)) == [9]
    assert readings.begin([[2, 3, 4, 2, 9]])[1] == [4]


def test_a_beginning_that_some_chats_share_is_read_once_for_them() -> None:
    model, _ = tiny_chat(positions=64)
    readings, reads = KeptReadings(model), []
    handle = model.register_forward_pre_hook(
        lambda _model, _inputs, given: reads.append(tuple(given["input_ids"].shape)), with_kwargs=True
    )
    first, second = ([number, 3, 4, 5] * 5 for number in (2, 6))
    _, known = readings.begin([[*first, 5, 6], [*first, 7, 6, 5], [*second, 5, 6], [*second, 8], [9, 9, 9]])
    handle.remove()
    assert (known, reads) == ([20, 20, 20, 20, 0], [(2, 20)])


def test_chats_that_have_ended_are_read_no_longer_and_change_no_other() -> None:
    model, alone = (LocalChatModel("tiny", *tiny_chat(positions=64), size) for size in (12, 1))
    rows: list[int] = []
    model.model.register_forward_pre_hook(
        lambda _model, _inputs, given: rows.append(len(given["input_ids"])) if given["input_ids"].shape[1] == 1 else None,
        with_kwargs=True,
    )
    chats = [said(text) for text in ("hello there", "you", "oh well how are you ?", "oh")] * 3
    drawn = ChatDecoding(temperature=2.0, max_tokens=12)
    answers = model.answer(chats, decoding=drawn, seeds=range(12))
    assert answers == [alone.answer([chat], decoding=drawn, seeds=[seed])[0] for seed, chat in enumerate(chats)]
    lengths = [answer.num_tokens or 0 for answer in answers]
    assert min(lengths) < max(lengths)
    assert rows[-1] < 12
    assert rows[rows.index(12) :] == sorted(rows[rows.index(12) :], reverse=True)
    # What has left is still known, but for the token that was drawn last.
    known = set(model._readings._kept)
    for chat, length in zip(chats, lengths, strict=True):
        prompt = tuple(model.prompts.ids(chat))
        assert any(key[: len(prompt)] == prompt and len(prompt) + length - 1 <= len(key) for key in known)


def test_a_cache_with_room_holds_what_a_plain_one_holds() -> None:
    from transformers import DynamicCache

    torch.manual_seed(0)
    caches = [DynamicCache() for _ in range(2)]

    def grown(num: int, rows: int) -> list[torch.Tensor]:
        sides = torch.randn(2, rows, 2, num, 4)
        # What it gives is compared at once: later tokens may be written into the same memory.
        read = [[side.clone() for side in cache.update(*sides, 0)] for cache in caches]
        for ours, plain in zip(*read, strict=True):
            torch.testing.assert_close(ours, plain, rtol=0, atol=0)
        return [cache.layers[0].keys for cache in caches]

    grown(5, 3)
    give_room(caches[0])
    places = {grown(1, 3)[0].data_ptr() for _ in range(20)}
    assert len(places) == 1, "nothing is copied while there is room"
    for cache in caches:
        select_rows(cache, [2, 0])
    grown(1, 2)
    for cache in caches:
        cache.crop(-3)
    grown(2, 2)
    assert len({grown(7, 2)[0].data_ptr() for _ in range(10)}) > 1
    assert (can_select_rows(caches[0]), give_room(None)) == (True, None)
