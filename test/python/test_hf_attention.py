"""Dense models of transformers with attn_implementation="nsa", against eager attention."""

import pytest

import nsa
from hf_models import need_transformers
from nsa.hf import register_attention
from test_hf_families import SHAPE

FAMILIES = [("Llama", {}), ("Mistral", {"sliding_window": 9}), ("Qwen2", {"use_sliding_window": True, "sliding_window": 9,
                                                                         "max_window_layers": 2})]


def make(kind, options):
    """(the model with nsa's attention, the same with eager attention)"""
    torch, transformers = need_transformers()
    register_attention()
    models = []
    for implementation in ("nsa", "eager"):
        torch.manual_seed(0)
        config = getattr(transformers, kind + "Config")(**{**SHAPE, **options})
        models.append(getattr(transformers, kind + "ForCausalLM")._from_config(config, attn_implementation=implementation))
    return models


def draw(*shape):
    torch, _ = need_transformers()
    return torch.randint(3, 64, shape, generator=torch.Generator().manual_seed(3))


@pytest.fixture(scope="module")
def llama():
    return make("Llama", {})


@pytest.mark.parametrize("kind,options", FAMILIES)
def test_logits_and_gradients_are_those_of_eager_attention(kind, options):
    torch, _ = need_transformers()
    models, ids = make(kind, options), draw(2, 50)
    mask = torch.ones_like(ids)
    found, expected = (model(ids, attention_mask=mask, labels=ids) for model in models)
    torch.testing.assert_close(found.logits, expected.logits, atol=1e-4, rtol=0)
    for output in (found, expected):
        output.loss.backward()
    for (name, parameter), other in zip(models[0].named_parameters(), models[1].parameters()):
        torch.testing.assert_close(parameter.grad, other.grad, atol=1e-4, rtol=1e-4, msg=name)


@pytest.mark.parametrize("kind,options", FAMILIES[:2])
def test_generation_with_a_cache_is_that_of_eager_attention(kind, options):
    found, expected = (model.generate(draw(2, 20), max_new_tokens=12, do_sample=False, eos_token_id=None)
                       for model in make(kind, options))
    assert found.tolist() == expected.tolist()


def test_packed_row_is_its_documents_alone(llama):
    torch, transformers = need_transformers()
    documents = draw(60).split([37, 1, 22])
    batch = transformers.DataCollatorWithFlattening(return_flash_attn_kwargs=True)([{"input_ids": ids} for ids in documents])
    with torch.no_grad():
        found = llama[0](**batch, use_cache=False).logits[0]
        expected = torch.cat([llama[1](ids[None]).logits[0] for ids in documents])
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("change,message", [
    (lambda ids: {"attention_mask": (ids != ids[0, 0]).long()}, "padding .attention_mask leaves tokens out"),
    (lambda ids: {"attention_mask": ids.new_ones(2, 1, 50, 50).bool()}, "a mask of the model's or user's own"),
    (lambda ids: {"position_ids": (ids * 0 + 1).cumsum(1) % 30, "use_cache": False},
     "several sequences in a row without cu_seq_lens_q"),
    (lambda ids: {"softcap": 30.0}, "does not support softcap"),
    (lambda ids: {"is_causal": False}, "attention that is not causal"),
])
def test_what_kernels_have_not_is_named(llama, change, message):
    ids = draw(2, 50)
    with pytest.raises(nsa.InputError, match=message):
        llama[0](ids, **change(ids))


def test_static_cache_is_named(llama):
    with pytest.raises(nsa.InputError, match="a static cache"):
        llama[0].generate(draw(2, 5), max_new_tokens=2, cache_implementation="static")


def test_dropout_and_chunks_are_named():
    _, transformers = need_transformers()
    model = make("Llama", {"attention_dropout": 0.1})[0].train()
    with pytest.raises(nsa.InputError, match="dropout .0.1"):
        model(draw(1, 20))
    config = transformers.Llama4TextConfig(**{**SHAPE, "intermediate_size_mlp": 48, "head_dim": 8, "num_local_experts": 2,
                                              "attention_chunk_size": 8})
    model = transformers.Llama4ForCausalLM._from_config(config, attn_implementation="nsa")
    with pytest.raises(nsa.InputError, match="a mask of 8 tokens in a layer with sliding_window None"):
        model(draw(1, 20))
