"""Join and thin blocks, and decide which free devices are stranded."""

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from simulator.models import STATES, Block, Holder


def join_blocks(blocks: Sequence[Block]) -> Block:
    """Return consecutive blocks of the same devices as one."""
    if len(blocks) == 1:
        return blocks[0]
    places: dict[str, int] = {}
    holders: list[Holder] = []
    codes = []
    for block in blocks:
        for holder in block.holders:
            if holder.uid not in places:
                places[holder.uid] = len(holders)
                holders.append(holder)
        new = np.array([*(places[h.uid] for h in block.holders), -1], np.int16)
        codes.append(new[block.holder])
    arrays = {
        name: np.concatenate([getattr(b, name) for b in blocks], axis=-1)
        for name in Block.__struct_fields__
        if name not in {"devices", "holders", "holder", "every_s"}
    }
    return Block(
        devices=blocks[0].devices,
        holders=tuple(holders),
        holder=np.concatenate(codes, axis=1),
        every_s=blocks[0].every_s,
        **arrays,
    )


def thin_block(block: Block, every_s: float) -> Block:
    """Return a block as seen by a scraper with a longer interval: only the ticks of its scrapes.

    Scrapes are at whole multiples of `every_s` since the epoch.
    """
    due = np.flatnonzero(block.ticks % every_s == 0)
    arrays = {
        name: getattr(block, name)[..., due]
        for name in Block.__struct_fields__
        if name not in {"devices", "holders", "every_s"}
    }
    return Block(devices=block.devices, holders=block.holders, every_s=every_s, **arrays)


def strand(block: Block, waits: Iterable[tuple[Sequence[int], float, float]]) -> Block:
    """Return a block whose free devices are stranded while a pod waits for such devices.

    The scheduler places every pod that fits, so devices that are free beside a waiting pod do not
    fit it.
    """
    waited: dict[tuple[int, ...], np.ndarray[tuple[int], np.dtype[np.bool_]]] = {}
    for rows, start_s, end_s in waits:
        marks = waited.setdefault(tuple(rows), np.zeros(len(block.ticks), np.bool_))
        begin, end = np.searchsorted(block.ticks, [start_s, end_s]).tolist()
        marks[begin:end] = True
    if not waited:
        return block
    state = block.state.copy()
    for rows, marks in waited.items():
        at = np.ix_(np.array(rows, np.intp), np.flatnonzero(marks))
        free = state[at] == STATES.index("free")
        state[at] = np.where(free, STATES.index("stranded"), state[at])
    return msgspec.structs.replace(block, state=state)
