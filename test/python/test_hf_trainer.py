"""What trainers ask of an exported model, against plain forms of it."""

import numpy as np
import pytest

import nsa
from hf_models import load, need_transformers, train_and_load
from nsa.hf import import_model

LENGTHS = [37, 1, 50, 12]
SETTINGS = [
    ["nsa.shared_kv=true", "nsa.phi=linear", "nsa.l=8", "nsa.n_sel=5"],
    ["model.n_layers=3", "model.layers=dense, window:9, nsa", "nsa.phi=mlp", "nsa.phi_pos=true", "model.qk_norm=true"],
]


@pytest.fixture(scope="module", params=range(len(SETTINGS)))
def model(request, tmp_path_factory):
    need_transformers()
    return train_and_load(tmp_path_factory.mktemp("hf"), SETTINGS[request.param])


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    need_transformers()
    return train_and_load(tmp_path_factory.mktemp("hf"))


def draw(*shape):
    torch, _ = need_transformers()
    return torch.randint(1, 256, shape, generator=torch.Generator().manual_seed(3))


def alone(model, documents):
    """(logits, last hidden states, summed loss) of each document by itself."""
    torch, _ = need_transformers()
    found = []
    with torch.no_grad():
        for ids in documents:
            output = model(ids[None], output_hidden_states=True)
            loss = torch.nn.functional.cross_entropy(output.logits[0, :-1], ids[1:], reduction="sum")
            found.append((output.logits[0], output.hidden_states[-1][0], loss))
    return found


def close(found, expected):
    need_transformers()[0].testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_packed_flattened_row_documents_as_if_alone(model):
    torch, transformers = need_transformers()
    documents = draw(sum(LENGTHS)).split(LENGTHS)
    collate = transformers.DataCollatorWithFlattening(return_flash_attn_kwargs=True)
    batch = collate([{"input_ids": ids} for ids in documents])
    expected = alone(model, documents)
    by_ends = {key: batch[key] for key in ("input_ids", "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")}
    by_positions = {key: batch[key] for key in ("input_ids", "position_ids")}
    with torch.no_grad():
        for inputs in (batch, {**by_ends, "labels": batch["input_ids"]}, {**by_positions, "labels": batch["labels"]}):
            found = model(**inputs, output_hidden_states=True)
            close(found.logits[0], torch.cat([logits for logits, _, _ in expected]))
            close(found.hidden_states[-1][0], torch.cat([states for _, states, _ in expected]))
            # First tokens of documents have no loss, whether labels say so or not.
            targets = sum(LENGTHS) - len(LENGTHS)
            close(found.loss, sum(loss for _, _, loss in expected) / targets)


def test_packed_rows_with_padding_documents_as_if_alone(model):
    torch, _ = need_transformers()
    ids, mask = draw(2, 70), torch.ones(2, 70, dtype=torch.long)
    mask[0, 60:], mask[1, :20] = 0, 0
    positions = torch.zeros(2, 70, dtype=torch.long)
    documents = [(0, 0, 13), (0, 13, 60), (1, 20, 70)]
    for row, begin, end in documents:
        positions[row, begin:end] = torch.arange(end - begin)
    expected = alone(model, [ids[row, begin:end] for row, begin, end in documents])
    with torch.no_grad():
        found = model(ids, attention_mask=mask, position_ids=positions, labels=ids)
    for (row, begin, end), (logits, _, _) in zip(documents, expected):
        close(found.logits[row, begin:end], logits)
    targets = sum(end - begin - 1 for _, begin, end in documents)
    close(found.loss, sum(loss for _, _, loss in expected) / targets)


def test_packed_row_gradient_is_sum_of_documents(model):
    torch, _ = need_transformers()
    documents = draw(sum(LENGTHS)).split(LENGTHS)
    positions = torch.cat([torch.arange(n) for n in LENGTHS])[None]
    weights = list(model.parameters())
    expected = [torch.zeros_like(weight) for weight in weights]
    for ids in documents:
        loss = model(ids[None], labels=ids[None], num_items_in_batch=10).loss
        for total, part in zip(expected, torch.autograd.grad(loss, weights)):
            total += part
    row = torch.cat(documents)[None]
    loss = model(row, labels=row, position_ids=positions, num_items_in_batch=10).loss
    for found, total in zip(torch.autograd.grad(loss, weights), expected):
        assert (found - total).abs().max() <= 2e-5 * total.abs().max()


