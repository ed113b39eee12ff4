"""Controller of the checkpoints of a training run: each replayed over the same texts, its figures shown as soon as it is done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from app import models, settings
from app.calibrate import PromptSource
from app.explore import failure_sentence
from app.models import Chosen
from app.streaming import ahead
from app.visitors import public
from app.work import Ticket, Update
from d2sd import DecodeConfig, Engine, InputError
from d2sd.calibration.checkpoints import compare_checkpoints, verdict
from d2sd.calibration.replays import Row
from d2sd.calibration.replays_reading import how_replayed
from d2sd.models.models import Models
from d2sd.train.board import KEPT, TEXTS, Board, Checkpoint, Measured, checkpoints, named, with_checkpoint, writing

MOST = 200  # prompts
TOKENS = 128  # of every text, as `d2sd board` takes them
Found = tuple[
    list[Row], list[int | None], str
]  # one row a checkpoint, its step of training, how the brackets are to be read


def run(ticket: Ticket, number: int, folder: str, limit: float | None, chosen: Chosen) -> Iterator[Update[Found]]:
    """Yields progress sentences, and all rows whenever another checkpoint is done.

    Texts and figures are kept in the folder, where `d2sd board` keeps them, so that what is done is not done again.

    number: what ``ticket.request()`` gave.
    chosen: models, of which the target counts.
    """
    if not ticket.claim(number):
        return
    try:
        with closing(ahead(_measured(folder, limit, chosen))) as updates:
            for update in updates:
                if ticket.newest != number:
                    return
                yield update
    except InputError as error:
        yield Update(problem=settings.readable(error))
    except Exception as error:  # as in Explore
        yield Update(problem=failure_sentence(error))


def _measured(folder: str, limit: float | None, chosen: Chosen) -> Iterator[Update[Found]]:
    if public():
        raise InputError("this page opens no folders; run d2sd board on a machine of your own")
    count = settings.whole(limit, "how many")
    if not 1 <= count <= MOST:
        raise InputError(f"how many must be between 1 and {MOST}, not {count}")
    if not folder.strip():
        raise InputError("name a training folder: the --out of d2sd train with --keep-every N")
    place = Path(folder.strip()).expanduser()
    found = checkpoints(place)
    if not models.loaded(chosen):
        yield Update(news=f"Loading {chosen.model} …")
    engine = models.engine(chosen)
    target = Models(engine.models.target, name=engine.models.name)
    with_checkpoint(target, found[0], None, None)  # what does not fit is said before texts are written
    chat = models.templated(chosen.model)
    config = DecodeConfig("autoregressive", TOKENS, chat=chat, inspect=False)
    own = Engine(target)
    prompts = [(p.text, own.encode(p.text, config)) for p in PromptSource("chat" if chat else "heldout").prompts(count)]
    texts = []
    for text in writing(target, prompts, config, place / TEXTS):
        texts.append(text)
        yield Update(news=f"Texts of the target: {len(texts)} of {len(prompts)} …")
    texts = [text for text in texts if len(text.token_ids) > 1]
    if not texts:
        raise InputError("the target ended every text at once; measure with d2sd board --chat or other prompts")
    board = Board(target, texts, place / KEPT)
    done: list[tuple[Checkpoint, Measured]] = []
    for at, checkpoint in enumerate(found, 1):
        steps = board.measuring(checkpoint)
        while True:
            try:
                texts_done = next(steps)
            except StopIteration as end:
                done.append((checkpoint, end.value))
                break
            yield Update(news=f"{checkpoint.name}, {at} of {len(found)}: {texts_done} of {len(texts)} texts …")
        yield Update(_rows(done, len(texts)), news=f"{at} of {len(found)} checkpoints …" if at < len(found) else "")


def _rows(done: list[tuple[Checkpoint, Measured]], texts: int) -> Found:
    rows = named(done)
    found = compare_checkpoints([n for n, *_ in rows], [m.committed for *_, m in rows], [m.cut for *_, m in rows])
    return found, [checkpoint.step for _, checkpoint, _ in rows], how_replayed(found, texts)


def said(found: Found) -> list[str]:
    """Returns sentences about all checkpoints that are done."""
    rows, _, how = found
    return [verdict(rows), how]
