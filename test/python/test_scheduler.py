"""nsa.Scheduler: requests that come and go get the bits that they get alone."""

import subprocess

import numpy as np
import pytest

import nsa
from programs import BIN, train_on_ids
from test_generate import CHECKPOINT


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train_on_ids(tmp_path_factory.mktemp("run"), CHECKPOINT)


@pytest.fixture(scope="module")
def stepping(run):
    """Takes in a prompt an id a step."""
    return nsa.Scheduler(run, slots=4, context=128, prefill_chunk=0)


@pytest.fixture(scope="module")
def scheduler(run):
    return nsa.Scheduler(run, slots=4, context=128, prefill_chunk=16)


@pytest.fixture(scope="module")
def paged(run):
    """Half of the pages that all slots would need: 4 of 8 of 16 ids."""
    return nsa.Scheduler(run, slots=4, context=128, prefill_chunk=16, pages=16)


def drain(scheduler, got=None):
    """Steps until nothing is left to do: {request: its tokens}."""
    got = {} if got is None else got
    while scheduler.running or scheduler.waiting:
        for token in scheduler.step():
            got.setdefault(token.request, []).append(token[1:])
    return got


def alone(scheduler, prompt, options):
    request = scheduler.add(prompt, **options)
    return drain(scheduler)[request]


def jobs(rng, count, logprobs):
    """Prompts of 1 to 60 ids, around the blocks of the model, with options of all kinds."""
    return [(rng.integers(0, 256, rng.integers(1, 61)).tolist(),
             {"tokens": int(rng.integers(1, 40)), "temperature": float(rng.choice([0, 0.7, 1.5])), "top_k": int(rng.choice([0, 5])),
              "top_p": float(rng.choice([1, 0.8])), "seed": int(rng.integers(1 << 40)), "logprobs": logprobs[number % 2],
              "ignore_end": True})
            for number in range(count)]


@pytest.mark.parametrize("name, logprobs", [("scheduler", (2, None)), ("stepping", (None, None)), ("paged", (2, None)), ("paged", (None, None))])
def test_requests_that_join_and_leave_have_bits_that_they_have_alone(request, rng, name, logprobs):
    """Tokens of requests without log-probabilities are chosen by the program where all are, else by the host."""
    scheduler = request.getfixturevalue(name)
    given, got, numbers, cancelled = jobs(rng, 14, logprobs), {}, [], None
    for number, (prompt, options) in enumerate(given):
        numbers.append(scheduler.add(prompt, **options))
        for token in [token for _ in range(rng.integers(0, 9)) for token in scheduler.step()]:
            got.setdefault(token.request, []).append(token[1:])
        if number == 5:
            cancelled = numbers[5] if scheduler.cancel(numbers[5]) else None
    drain(scheduler, got)
    assert not scheduler.cancel(numbers[0])
    for number, job in zip(numbers, given):
        own, wanted = got.get(number, []), alone(scheduler, *job)
        assert own == (wanted[:len(own)] if number == cancelled else wanted)
        assert [token[2] for token in wanted] == [None] * (job[1]["tokens"] - 1) + ["length"]


def test_shared_beginning_is_taken_in_once_and_changes_no_bit(run, rng):
    beginning, tails = rng.integers(0, 256, 75).tolist(), rng.integers(0, 256, (5, 9)).tolist()
    options = {"tokens": 20, "seed": 2, "logprobs": 1, "ignore_end": True}
    shared = nsa.Scheduler(run, slots=4, context=128, prefill_chunk=16)
    numbers = [shared.add(beginning + tail, **options) for tail in tails]
    got, steps = {}, 0
    while len(got) < len(numbers):
        steps += 1
        for token in shared.step():
            got.setdefault(token.request, []).append(token[1:])
    # 4 parts, and for each prompt 2 parts with its tail; the last one waits until a slot is free.
    assert steps <= 4 + 2 * 4 + 20 + 2
    drain(shared, got)
    for number, tail in zip(numbers, tails):
        single = nsa.Scheduler(run, slots=4, context=128, prefill_chunk=16)
        assert alone(single, beginning + tail, options) == got[number]


def test_beginning_that_a_shorter_prompt_replaced_is_not_shared(run, rng):
    prompt, options = rng.integers(0, 256, 20).tolist(), {"tokens": 20, "seed": 2, "logprobs": 1, "ignore_end": True}
    scheduler = nsa.Scheduler(run, slots=2, context=64, prefill_chunk=16)
    wanted = alone(scheduler, prompt, options)
    # The first slot has its 16 ids until a part of 2 takes their place.
    numbers = [scheduler.add(each, **options) for each in (prompt[5:7], prompt)]
    assert drain(scheduler)[numbers[1]] == wanted


def texts(tokens):
    """Without log-probabilities, which other kernels round otherwise."""
    return [token[:3] for token in tokens]


