"""consistent=True: an id has the same bits generated and in a prompt."""

import subprocess

import numpy as np
import pytest

import nsa
from nsa._scheduler import Sequences
from programs import BIN, train_on_ids

CHECKPOINT = """model: {dim: 32, n_layers: 3, n_heads: 4, n_kv_groups: 2, d_k: 16, d_v: 16, mlp: silu, layers: "nsa, dense, window:33"}
nsa: {l: 8, d: 4, l_sel: 16, n_sel: 4, w: 20, phi: mlp}
train: {steps: 1, seq_len: 64, batch_size: 2, micro_batch: 2, warmup_steps: 0, final_eval_batches: 1, sample_bytes: 0}
"""
LENGTHS = [1, 7, 15, 16, 17, 31, 33, 63, 64, 65, 100]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    model = nsa.Model(train_on_ids(tmp_path_factory.mktemp("run"), CHECKPOINT))
    rng = np.random.default_rng(1)
    for name, value in sorted(model.parameters.items()):
        if value.ndim > 1:
            model.parameters[name] = rng.standard_normal(value.shape).astype(np.float32) * 0.3
    return model


def open_sequences(model, slots, consistent=True, **options):
    module = model._load_caches(model._compile(micro_batch=slots, context=150, selection=True, **options))
    for name in model.parameters.changed:
        module.write(name, model.parameters[name])
    return Sequences(model, module, consistent=consistent)


def draw(sequences, prompts, tokens, given=None):
    """Ids, log-probabilities of all ids that there are, and blocks."""
    numbers = [sequences.add(prompt, tokens, (1, 0, 1), 7, False, stream=row, given=given or (), logprobs=255)
               for row, prompt in enumerate(prompts)]
    found, blocks = sequences.run(numbers, return_selection=True)
    return [([token.id for token in own], [token.logprobs for token in own], lists) for own, lists in zip(found, blocks)]


def count_differences(made, prompts, whole, step):
    """Of what was generated, how much is not what the same ids have as a prompt: logits, and lists of blocks."""
    logits = lists = 0
    for prompt, (ids, logprobs, blocks) in zip(prompts, made):
        for count in range(0, len(ids), step):
            [(_, [wanted], own)] = draw(whole, [prompt + ids[:count]], 1, given=ids[count:count + 1])
            logits += logprobs[count] != wanted
            lists += (blocks[:, :, :own.shape[2]] != own).any(-1).sum()
    return logits, lists


@pytest.mark.parametrize("part,precision,pages", [
    (16, "fp32", 0), (48, "fp32", 24), (64, "bf16", 0), (4, "bf16", 30)])
def test_generated_ids_have_bits_that_they_have_in_a_prompt(model, rng, part, precision, pages):
    options = {"prefill_chunk": part, "precision": precision, "pages": pages}
    beginning = rng.integers(0, 256, 100).tolist()
    # Some begin alike; three slots, which the others wait for.
    prompts = [beginning[:length] if length % 2 else rng.integers(0, 256, length).tolist() for length in LENGTHS]
    made, whole = draw(open_sequences(model, 3, **options), prompts, 40), open_sequences(model, 1, **options)
    assert count_differences(made, prompts, whole, 1 if part == 16 else 7) == (0, 0)
    if part == 16:
        # Without the mode, they differ.
        usual = draw(open_sequences(model, 1, consistent=False, **options), prompts[-1:], 40)
        assert count_differences(usual, prompts[-1:], whole, 3)[0] > 0


def test_model_logprobs_are_those_of_generation_wherever_it_began(model, rng):
    prompts = [rng.integers(0, 256, length).tolist() for length in (3, 70)]
    options = {"context": 130, "consistent": True}
    drawn, wanted, blocks = model.generate(prompts, tokens=30, seed=3, ignore_end=True, return_logprobs=True, return_selection=True,
                                           **options)
    for count in (0, 1, 13, 29):
        found = model.logprobs([prompt + ids[:count] for prompt, ids in zip(prompts, drawn)], [ids[count:] for ids in drawn], **options)
        assert found == [logprobs[count:] for logprobs in wanted]
    _, found = model.generate([prompt + ids[:-1] for prompt, ids in zip(prompts, drawn)], tokens=1, return_selection=True, **options)
    assert all(map(np.array_equal, found, blocks))


def test_scheduler_and_nsa_generate_are_consistent(model):
    texts, options = ["documents do not end", "x"], {"tokens": 20, "seed": 5, "logprobs": 0}
    scheduler = nsa.Scheduler(model.checkpoint, slots=2, context=256, consistent=True)

    def run(prompts, **more):
        numbers = [scheduler.add(prompt, number=row, **options | more) for row, prompt in enumerate(prompts)]
        tokens = []
        while scheduler.running or scheduler.waiting:
            tokens += scheduler.step()
        return [[token for token in tokens if token.request == number] for number in numbers]
    made = run(texts)
    said = subprocess.run([BIN / "nsa-generate", model.checkpoint, *[word for text in texts for word in ("--prompt", text)], "--tokens", "20",
                           "--seed", "5", "--consistent"], check=True, capture_output=True).stdout
    assert said.decode(errors="replace") == "".join(f"=== {number}\n{''.join(token.text for token in own)}\n"
                                                    for number, own in enumerate(made, 1))
    prompt = [*texts[0].encode(), *[token.id for token in made[0]]]
    for count in range(20, len(prompt)):
        [[token]] = run([prompt[:count]], tokens=1, temperature=0, logprobs=255)
        assert made[0][count - 20].logprobs[0] in token.logprobs


def test_program_without_parts_is_not_consistent(model, tmp_path):
    message = "has no entry 'prefill_part', which computes consistent tokens: nsa-compile --prefill-chunk N makes it"
    whole = nsa.compile(nsa.model_text(CHECKPOINT), context=64, micro_batch=1)
    with pytest.raises(nsa.InputError, match=message):
        nsa.Scheduler(model.checkpoint, artifact=whole.artifact, consistent=True)
    whole.save(tmp_path / "whole.nsax")
    said = subprocess.run([BIN / "nsa-generate", model.checkpoint, "--artifact", tmp_path / "whole.nsax", "--prompt", "a", "--tokens", "2",
                           "--consistent"], capture_output=True, text=True)
    assert said.returncode and message in said.stderr
