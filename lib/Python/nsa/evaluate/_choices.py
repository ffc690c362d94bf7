"""Multiple choice: which ending of a context is the likeliest."""

import json

from nsa._arguments import instance, path as _path, takes
from nsa._files import open_file
from nsa._runtime import InputError
from nsa.evaluate._scores import Scorer

# Names that data sets have for the same.
_CONTEXT, _QUESTION = ("context", "ctx"), ("question", "query")
_CHOICES, _ANSWER = ("choices", "endings"), ("answer", "label", "gold")
# What says nothing about the text: numbers of items, and what HellaSwag has beside it and, in `ctx`, together.
_NOTES = ("id", "ind", "activity_label", "ctx_a", "ctx_b", "source_id", "split", "split_type")


def _find(record, names, place):
    found = [name for name in names if name in record]
    if not found:
        raise InputError(f"{place} has none of {', '.join(names)}: it has {', '.join(record) or 'nothing'}")
    if len(found) > 1:
        raise InputError(f"{place} has both {found[0]} and {found[1]}, which are one thing")
    return record[found[0]]


def _find_context(record, place):
    """The context, and the question after it, if there is one."""
    parts = [_find(record, names, place) for names in (_CONTEXT, _QUESTION) if any(name in record for name in names)]
    if not parts:
        _find(record, _CONTEXT + _QUESTION, place)
    for part in parts:
        if not isinstance(part, str):
            raise InputError(f"the context in {place} is a {type(part).__name__}, expected text")
    return "".join(_split(*parts)) if all(parts) and len(parts) == 2 else parts[-1] or parts[0]


def _read_item(line, place):
    """(context, choices, index of the right one)"""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place} is no JSON: {error}") from error
    if not isinstance(record, dict):
        raise InputError(f"{place} is a {type(record).__name__}, expected an object")
    known = _CONTEXT + _QUESTION + _CHOICES + _ANSWER + _NOTES
    for name in record:
        if name not in known:
            raise InputError(f"{place} has the unknown key {json.dumps(name)[:80]}: known are {', '.join(known)}")
    context = _find_context(record, place)
    choices, answer = (_find(record, names, place) for names in (_CHOICES, _ANSWER))
    if not isinstance(choices, list) or len(choices) < 2 or not all(
            isinstance(text, str) and text.strip() for text in choices):
        raise InputError(f"the choices in {place} are {json.dumps(choices)[:80]}, expected two or more texts")
    if isinstance(answer, str) and answer.isdecimal():
        answer = int(answer)
    if isinstance(answer, bool) or not isinstance(answer, int) or not 0 <= answer < len(choices):
        raise InputError(
            f"the answer in {place} is {json.dumps(answer)}, expected a number from 0 to {len(choices) - 1}")
    return context, choices, answer


@takes(path=_path)
def read_items(path):
    """[(context, choices, index of the right one)] of a file of JSON lines."""
    try:
        with open_file(path, "r", encoding="utf-8") as file:
            items = [
                _read_item(line, f"line {number} of '{path}'") for number, line in enumerate(file, 1) if line.strip()
            ]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read '{path}': {getattr(error, 'strerror', None) or error}") from error
    if not items:
        raise InputError(f"'{path}' has no lines")
    return items


def _split(context, choice):
    """A context and how it goes on: one space is between them, and belongs to the choice, as tokenizers expect."""
    kept = context.rstrip()
    blank = context[len(kept):] or (" " if kept and not choice[0].isspace() else "")
    return kept, blank + choice


def _fit(scorer, start, context, both, place):
    """The ids of a context and a choice, of which early ones of the context are left out if they are too many."""
    # Where the two meet, ids may be others than those of the context alone.
    shared = 0
    while shared < min(len(context), len(both) - 1) and context[shared] == both[shared]:
        shared += 1
    # As in lm-eval: what ends documents stands before a choice without context only.
    ids, length = [*(() if shared else start), *both], len(both) - shared
    if length > scorer.longest:
        raise InputError(
            f"{place} has a choice of {length} tokens, the model takes {scorer.longest} (--seq-len N for more)")
    ids = ids[-(scorer.longest + 1):]
    if len(ids) == length:
        raise InputError(f"{place} has no context, and the tokenizer no token that could stand before a choice")
    return ids, length, shared > len(ids) - length


@takes(scorer=instance(Scorer), path=_path)
def choices(scorer, path):
    """Accuracy on multiple choice as HellaSwag is scored.

    Each line of the file has a context, choices and the index of the right one. The choice is taken
    whose tokens have the largest sum of log-likelihoods given the context (accuracy), by character of
    the choice (accuracy_per_character, acc_norm of lm-eval) or by token (accuracy_per_token).
    """
    items = read_items(path)
    start = [] if scorer.text.end is None else [scorer.text.end]
    pairs = [_split(context, choice) for context, options, _ in items for choice in options]
    encoded = scorer.text.encode([text for context, choice in pairs for text in (context, context + choice)])
    places = [
        f"item {number}, choice {i}," for number, (_, options, _) in enumerate(items) for i in range(len(options))
    ]
    fitted = [_fit(scorer, start, context, both, f"'{path}', {place}")
              for context, both, place in zip(encoded[0::2], encoded[1::2], places)]
    scores = iter(scorer.score([ids for ids, _, _ in fitted]))
    lengths = iter(fitted)
    right = {"accuracy": 0, "accuracy_per_character": 0, "accuracy_per_token": 0}
    for _, options, answer in items:
        sums, by_character, by_token = [], [], []
        for choice in options:
            (nats, _), (_, length, _) = next(scores), next(lengths)
            sums.append(float(nats[-length:].sum()))
            by_character.append(sums[-1] / len(choice))
            by_token.append(sums[-1] / length)
        for name, costs in zip(right, (sums, by_character, by_token)):
            right[name] += costs.index(min(costs)) == answer
    return {"file": str(path), "items": len(items), **{name: count / len(items) for name, count in right.items()},
            "chance": sum(1 / len(options) for _, options, _ in items) / len(items),
            "truncated": sum(cut for _, _, cut in fitted)}