def test_too_few_pages_make_requests_wait_and_change_no_bit(paged, scheduler, rng):
    given = [(rng.integers(0, 256, length).tolist(), {"tokens": tokens, "seed": 3, "logprobs": 2, "ignore_end": True})
             for length, tokens in ((17, 63), (60, 40), (100, 28), (1, 15), (16, 1), (127, 1))]
    wanted = [alone(paged, *job) for job in given]
    assert [texts(tokens) for tokens in wanted] == [texts(alone(scheduler, *job)) for job in given]
    numbers = [paged.add(prompt, **options) for prompt, options in given]
    got = {}
    # 5, 7, 8, 1, 1 and 8 pages of 16: the third request waits for both before it, and all others for it.
    for token in paged.step():
        got.setdefault(token.request, []).append(token[1:])
    assert (paged.running, paged.waiting) == (2, 4)
    drain(paged, got)
    assert [got[number] for number in numbers] == wanted
    # What a cancelled request had is free at the next step.
    prompts = rng.integers(0, 256, (3, 100)).tolist()
    numbers = [paged.add(prompt, **given[2][1]) for prompt in prompts]
    paged.step()
    assert (paged.running, paged.waiting) == (2, 1) and paged.cancel(numbers[0])
    paged.step()
    assert (paged.running, paged.waiting) == (2, 0)
    got = drain(paged)
    assert [got[number] for number in numbers[1:]] == [alone(paged, prompt, given[2][1]) for prompt in prompts[1:]]


def test_prompts_that_begin_alike_share_pages(run, paged, rng):
    beginning, tails = rng.integers(0, 256, 96).tolist(), rng.integers(0, 256, (4, 9)).tolist()
    options = {"tokens": 20, "seed": 2, "logprobs": 1, "ignore_end": True}
    wanted = [alone(paged, beginning + tail, options) for tail in tails]
    # 6 pages that all have, and 2 of each of 4; without, a second request would wait for the first.
    shared = nsa.Scheduler(run, slots=4, context=128, prefill_chunk=16, pages=14)
    numbers = [shared.add(beginning + tails[0], **options)]
    got = {}
    for _ in range(8):
        for token in shared.step():
            got.setdefault(token.request, []).append(token[1:])
    numbers += [shared.add(beginning + tail, **options) for tail in tails[1:]]
    for token in shared.step():
        got.setdefault(token.request, []).append(token[1:])
    assert (shared.running, shared.waiting) == (4, 0)
    drain(shared, got)
    assert [got[number] for number in numbers] == wanted
    # It outlives its requests until others need the pages.
    assert alone(shared, beginning + tails[1], options) == wanted[1]
    other = rng.integers(0, 256, 100).tolist()
    assert alone(shared, other, options) == alone(paged, other, options)
    assert alone(shared, beginning + tails[2], options) == wanted[2]


def test_request_for_more_pages_than_there_are_is_an_error(run):
    scheduler = nsa.Scheduler(run, slots=2, context=128, prefill_chunk=16, pages=7)
    assert scheduler.longest == 112 and len(alone(scheduler, [1] * 100, {"tokens": 12, "ignore_end": True})) == 12
    with pytest.raises(nsa.InputError, match="the prompt has 100 tokens and 14 are to follow, which take 8 pages of 16 tokens, "
                       "more than the 7 that there are"):
        scheduler.add([1] * 100, tokens=14)
    with pytest.raises(nsa.CompileError, match="--pages needs --prefill-chunk"):
        nsa.Scheduler(run, context=128, prefill_chunk=0, pages=7)


@pytest.mark.parametrize("pages", [8, 7])
def test_nsa_generate_takes_an_artefact_with_the_pages_of_a_context(run, scheduler, tmp_path, pages):
    artifact = nsa.compile(nsa.model_text((run / "config.yaml").read_text()), context=128, micro_batch=1, prefill_chunk=16, pages=pages)
    artifact.save(tmp_path / "pages.nsax")
    options = {"tokens": 30, "temperature": 0.9, "seed": 11}
    said = subprocess.run([BIN / "nsa-generate", run, "--artifact", tmp_path / "pages.nsax", "--prompt", "documents do not end", "--tokens",
                           "30", "--temperature", "0.9", "--seed", "11"], capture_output=True)
    if pages == 8:
        assert said.stdout.decode(errors="replace") == "".join(token[1] for token in alone(scheduler, "documents do not end", options)) + "\n"
    else:
        assert b"1 sequences of a context of 128 tokens take 8 pages of 16 tokens, the program has 7" in said.stderr


def test_request_has_tokens_of_generate_and_nsa_generate_with_its_seed(scheduler, run):
    prompts, options = ["ab", "documents do not end", "x"], {"tokens": 30, "temperature": 0.9, "top_p": 0.9, "seed": 11}
    numbers = [scheduler.add(prompt, number=number, **options) for number, prompt in enumerate(prompts)]
    got = drain(scheduler)
    texts = ["".join(token[1] for token in got[number]) for number in numbers]
    assert texts == nsa.Model(run).generate(prompts, context=128, **options)
    said = subprocess.run([BIN / "nsa-generate", run, *[word for prompt in prompts for word in ("--prompt", prompt)], "--tokens", "30",
                           "--temperature", "0.9", "--top-p", "0.9", "--seed", "11"], check=True, capture_output=True).stdout
    assert said.decode(errors="replace") == "".join(f"=== {number}\n{text}\n" for number, text in enumerate(texts, 1))


