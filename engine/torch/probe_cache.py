"""A KV cache that is written in place and shows what it holds.

Serving engines write each new key and value into memory that was set aside, and
attend over the tokens that are there. Of transformers' own caches, the dynamic
one copies itself in every step and the static one attends over its empty part.
"""

from __future__ import annotations

import functools
from typing import Any, List, Tuple


class Reserved:
    """Marks cache layers with memory for all their tokens."""


def tensors(layer: Any) -> List[Any]:
    """The tensors that a cache layer holds, with the room that is set aside."""
    held = getattr(layer, "room", None) or (getattr(layer, "keys", None), getattr(layer, "values", None))
    return [t for t in held if t is not None]


@functools.lru_cache(maxsize=None)
def reserved_layer(utils: Any) -> type:
    """The class of cache layers that write in place into memory set aside."""

    class ReservedLayer(utils.DynamicLayer, Reserved):
        def __init__(self, length: int):
            super().__init__()
            self.length, self.used, self.room = length, 0, None

        def update(self, keys: Any, values: Any, *args: Any, **kwargs: Any) -> Tuple[Any, Any]:
            if self.room is None:
                self._reserve(keys, values)
            end = self.used + keys.shape[-2]
            self.room[0][:, :, self.used : end] = keys
            self.room[1][:, :, self.used : end] = values
            return self._show(end)

        def _reserve(self, keys: Any, values: Any) -> None:
            self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True
            self.room = tuple(t.new_empty(t.shape[0], t.shape[1], self.length, t.shape[3]) for t in (keys, values))

        def _show(self, end: int) -> Tuple[Any, Any]:
            self.used = end
            self.keys, self.values = self.room[0][:, :, :end], self.room[1][:, :, :end]
            return self.keys, self.values

        def fill(self, keys: Any, values: Any, context: int) -> None:
            """Holds context random tokens, shaped as the given ones."""
            self._reserve(keys, values)
            for room in self.room:
                room.uniform_(-1, 1)
            self._show(context)

        def stuff(self, begin: int, end: int) -> None:
            """Holds random tokens from one place to another."""
            for room in self.room:
                room[:, :, begin:end].uniform_(-1, 1)

        def cut(self, context: int) -> None:
            """Forgets all tokens but the first ones."""
            if self.room is not None:
                self._show(context)

    return ReservedLayer
