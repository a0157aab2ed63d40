"""Hugging Face models as judges: fluency of searched inputs, classifiers of replies, and entailment of sentences.

Shapes: B inputs, N searched positions, V tokens, E embedding.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.core.registry import nearest
from parley.envs.core.seeds import stream
from parley.policies.core.decoding import drawn
from parley.policies.hugging_face.caches import continues_reading, next_logits
from parley.policies.hugging_face.models import read_pretrained
from parley.policies.hugging_face.tokens import ends_of, longest_input, searchable
from parley.policies.hugging_face.victims import HuggingFaceVictim, token_embeddings


class ReplyClassifier:
    """A sequence classifier of single replies.

    Args:
        model: with a head for sequence classification.
        tokenizer: of the model.
        label: the wanted label; the last one when empty.

    Raises:
        ConfigError: no label is called so.
    """

    def __init__(self, model: Any, tokenizer: Any, label: str = "") -> None:
        self._model, self._tokenizer = model.eval().requires_grad_(False), tokenizer
        labels = {str(name): int(number) for number, name in model.config.id2label.items()}
        if label and label not in labels:
            what = f"the classifier has no label {label!r}{nearest(label, labels)}"
            raise ConfigError(what, fix=f"labels: {', '.join(labels)}")
        self._label = labels[label] if label else max(labels.values())
        self._longest = longest_input(tokenizer, model)

    @torch.inference_mode()
    def scores(self, replies: Sequence[str]) -> list[float]:
        """Return the probability of the label for each reply, read alone; a longer one is cut."""
        probabilities = []
        for reply in replies:
            read = self._tokenizer(reply, truncation=True, max_length=self._longest, return_tensors="pt")
            logits_L = self._model(**read.to(self._model.device)).logits[0].float()
            probability = logits_L[0].sigmoid() if len(logits_L) == 1 else logits_L.softmax(-1)[self._label]
            probabilities.append(float(probability))
        return probabilities


def load_reply_classifier(folder: Path, label: str = "", device: str = "cpu") -> ReplyClassifier:
    """Return the classifier of a folder; arguments and errors are those of `ReplyClassifier` and `read_pretrained`."""
    tokenizer, model = read_pretrained(folder, lambda config: "AutoModelForSequenceClassification")
    return ReplyClassifier(model.to(device), tokenizer, label)


_FOUND = {"unsafe": True, "yes": True, "safe": False, "no": False}
"""First words of verdicts, and whether they find something."""
_VERDICT_TOKENS = 12


class SafetyModel:
    """A causal model that was trained to write a verdict on a prompt and a reply, such as safe or unsafe, yes or no.

    The folder's chat template lays out the conversation. It may take a guideline. A question in place of that is one message of
    the user, for folders whose template is that of a common chat model.

    Args:
        model: a causal model.
        tokenizer: of the model.
        guideline: the text that the template takes as `guideline`; empty for none.
        question: a text with `{prompt}` and `{reply}` in place of the conversation; empty for none.

    Raises:
        ConfigError: the folder has no chat template and there is no question, or its template takes no such conversation.
    """

    def __init__(self, model: Any, tokenizer: Any, guideline: str = "", question: str = "") -> None:
        self._model, self._tokenizer = model.eval().requires_grad_(False), tokenizer
        self._guideline, self._question = guideline, question
        self.text("a", "b")

    def text(self, prompt: str, reply: str) -> str:
        """Return what the model reads; of an empty reply the prompt alone is judged."""
        parts = {"{prompt}": prompt, "{reply}": reply}
        question = re.sub(r"\{prompt\}|\{reply\}", lambda part: parts[part[0]], self._question)
        if question and not self._tokenizer.chat_template:
            return question
        if not self._tokenizer.chat_template:
            fix = "write question: beside safety:, with {prompt} and {reply}"
            raise ConfigError("the safety model has no template for conversations", fix=fix)
        turns = [{"role": "user", "content": prompt}, *[{"role": "assistant", "content": reply}] * bool(reply)]
        messages = [{"role": "user", "content": question}] if question else turns
        options = {"guideline": self._guideline} if self._guideline else {}
        try:
            text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **options)
        # A template is a program of the folder, and may raise anything.
        except Exception as error:
            fix = "write guideline: beside safety: if its template takes one, or question: with {prompt} and {reply}"
            raise ConfigError("the template of the safety model takes no conversation", got=str(error), fix=fix) from None
        return str(text)

    @torch.inference_mode()
    def verdict(self, prompt: str, reply: str) -> tuple[bool | None, str]:
        """Return whether the model finds something, None if its first word is no verdict; and what it wrote."""
        # A template writes the marks of the beginning itself.
        read = self._tokenizer(
            self.text(prompt, reply), return_tensors="pt", add_special_tokens=not self._tokenizer.chat_template
        )
        inputs = read["input_ids"].to(self._model.device)
        written = self._model.generate(
            inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=_VERDICT_TOKENS, do_sample=False
        )
        text = self._tokenizer.decode(written[0, inputs.shape[1] :], skip_special_tokens=True).strip()
        word = re.match(r"[a-z]+", text.lower())
        return (_FOUND.get(word[0]) if word else None), " ".join(text.split())


def load_safety_model(folder: Path, guideline: str = "", question: str = "", device: str = "cpu") -> SafetyModel:
    """Return the safety model of a folder; arguments and errors are those of `SafetyModel` and `read_pretrained`."""
    tokenizer, model = read_pretrained(folder, lambda config: "AutoModelForCausalLM")
    return SafetyModel(model.to(device), tokenizer, guideline, question)


ENTAILMENT = "entailment"
"""Name of the label of entailment, in any case."""


class Entailment:
    """A model that classifies pairs of premise and hypothesis.

    Args:
        model: with a head for sequence classification, one of whose labels is `ENTAILMENT`.
        tokenizer: of the model.
        batch_size: pairs that are read side by side.

    Raises:
        CheckpointError: no label is called so.
    """

    def __init__(self, model: Any, tokenizer: Any, batch_size: int = 64) -> None:
        self._model, self._tokenizer, self._batch_size = model.eval().requires_grad_(False), tokenizer, batch_size
        labels = {str(label).lower(): int(number) for number, label in model.config.id2label.items()}
        if ENTAILMENT not in labels:
            raise CheckpointError(
                "the model has no label of entailment",
                where=model.config.name_or_path or type(model).__name__,
                got=f"labels {', '.join(labels)}",
                fix="name a model of natural language inference, whose config.json has it in id2label",
            )
        self._label = labels[ENTAILMENT]
        self._longest = longest_input(tokenizer, model)

    @torch.inference_mode()
    def follows(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[bool]:
        """Return whether each hypothesis follows from its premise: entailment is the likeliest label.

        Args:
            premises: sentences; longer ones than the model reads are cut.
            hypotheses: as many.
        """
        verdicts: list[bool] = []
        for start in range(0, len(premises), self._batch_size):
            rows = slice(start, start + self._batch_size)
            pairs = list(premises[rows]), list(hypotheses[rows])
            read = self._tokenizer(*pairs, padding=True, truncation=True, max_length=self._longest, return_tensors="pt")
            logits = self._model(**read.to(self._model.device)).logits
            verdicts += (logits.argmax(-1) == self._label).tolist()
        return verdicts


def load_entailment(folder: Path, device: str = "cpu", batch_size: int = 64) -> Entailment:
    """Return the entailment model of a folder; arguments and errors are those of `Entailment` and `read_pretrained`."""
    tokenizer, model = read_pretrained(folder, lambda config: "AutoModelForSequenceClassification")
    return Entailment(model.to(device), tokenizer, batch_size)


class HuggingFaceInputModel:
    """An `InputModel` of a causal model, which reads an input behind the token that begins a text, without a prompt.

    Args:
        model: causal, over the tokens of the searched one.
        tokenizer: of the model.

    Attributes:
        embedding_VE: embeddings of all tokens.
        end_id: token that ends an input: the end of a text.

    Raises:
        ConfigError: the model has an encoder, or no token that ends a text.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        if model.config.is_encoder_decoder:
            fix = "name a causal model with the same tokenizer"
            raise ConfigError("a model with an encoder does not say how likely inputs are", got=type(model).__name__, fix=fix)
        self.model, self.tokenizer = model.eval().requires_grad_(False), tokenizer
        self.end_id: int = ends_of(tokenizer, model)[0] if tokenizer.eos_token_id is None else tokenizer.eos_token_id
        self.embedding_VE: Tensor = token_embeddings(model.get_input_embeddings())
        # GPT-2 and its kin begin texts with the token that ends them.
        self._begin_id: int = self.end_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id

    def word_logits(self, embedded_BNE: Tensor) -> Tensor:
        """Return logits (B, N + 1, V) of each token of the inputs and of their end, differentiable in the embeddings."""
        begin_B1E = self.embedding_VE[[self._begin_id]].expand(len(embedded_BNE), -1, -1)
        logits_BNV: Tensor = self.model(inputs_embeds=torch.cat([begin_B1E, embedded_BNE], dim=1), use_cache=False).logits
        return logits_BNV

    def nats(self, text: str) -> list[float]:
        """Return -log P of each token of a text and of its end; a text that is too long is read in parts."""
        ids = [*self.tokenizer(text, add_special_tokens=False).input_ids, self.end_id]
        longest, nats = int(min(longest_input(self.tokenizer, self.model), len(ids))), list[float]()
        for start in range(0, len(ids), longest):
            words_N1 = torch.tensor(ids[start : start + longest], device=self.embedding_VE.device)[:, None]
            with torch.inference_mode():
                log_NV = self.word_logits(self.embedding_VE[words_N1[:-1, 0]][None])[0].float().log_softmax(-1)
            nats += (-log_NV.gather(1, words_N1)[:, 0]).tolist()
        return nats

    def require_same_tokens(self, tokenizer: Any, num_tokens: int) -> None:
        """Check that the searched model has the same tokens.

        Raises:
            ConfigError: it has others.
        """
        if self.tokenizer.get_vocab() != tokenizer.get_vocab() or len(self.embedding_VE) != num_tokens:
            got = f"{len(self.embedding_VE):,} and {num_tokens:,} tokens"
            fix = "name the searched model itself, or one of its family"
            raise ConfigError("the model that judges inputs has other tokens than the searched one", got=got, fix=fix)

    @torch.inference_mode()
    def draw(self, seeds: Sequence[int], length: int, searchable_V: Tensor) -> Tensor:
        """Return inputs (B, N) int64 of allowed tokens that are likely as texts, each drawn from its seed.

        Args:
            seeds: one for each input.
            length: N.
            searchable_V: true at tokens that they may hold.
        """
        there_V = searchable_V.to(self.embedding_VE.device)
        return torch.stack([self._drawn(seed, length, there_V) for seed in seeds]).to(searchable_V.device)

    def _drawn(self, seed: int, length: int, searchable_V: Tensor) -> Tensor:
        generator = stream(seed, "likely input")
        ids, past = [self._begin_id], None
        for _ in range(length):
            if continues_reading(self.model):
                last_11 = torch.tensor([ids[-1:]], device=searchable_V.device)
                read = self.model(input_ids=last_11, past_key_values=past, use_cache=True)
                past, next_V = read.past_key_values, read.logits[0, -1]
            else:
                next_V = next_logits(self.model, torch.tensor([ids], device=searchable_V.device))[0]
            logits_V = next_V.double().masked_fill(~searchable_V, -torch.inf).cpu()
            ids.append(int(drawn(logits_V[None], torch.tensor([generator.random()], dtype=torch.float64))))
        return torch.tensor(ids[1:], device=searchable_V.device)


