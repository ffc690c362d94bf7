"""Synthetic tasks with known answers: recall, copying, a needle in text. All samples follow from a seed."""

import dataclasses

import numpy

from nsa._arguments import instance, takes, whole
from nsa._runtime import InputError
from nsa.evaluate._scores import MOST_IDS, Scorer, check_vocabulary

_ARGUMENTS = {"scorer": instance(Scorer), "samples": whole(1), "seed": whole(0, (1 << 64) - 1), "max_distance": whole()}

# The shortest distance that is asked over.
_SHORTEST = 8

_NAMES = ("Anna", "Boris", "Clara", "David", "Elena", "Frank", "Greta", "Hugo", "Irene", "Jonas", "Karin", "Lucas")
_SENTENCE = (
    ("The baker", "A small bird", "The old river", "Our neighbour", "The train", "A quiet child", "The north wind",
     "A tall ship"),
    ("passed", "watched", "followed", "crossed", "remembered", "left", "reached", "found"),
    ("the stone bridge", "a field of wheat", "the empty square", "a wooden door", "the harbour", "a narrow road",
     "the hills"),
    ("before noon", "in the rain", "without a word", "after the storm", "every spring", "on Sunday", "at night",
     "once again"),
)


@dataclasses.dataclass
class _Question:
    """Ids with answers in them: (index of the first id, how many, distance to where they were shown)."""

    ids: numpy.ndarray
    answers: list


class _Alphabet:
    """Ids of keys, values and filler, of which none is another, and the one that ends documents before them."""

    def __init__(self, scorer, vocab):
        if vocab:
            # The layout of nsa-data synth --kind recall: 0 ends documents, then keys, values, filler.
            check_vocabulary(scorer, vocab, "--vocab")
            if vocab < 5:
                raise InputError(f"--vocab is {vocab}, keys, values and filler need at least 5 ids")
            each, ids = (vocab - 2) // 2, numpy.arange(1, vocab, dtype=numpy.int32)
            self.start = numpy.zeros(1, numpy.int32)
            self.keys, self.values, self.filler = ids[:each], ids[each:2 * each], ids[2 * each:]
            return
        words = [i for i, text in enumerate(scorer.text.bytes) if text.isascii() and text.strip().isalnum()]
        words = numpy.array([i for i in words if i < scorer.model().vocab], numpy.int32)
        if len(words) < 12:
            raise InputError("the checkpoint's tokens stand for no text: --vocab N says which ids recall and copying "
                             "take")
        self.start = _start(scorer)
        self.keys, self.values, self.filler = words[0::3], words[1::3], words[2::3]


def _start(scorer):
    return numpy.array([] if scorer.text.end is None else [scorer.text.end], numpy.int32)