@pytest.mark.parametrize("keywords,kind,message", [
    (lambda t: {"posiion_ids": t}, TypeError, "posiion_ids"),
    (lambda t: {"token_type_ids": t}, TypeError, "token_type_ids"),
    (lambda t: {"seq_idx": t}, TypeError, "seq_idx"),
    (lambda t: {"output_attentions": True}, ValueError, "output_attentions is not supported"),
    (lambda t: {"inputs_embeds": t}, ValueError, "one of input_ids and inputs_embeds"),
    (lambda t: {"position_ids": t[0]}, ValueError, r"position_ids has shape \(6,\), expected \(2, 6\)"),
    (lambda t: {"position_ids": t + 3}, ValueError, "position_ids is 3 at token 0 of row 0, expected one more than before it"),
    (lambda t: {"position_ids": 2 * t}, ValueError, "position_ids is 2 at token 1 of row 0"),
    (lambda t: {"position_ids": t % 3, "use_cache": True}, ValueError, "use_cache with position_ids that begin again"),
    (lambda t: {"attention_mask": t // 2}, ValueError, "attention_mask has other numbers than 0 and 1"),
    (lambda t: {"attention_mask": t[:1] * 0 + 1}, ValueError, r"attention_mask has shape \(1, 6\)"),
    (lambda t: {"cu_seq_lens_q": t[0, :2]}, ValueError, "cu_seq_lens_q and cu_seq_lens_k differ, or one is missing"),
    (lambda t: {"cu_seq_lens_q": t[0], "cu_seq_lens_k": t[0]}, ValueError, "cu_seq_lens_q is given for 2 rows"),
    (lambda t: {"max_length_q": 6}, ValueError, "max_length_q is 6, less than the longest document, or there are no cu_seq_lens_q"),
    (lambda t: {"position_ids": t, "max_length_k": 5}, ValueError, "max_length_k is 5, less than the longest document"),
    (lambda t: {"labels": t, "logits_to_keep": 2}, ValueError, r"labels has shape \(2, 6\), expected \(2, 2\)"),
])
def test_keyword_not_supported_is_named(plain, keywords, kind, message):
    torch, _ = need_transformers()
    tokens = torch.arange(6).expand(2, 6)
    with pytest.raises(kind, match=message):
        plain(tokens, **keywords(tokens))


@pytest.mark.parametrize("ends,message", [
    ([1, 6], r"cu_seq_lens_q is \[1, 6\], expected 0, then where each document ends, up to the 6 tokens"),
    ([0, 4, 2, 6], "expected 0, then where each document ends"),
    ([0, 5], "up to the 6 tokens"),
    ([0], r"cu_seq_lens_q is \[0\], expected 0"),
    ([], r"cu_seq_lens_q is \[\], expected 0"),
    ([0, 3, 6], "position_ids and cu_seq_lens_q name different documents"),
])
def test_ends_of_documents_that_contradict_are_errors(plain, ends, message):
    torch, _ = need_transformers()
    ends, tokens = torch.tensor(ends, dtype=torch.int32), torch.arange(6)[None]
    with pytest.raises(ValueError, match=message):
        plain(tokens, position_ids=tokens, cu_seq_lens_q=ends, cu_seq_lens_k=ends)


def test_generate_packed_prompt_is_an_error(plain):
    ids = draw(1, 6)
    for use_cache in (True, False):
        with pytest.raises(ValueError, match="position_ids of generate are not 0, 1, ... in each row"):
            plain.generate(ids, position_ids=need_transformers()[0].arange(6)[None] % 3, use_cache=use_cache)
    with pytest.raises(ValueError, match="posiion"):
        plain.generate(ids, posiion_ids=ids)


def test_generate_from_embeddings_is_that_of_ids(model):
    torch, _ = need_transformers()
    ids, mask = draw(2, 20), torch.ones(2, 20, dtype=torch.long)
    mask[1, :7] = 0
    options = {"max_new_tokens": 9, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    embeds = model.get_input_embeddings()(ids)
    close(model(inputs_embeds=embeds).logits, model(ids).logits)
    expected = model.generate(ids, attention_mask=mask, **options)
    assert (model.generate(inputs_embeds=embeds, attention_mask=mask, **options) == expected[:, 20:]).all()


def test_hidden_states_are_what_layers_begin_and_end_with(model):
    torch, _ = need_transformers()
    ids = draw(2, 30)
    with torch.no_grad():
        found = model(ids, output_hidden_states=True)
        x, plain = model.embedding(ids), []
        for layer in model.layers:
            plain.append(x)
            x = layer(x, model._rotary(layer, 30, ids.device))
        for state, expected in zip(found.hidden_states, [*plain, model.norm(x)], strict=True):
            close(state, expected)
        assert model(ids).hidden_states is None
        step = model(ids[:, :20], use_cache=True)
        step = model(ids[:, 20:], past_key_values=step.past_key_values, output_hidden_states=True)
        for state, expected in zip(step.hidden_states, found.hidden_states, strict=True):
            torch.testing.assert_close(state, expected[:, 20:], atol=1e-4, rtol=0)


def test_selections_of_layers_are_results_and_are_replayed(model):
    torch, _ = need_transformers()
    ids = draw(2, 30)
    with torch.no_grad():
        found, usual = model(ids, output_selections=True), model(ids)
        assert torch.equal(found.logits, usual.logits) and usual.selections is None
        nsa, blocks = model.config.nsa, [each for each in found.selections if each is not None]
        assert blocks and all(each.shape == (2, model.config.num_key_value_heads, 30, nsa["n_sel"]) for each in blocks)
        assert torch.equal(model(ids, selections=found.selections).logits, usual.logits)
        begin, end = ids[:, :20], ids[:, 20:]
        step = model(begin, use_cache=True, output_selections=True)
        later = model(end, past_key_values=step.past_key_values, output_selections=True)
        for first, second, each in zip(step.selections, later.selections, found.selections):
            assert each is None or torch.equal(torch.cat([first, second], 2), each)
        # Their own block alone.
        other = torch.full_like(blocks[0], -1)
        other[..., 0] = torch.arange(30) // nsa["l_sel"]
        others = [each if each is None else other for each in found.selections]
        changed = model(ids, selections=others)
        assert not torch.equal(changed.logits, usual.logits)
        step = model(begin, use_cache=True, selections=[each if each is None else each[:, :, :20] for each in others])
        later = model(end, past_key_values=step.past_key_values,
                      selections=[each if each is None else each[:, :, 20:] for each in others])
        close(later.logits, changed.logits[:, 20:])
        for wrong, message in (({"selections": []}, "selections are of 0 layers, expected"),
                               ({"output_selections": True, "position_ids": torch.arange(30)[None] % 15}, "without padding")):
            with pytest.raises(ValueError, match=message):
                model(ids, **wrong)


def test_labels_and_forms_of_results(plain):
    torch, _ = need_transformers()
    ids = draw(2, 30)
    labels = ids.clone()
    labels[0, 5:9], labels[1, 20:] = -100, -100
    with torch.no_grad():
        whole = plain(ids, labels=labels)
        kept = labels[:, 1:] != -100
        loss = torch.nn.functional.cross_entropy(whole.logits[:, :-1][kept], ids[:, 1:][kept], reduction="sum")
        close(whole.loss, loss / kept.sum())
        close(plain(ids, labels=labels, num_items_in_batch=torch.tensor(50)).loss, loss / 50)
        close(plain(ids, logits_to_keep=3).logits, whole.logits[:, -3:])
        close(plain(ids, logits_to_keep=torch.tensor([4, 9])).logits, whole.logits[:, [4, 9]])
        found = plain(ids, labels=labels, return_dict=False)
        assert isinstance(found, tuple) and len(found) == 2
        close(found[1], whole.logits)
        # Padding has no targets, nor has what comes after it.
        mask = torch.ones_like(ids)
        mask[:, :4] = 0
        close(plain(ids, attention_mask=mask, labels=ids).loss, plain(ids[:, 4:], labels=ids[:, 4:]).loss)


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing_has_the_same_gradients(model, reentrant):
    torch, _ = need_transformers()
    ids = draw(2, 40)

    def gradients():
        model.zero_grad()
        model(ids, labels=ids, position_ids=torch.arange(40)[None] % 25).loss.backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    model.train()
    expected = gradients()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    calls = []
    handle = model.layers[0].attention.register_forward_hook(lambda *_: calls.append(1))
    try:
        if reentrant:
            model.enable_input_require_grads()
        for found, plain in zip(gradients(), expected):
            assert torch.equal(found, plain)
        assert len(calls) == 2
        with pytest.raises(ValueError, match="use_cache and past_key_values are not supported with gradient checkpointing"):
            model(ids, use_cache=True)
    finally:
        handle.remove()
        model.gradient_checkpointing_disable()
        if reentrant:
            model.disable_input_require_grads()
        model.eval()
        model.zero_grad(set_to_none=True)


@pytest.mark.parametrize("settings", [[], ["model.tied_embeddings=true"]])
def test_resized_vocabulary_is_saved_and_imported(tmp_path, settings):
    torch, _ = need_transformers()
    model = train_and_load(tmp_path, settings)
    ids = draw(1, 30)
    with torch.no_grad():
        expected = model(ids).logits
        model.resize_token_embeddings(260)
        logits = model(ids, labels=ids + 4).logits
        assert logits.shape == (1, 30, 260)
        close(logits[..., :256], expected)
        model.save_pretrained(tmp_path / "saved")
        close(load(tmp_path / "saved")(ids).logits, logits)
    again = nsa.Model(import_model(tmp_path / "saved", tmp_path / "again"))
    np.testing.assert_allclose(again.logits(ids.numpy()), logits.numpy(), atol=1e-4)


def test_trainer_loss_is_that_of_documents_alone(tmp_path):
    torch, transformers = need_transformers()
    pytest.importorskip("accelerate")
    model = train_and_load(tmp_path)
    documents = [{"input_ids": ids.tolist()} for ids in draw(4 * 20).split(20)]
    expected = sum(loss for _, _, loss in alone(model, draw(4 * 20).split(20))) / (4 * 19)
    arguments = transformers.TrainingArguments(str(tmp_path / "out"), per_device_train_batch_size=2, max_steps=1,
                                               gradient_accumulation_steps=2, gradient_checkpointing=True, use_cpu=True,
                                               logging_steps=1, report_to=[], save_strategy="no", max_grad_norm=0,
                                               learning_rate=1e-3)
    trainer = transformers.Trainer(model, arguments, train_dataset=documents,
                                   data_collator=transformers.DataCollatorWithFlattening())
    before = [parameter.clone() for parameter in model.parameters()]
    assert abs(trainer.train().training_loss - float(expected)) < 1e-4
    assert all((parameter != old).any() for parameter, old in zip(model.parameters(), before) if old.dim() > 1)
