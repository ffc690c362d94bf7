"""What a model of transformers has beside its weights, from nsa-import to nsa-export."""

import fnmatch
import json
import math
import os

from nsa._files import open_file
from nsa._runtime import InputError

#: Of a run directory, where nsa-import puts these files.
FOLDER = "hf"

# Those of the tokenizer go with its tokens.
_TOKENIZER = ["tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
              "chat_template.json", "generation_config.json"]
_LICENCE = ["LICENSE*", "LICENCE*", "NOTICE*", "USE_POLICY*"]

_TITLE = "# A model of nsa-train"
_CARD = """---
library_name: transformers
pipeline_tag: text-generation
{licence}---

{title}

{kind}, {parameters:,} parameters, of step {step}.

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("FOLDER"{trust})
tokenizer = AutoTokenizer.from_pretrained("FOLDER")
tokens = tokenizer("The ", return_tensors="pt")
print(tokenizer.decode(model.generate(**tokens, max_new_tokens=20)[0]))
```

{needs}
| | |
|---|---|
{facts}

## Configuration

```yaml
{config}```
"""


def _read(path):
    try:
        with open_file(path) as file:
            return file.read()
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror}") from error


def _matching(folder, patterns):
    """{file: contents}"""
    names = sorted(name for name in os.listdir(folder) if any(fnmatch.fnmatchcase(name, each) for each in patterns))
    return {name: _read(os.path.join(folder, name)) for name in names if os.path.isfile(os.path.join(folder, name))}


def files_to_keep(folder, tokenizer):
    """{file: contents} of a folder of transformers that go with a checkpoint, and its tokenizer.json."""
    return _matching(folder, [*_TOKENIZER, *_LICENCE]) | ({"tokenizer.json": tokenizer} if tokenizer else {})


def _read_state(checkpoint):
    try:
        return json.loads(_read(os.path.join(checkpoint, "state.json")))
    except (InputError, ValueError):
        return {}


def find_origin(checkpoint):
    """The folder with those files, of the run of a checkpoint or of those that it began with; None if there is none."""
    seen = set()
    while checkpoint and checkpoint not in seen:
        seen.add(checkpoint)
        folder = os.path.join(os.path.dirname(os.path.dirname(checkpoint)), FOLDER)
        if os.path.isdir(folder):
            return folder
        checkpoint = os.path.dirname((_read_state(checkpoint).get("init_from") or {}).get("path", ""))
    return None


def origin_files(origin, tokenizer):
    """The files that an export has from its origin: without those of the tokenizer where it is another one now."""
    if origin is None:
        return {}
    files = _matching(origin, _LICENCE)
    same = os.path.join(origin, "tokenizer.json")
    if tokenizer and os.path.isfile(same) and _read(same) == tokenizer:
        files |= _matching(origin, _TOKENIZER)
    return files


def has_other_card(folder):
    """Whether there is a README.md that write_card has not written."""
    path = os.path.join(folder, "README.md")
    return os.path.lexists(path) and (not os.path.isfile(path) or _TITLE.encode() not in _read(path))


def write_card(weights, described, files):
    """README.md: what the model is, of which data, and how it is used."""
    licence = next((name for name in files if name.upper().startswith(("LICENSE", "LICENCE"))), None)
    is_own = described["model_type"] == "nsa"
    facts = _read_state(weights.path)
    rows = [f"| {key} | {facts.get(key)} |" for key in ("config_hash", "data_digest")]
    count = sum(math.prod(shape) for _, shape in weights.tensors.values())
    return _CARD.format(title=_TITLE, licence=f"license: other\nlicense_link: {licence}\n" if licence else "",
                        kind="Native Sparse Attention" if is_own else f"A {described['model_type']}", parameters=count,
                        step=weights.step, trust=", trust_remote_code=True" if is_own else "",
                        needs="It needs PyTorch, transformers and the package nsa.\n" if is_own else "",
                        facts="\n".join(rows), config=weights.config)
