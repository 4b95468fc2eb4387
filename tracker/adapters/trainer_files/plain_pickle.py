"""Reads plain values from a pickle without running anything in it: no class is imported and nothing is called."""

import pickletools
from collections.abc import Callable, Mapping, Sequence

_MARK = object()


def plain_attributes(pickled: bytes) -> dict[str, object]:
    """Return the attributes of the pickled object: texts, numbers and enums as their values, all others as None.

    Raises:
        ValueError, IndexError, TypeError, StopIteration: it is damaged.
    """
    stack: list[object] = []
    memo: dict[object, object] = {}
    for opcode, argument, _ in pickletools.genops(pickled):
        if opcode.name == "MEMOIZE" or opcode.name.endswith("PUT"):
            memo[len(memo) if argument is None else argument] = stack[-1]
        elif opcode.name.endswith("GET"):
            stack.append(memo.get(argument))
        elif opcode.name == "STOP" and isinstance(stack[-1], dict):
            return stack[-1]
        else:
            value = _value(opcode.name, argument, _taken(stack, opcode.stack_before))
            stack += [value for _ in opcode.stack_after]
    return {}


def _taken(stack: list[object], kinds: Sequence[object]) -> list[object]:
    count = len(kinds)
    if pickletools.stackslice in kinds:  # all values above a mark
        count += next(above for above, value in enumerate(reversed(stack)) if value is _MARK) - 1
    taken = [stack.pop() for _ in range(count)]
    return [value for value in reversed(taken) if value is not _MARK]


def _value(name: str, argument: object, taken: list[object]) -> object:
    if name in _MAKE:
        return _MAKE[name](taken)
    if name.endswith(("INT", "INT1", "INT2", "LONG1", "FLOAT", "UNICODE")):
        return argument
    return None


def _with_items(taken: list[object]) -> object:
    target, *items = taken
    if isinstance(target, dict):
        target.update((key, value) for key, value in zip(items[::2], items[1::2], strict=True) if isinstance(key, str))
    return target


_MAKE: Mapping[str, Callable[[list[object]], object]] = {
    "MARK": lambda _: _MARK,
    "EMPTY_DICT": lambda _: {},
    "SETITEM": _with_items,
    "SETITEMS": _with_items,
    "TUPLE1": tuple,
    "REDUCE": lambda taken: taken[1][0] if isinstance(taken[1], tuple) else None,  # an enum
    "BUILD": lambda taken: taken[1],
}