@torch.inference_mode()
def reply_nats(victim: HuggingFaceVictim, text: str, reply: str) -> list[float]:
    """Return -log P of each token of a reply to a text, its end included; empty if it does not fit.

    Args:
        victim: the model.
        text: stands in its first slot.
        reply: to it.
    """
    if (read := victim.read_text(text)) is None:
        return []
    ids: list[int] = victim.tokenizer(reply, add_special_tokens=False).input_ids
    ids = [*ids, victim.end_id] if victim.end else ids
    if len(read) + len(ids) > longest_input(victim.tokenizer, victim.model):
        return []
    step = victim.steps(read)
    return [-float(step(ids[:position]).log_softmax(-1)[word]) for position, word in enumerate(ids)]


def frequent_words(tokenizer: Any, num_tokens: int, num: int) -> list[str]:
    """Return the first tokens of a vocabulary that begin words; tokenizers order tokens about by frequency.

    Args:
        tokenizer: of the model.
        num_tokens: V.
        num: words wanted.
    """
    ids = searchable(tokenizer, num_tokens).nonzero()[:, 0].tolist()
    names = dict(zip(ids, tokenizer.convert_ids_to_tokens(ids), strict=True))
    begin = [i for i in ids if names[i].startswith(("Ġ", "▁"))] or [i for i in ids if not names[i].startswith("##")]
    texts = dict.fromkeys(tokenizer.decode([i]).strip() for i in begin)
    return [word for word in texts if len(word) > 1 and word.isascii() and word.isalpha()][:num]
