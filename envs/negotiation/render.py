"""A dialogue as plain text, for people: the scenario, who said what, what was chosen, who earned what.

Pure: the same game gives the same text. Environments, reports and the command line share it.
"""

from __future__ import annotations

from parley.envs.negotiation.game import OVER, NegotiationGame

_HIDDEN = "?"


def render_dialogue(game: NegotiationGame, row: int, perspective: int | None = None) -> str:
    """One dialogue as a person would read it.

    Args:
        game: any state of the game.
        row: which of its dialogues.
        perspective: the side (0 or 1) whose eyes to read with: it is "you", and until the dialogue is over the partner's
            values and both selections stay hidden. None names the sides "side 0" and "side 1" and hides nothing.

    Returns:
        Lines of text without a final newline; a table of items first, then the turns, then the outcome if there is one.
    """
    over = game.phase[row] == OVER
    sides = (0, 1) if perspective is None else (perspective, 1 - perspective)
    names = ["side 0", "side 1"] if perspective is None else ["you", "you"]
    if perspective is not None:
        names[1 - perspective] = "partner"
    shown = [perspective in (None, side) or bool(over) for side in (0, 1)]
    lines = [_table(game, row, sides, names, shown), ""]
    lines += [f"{names[side]}: {words}" for side, words in _turns(game, row)]
    if game.forced[row]:
        lines[-1] += " (forced by a limit of the game)"
    counts = game.scenarios[row].counts
    chosen = [side for side in sides if game.selections[row, side] >= 0 and (perspective is None or over)]
    if chosen:
        lines.append("")
    lines += [f"{names[side]} chose {game.domain.said(counts, int(game.selections[row, side]))}" for side in chosen]
    if over:
        earned = ", ".join(f"{names[side]} {game.points[row, side]}" for side in sides)
        lines.append(f"{'agreed' if game.agreed[row] else 'not agreed'}, points: {earned}")
    return "\n".join(lines)


def _table(game: NegotiationGame, row: int, sides: tuple[int, int], names: list[str], shown: list[bool]) -> str:
    scenario = game.scenarios[row]
    cells = [["item", "count", *(f"value to {names[side]}" for side in sides)]]
    for item, name in enumerate(game.domain.items):
        values = [str(scenario.values[side][item]) if shown[side] else _HIDDEN for side in sides]
        cells.append([name, str(scenario.counts[item]), *values])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join([first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))])
        for first, *rest in cells
    )


def _turns(game: NegotiationGame, row: int) -> list[tuple[int, str]]:
    return [(side, " ".join(words) or "(says nothing)") for side, words in game.transcript(row)]
