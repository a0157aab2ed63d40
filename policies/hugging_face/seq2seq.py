"""Hugging Face models of an encoder and a decoder as what a trigger search works on; causal ones: `hugging_face_victims.py`.

B inputs, N searched positions, P positions around them, T tokens of a reply, V tokens, E embedding
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from parley.envs.core.errors import ConfigError
from parley.policies.hugging_face.tokens import ANY, InputRules, marks_around
from parley.policies.hugging_face.victims import HuggingFaceVictim

_SAMPLE = "a"


class HuggingFaceSeq2Seq(HuggingFaceVictim):
    """An encoder and a decoder, such as T5, BART or BlenderBot; the whole source is searched.

    What the tokenizer puts around a text stands around the input (T5: an end; BART: a beginning and an end). What it puts
    before the text of a reply is given to the decoder and not scored.
    """

    def __init__(self, model: Any, tokenizer: Any, length: int, *, end: bool = True, rules: InputRules = ANY) -> None:
        super().__init__(model, tokenizer, length, end=end, rules=rules)
        self._before, self._after = marks_around(tokenizer, text=_SAMPLE)
        start = model.config.decoder_start_token_id
        if start is None:
            raise ConfigError(
                "the model does not say which token its replies begin after",
                where=tokenizer.name_or_path or None,
                fix="set decoder_start_token_id in its config.json",
            )
        self._begin = [start, *marks_around(tokenizer, text_target=_SAMPLE)[0]]

    @property
    def _num_before_reply(self) -> int:
        return len(self._begin)

    def reply_logits(self, embedded_BNE: Tensor, replies_BT: Tensor) -> Tensor:
        """Logits (B, T, V) of each token of the replies given those before it; differentiable in the embeddings."""
        source = [self._embedded(self._before, embedded_BNE), embedded_BNE, self._embedded(self._after, embedded_BNE)]
        begin_BP = replies_BT.new_tensor(self._begin).expand(len(replies_BT), -1)
        decoded = self.model(
            inputs_embeds=torch.cat(source, dim=1),
            decoder_input_ids=torch.cat([begin_BP, replies_BT[:, :-1]], dim=1),
            use_cache=False,
        )
        logits_BTV: Tensor = decoded.logits[:, len(self._begin) - 1 :]
        return logits_BTV

    def _read(self, ids: Sequence[int]) -> list[int]:
        return [*self._before, *ids, *self._after]

    def _read_texts(self, texts: Sequence[str]) -> list[int]:
        read: list[int] = self.tokenizer(texts[0]).input_ids
        return read

    def _typed(self, rows: Sequence[Sequence[int]]) -> list[list[int]]:
        return [self._read_texts(self.slot_texts(ids)) for ids in rows]

    def steps(self, read: Sequence[int]) -> Callable[[list[int]], Tensor]:
        source_1N = torch.tensor([read], device=self.embedding_VE.device)
        known = {"encoder_outputs": self.model.get_encoder()(input_ids=source_1N), "past": None}

        def step(reply: list[int]) -> Tensor:
            given = torch.tensor([reply[-1:] or self._begin], device=source_1N.device)
            found = self.model(
                encoder_outputs=known["encoder_outputs"], decoder_input_ids=given, past_key_values=known["past"], use_cache=True
            )
            known["past"] = found.past_key_values
            logits_V: Tensor = found.logits[0, -1].float()
            return logits_V

        return step