def test_logprobs_are_those_of_model_and_name_the_most_likely(scheduler, run):
    tokens = alone(scheduler, [1, 2, 3], {"tokens": 20, "logprobs": 3, "ignore_end": True})
    ids = [token[0] for token in tokens]
    wanted = nsa.Model(run).logprobs([1, 2, 3], ids, context=128)
    np.testing.assert_allclose([token[3][0][1] for token in tokens], wanted, atol=1e-5)
    for token, _, _, ((own, value), *top) in tokens:
        values = [one[1] for one in top]
        assert own == token and len(top) == 3 and values == sorted(values, reverse=True) and values[0] >= value


def test_stop_ids_and_texts_end_a_request_before_them(scheduler):
    options = {"tokens": 40, "seed": 3, "ignore_end": True}
    tokens = alone(scheduler, "ab", options)
    text = "".join(token[1] for token in tokens)
    end = tokens[9][0]
    first = [token[0] for token in tokens].index(end)
    ended = alone(scheduler, "ab", {**options, "stop_ids": [end]})
    assert [token[0] for token in ended] == [token[0] for token in tokens[:first + 1]] and ended[-1][2] == "stop"
    stopped = alone(scheduler, "ab", {**options, "stop": [text[20:23], "never said"]})
    assert "".join(token[1] for token in stopped) == text.split(text[20:23])[0] and stopped[-1][2] == "stop"
    assert scheduler.running == 0


def test_logits_that_are_not_finite_end_their_request_alone(run):
    model = nsa.Model(run)
    name = next(name for name in model.parameters if name.startswith("embed"))
    broken = model.parameters[name]
    broken[7] = np.nan
    model.parameters[name] = broken
    sequences = model._sequences([[1], [7]], 128)
    numbers = [sequences.add([*prompt, 3], 9, (0, 0, 1), 0, False) for prompt in ([1], [7])]
    got = {number: [] for number in numbers}
    while any(sequences.count()):
        for token in sequences.step():
            got[token.request].append(token)
    assert len(got[numbers[0]]) == 9 and [token.finish for token in got[numbers[1]]] == ["not finite"]
    with pytest.raises(nsa.RunError, match="the logits of prompt 2 are not finite after 0 tokens more"):
        model.generate([[1, 3], [7, 3]], context=128, tokens=3)


@pytest.mark.parametrize("how", [{"prefill_chunk": 16}, {"prefill_chunk": 0}, {"prefill_chunk": 16, "pages": 8}])
def test_slot_and_pages_of_request_that_was_not_finite_are_as_new(run, how):
    model = nsa.Model(run)
    name = next(name for name in model.parameters if name.startswith("embed"))
    broken = model.parameters[name]
    broken[7] = np.nan
    module = model._load_caches(model._compile(micro_batch=1, context=128, **how))
    module.write(name, broken)
    sequences = model._sequences([[1]], 128, module=module)

    def tokens(prompt):
        return [token[1:] for token in sequences.run([sequences.add(prompt, 20, (0, 0, 1), 0, False)])[0][0]]
    wanted = tokens([1, 3, 5])
    with pytest.raises(nsa.RunError, match="not finite"):
        tokens([7] * 40)
    assert tokens([1, 3, 5]) == wanted
    # One that leaves before it has logits to draw from.
    cancelled = sequences.add([7] * 40, 20, (0, 0, 1), 0, False)
    sequences.step()
    assert sequences.cancel(cancelled) and tokens([1, 3, 5]) == wanted


@pytest.mark.parametrize("prompt,options,message", [
    ([], {}, "the prompt is empty: it needs at least one token"),
    ([256], {}, "ids have the value 256, expected 0 to 255"),
    ([1] * 100, {"tokens": 29}, "the prompt has 100 tokens and 29 are to follow, more than the context of 128"),
    ([1], {"temperature": -1}, "temperature is -1, expected 0 or more"),
    ([1], {"stop": "a"}, "stop is for texts, and a prompt is ids"),
    ("a", {"stop": ""}, "stop has an empty text, which every text contains"),
    ([1], {"logprobs": -1}, "logprobs is -1, expected an integer from 0 to 1000"),
    ([1], {"stop_ids": ["a"]}, "stop_ids\\[0\\] is 'a', expected an integer"),
])
def test_add_wrong_arguments_are_errors(scheduler, prompt, options, message):
    with pytest.raises(nsa.InputError, match=message):
        scheduler.add(prompt, **options)
    assert scheduler.waiting == 0


def test_artefact_is_used_as_it_is(run, scheduler):
    artifact = nsa.compile(nsa.model_text((run / "config.yaml").read_text()), context=128, micro_batch=4)
    own = nsa.Scheduler(run, artifact=artifact.artifact)
    assert (own.slots, own.context) == (4, 128)
    options = {"tokens": 9, "seed": 5}
    assert alone(own, "ab", options) == alone(scheduler, "ab", options)
    with pytest.raises(nsa.InputError, match="artifact is compiled, and slots cannot be chosen for it"):
        nsa.Scheduler(run, artifact=artifact.artifact, slots=4)