def _doubling(scorer, room, limit):
    """Distances from the shortest on, as far as `room` tokens and the limit go."""
    most = min(room, limit or room)
    if most < _SHORTEST:
        raise InputError(f"the task asks over {most} tokens at most, expected at least {_SHORTEST}; the model takes "
                         f"{scorer.longest} tokens (fewer --pairs, a larger --max-distance, or --seq-len N)")
    return [_SHORTEST << power for power in range((most // _SHORTEST).bit_length())]


def _ask(scorer, questions, exact, **more):
    """Accuracy and mean loss of the answers, and by distance or by ranges of distances that double.

    An answer is right if no other id is likelier than any of its own, given those before; its loss
    is the sum over its ids.
    """
    counts = {}
    for question, (nats, best) in zip(questions, scorer.score([question.ids for question in questions])):
        for first, length, distance in question.answers:
            key = distance if exact else distance.bit_length()
            part = slice(first - 1, first - 1 + length)
            count, right, total = counts.get(key, (0, 0, 0.0))
            counts[key] = (count + 1, right + int(best[part].all()), total + float(nats[part].sum()))

    def describe(values):
        return {"answers": values[0], "accuracy": values[1] / values[0], "loss": values[2] / values[0]}

    rows = [{"from": key if exact else 1 << (key - 1), "to": key if exact else (1 << key) - 1, **describe(counts[key])}
            for key in sorted(counts)]
    return {**describe([sum(column) for column in zip(*counts.values())]), **more, "by_distance": rows}


@takes(**_ARGUMENTS, pairs=whole(1), vocab=whole(0, MOST_IDS))
def recall(scorer, *, samples=32, seed=1, pairs=4, vocab=0, max_distance=0):
    """Multi-query associative recall (arXiv 2312.04927): keys with values, filler, each key again with its value.

    Keys differ; values, filler and the order of the queries are drawn. With `vocab` ids are those of
    nsa-data synth --kind recall, otherwise letters and words of the tokenizer. Filler has 8, 16,
    ... tokens; distances are from where a value is shown to where it is the answer.
    """
    alphabet = _Alphabet(scorer, vocab)
    if not 1 <= pairs <= len(alphabet.keys):
        raise InputError(f"--pairs is {pairs}, expected 1 to {len(alphabet.keys)}, as many as there are keys")
    random, questions = numpy.random.default_rng([seed, 1]), []
    shown = len(alphabet.start) + 1 + 2 * numpy.arange(pairs)
    for gap in _doubling(scorer, scorer.longest + 1 - len(alphabet.start) - 4 * pairs, max_distance):
        asked = len(alphabet.start) + 2 * pairs + gap + 1 + 2 * numpy.arange(pairs)
        for _ in range(samples):
            keys, values = random.choice(alphabet.keys, pairs, replace=False), random.choice(alphabet.values, pairs)
            order = random.permutation(pairs)
            first, again = (numpy.stack([keys[chosen], values[chosen]], 1).ravel() for chosen in (slice(None), order))
            ids = numpy.concatenate([alphabet.start, first, random.choice(alphabet.filler, gap), again])
            answers = [(int(at), 1, int(at - shown[pair])) for at, pair in zip(asked, order)]
            questions.append(_Question(ids, answers))
    return _ask(scorer, questions, exact=False, pairs=pairs, chance=1 / len(alphabet.values))


@takes(**_ARGUMENTS, vocab=whole(0, MOST_IDS))
def copying(scorer, *, samples=32, seed=1, vocab=0, max_distance=0):
    """Drawn ids, then the same again, of which each but the first is an answer; the distance is how many there are."""
    alphabet = _Alphabet(scorer, vocab)
    ids = numpy.concatenate([alphabet.keys, alphabet.values, alphabet.filler])
    random, questions = numpy.random.default_rng([seed, 2]), []
    for length in _doubling(scorer, (scorer.longest + 1 - len(alphabet.start)) // 2, max_distance):
        first = len(alphabet.start) + length
        for _ in range(samples):
            drawn = random.choice(ids, length)
            questions.append(_Question(numpy.concatenate([alphabet.start, drawn, drawn]),
                                       [(first + i, 1, length) for i in range(1, length)]))
    return _ask(scorer, questions, exact=True, chance=1 / len(ids))


@takes(**_ARGUMENTS)
def needle(scorer, *, samples=32, seed=1, max_distance=0):
    """A number told somewhere in text of drawn sentences, and asked for at its end.

    "The number of Anna is 48213." stands anywhere between the sentences, and the text ends with "The
    number of Anna is"; the answer is the number. Texts get twice as long up to what the model takes;
    distances are in tokens from the number to the answer.
    """
    random, questions = numpy.random.default_rng([seed, 3]), []
    told = [f" The number of {name} is" for name in _NAMES]
    numbers = [f" {number}" for number in random.integers(10000, 100000, 100)]
    sentences = [" " + " ".join(str(random.choice(part)) for part in _SENTENCE) + "." for _ in range(100)]
    encoded = scorer.text.encode([*told, *numbers, *sentences, "."])
    told, numbers, sentences, [stop] = encoded[:12], encoded[12:112], encoded[112:212], encoded[212:]
    start = _start(scorer)
    fixed = len(start) + 2 * max(map(len, told)) + 2 * max(map(len, numbers)) + len(stop)
    for room in _doubling(scorer, scorer.longest + 1 - fixed, max_distance):
        for _ in range(samples):
            question, number = told[random.integers(len(told))], numbers[random.integers(len(numbers))]
            hay = _draw_hay(random, sentences, room)
            at = int(random.integers(len(hay) + 1))
            before = numpy.concatenate([start, *hay[:at], question])
            after = numpy.concatenate([number, stop, *hay[at:], question])
            questions.append(_Question(numpy.concatenate([before, after, number]).astype(numpy.int32),
                                       [(len(before) + len(after), len(number), len(after))]))
    return _ask(scorer, questions, exact=False)


def _draw_hay(random, sentences, room):
    """Sentences of `room` tokens at most."""
    hay = []
    while True:
        sentence = sentences[random.integers(len(sentences))]
        room -= len(sentence)
        if room < 0:
            return hay
        hay.append(sentence)
