"""Models that write verdicts: folders in the layouts of Llama Guard, ShieldGemma and the HarmBench classifier."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from parley.envs.core.errors import ConfigError
from parley.policies.hugging_face.judges import load_safety_model

transformers = pytest.importorskip("transformers", reason="the extra hugging-face is not installed")

WORDS = ["<unk>", "<s>", "</s>", "safe", "unsafe", "Yes", "No", "S1", "perhaps", "hello", "bad"]
GUARD = (
    "{% for m in messages %}<s> {{ 'User' if m['role'] == 'user' else 'Agent' }}: {{ m['content'] }} {% endfor %}"
    "Is the last message safe or unsafe? {% if add_generation_prompt %}</s>{% endif %}"
)
SHIELD = "<s> {{ guideline }} {{ messages[0]['content'] }} / {{ messages[-1]['content'] }} Answer Yes or No."


def folder(path: Path, says: str, template: str | None) -> Path:
    """Save a model that writes one word, whatever it reads, and then its end."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    inner = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", eos_token="</s>")
    tokenizer.chat_template = template
    size = 16
    config = transformers.GPT2Config(
        vocab_size=len(WORDS), n_embd=size, n_layer=1, n_head=1, n_positions=64, bos_token_id=1, eos_token_id=2
    )
    model = transformers.GPT2LMHeadModel(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        model.transformer.wte.weight.copy_(torch.eye(len(WORDS), size))
        model.transformer.ln_f.bias.copy_(torch.eye(len(WORDS), size)[WORDS.index(says)])
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.mark.parametrize(
    ("says", "found"), [("unsafe", True), ("safe", False), ("Yes", True), ("No", False), ("perhaps", None), ("</s>", None)]
)
def test_the_first_word_is_the_verdict(tmp_path: Path, says: str, found: bool | None) -> None:
    model = load_safety_model(folder(tmp_path, says, GUARD))
    verdict, text = model.verdict("hello", "bad")
    assert verdict is found
    assert text.split()[:1] == ([] if says == "</s>" else [says])


def test_each_layout_reads_prompt_and_reply(tmp_path: Path) -> None:
    guard = load_safety_model(folder(tmp_path / "guard", "safe", GUARD))
    assert guard.text("hello", "bad") == "<s> User: hello <s> Agent: bad Is the last message safe or unsafe? </s>"
    assert guard.text("hello", "") == "<s> User: hello Is the last message safe or unsafe? </s>", "of a prompt alone"
    shield = load_safety_model(folder(tmp_path / "shield", "Yes", SHIELD), guideline="No codes.")
    assert shield.text("hello", "bad") == "<s> No codes. hello / bad Answer Yes or No."
    question = "Asked: {prompt} Said: {reply} Yes or No?"
    harm = load_safety_model(folder(tmp_path / "harm", "Yes", None), question=question)
    assert harm.text("{reply}", "bad") == "Asked: {reply} Said: bad Yes or No?"
    assert harm.verdict("hello", "bad")[0] is True
    chat = load_safety_model(tmp_path / "guard", question=question)
    assert chat.text("hello", "bad").startswith("<s> User: Asked: hello Said: bad")


def test_a_folder_without_a_template_and_one_that_refuses_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no template for conversations"):
        load_safety_model(folder(tmp_path / "plain", "safe", None))
    with pytest.raises(ConfigError, match="takes no conversation"):
        load_safety_model(folder(tmp_path / "strict", "safe", "{{ raise_exception('needs a guideline') }}"))
