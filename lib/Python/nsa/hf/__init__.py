"""Export of models to transformers, and import.

    nsa-export runs/small --hf folder                        (or python -m nsa.hf export)
    nsa-import folder -o runs/again                          (or python -m nsa.hf import)

See docs/hugging-face.md.
"""

from nsa.hf._attention import register_attention
from nsa.hf._export import export
from nsa.hf._import import import_model

__all__ = ["export", "import_model", "register_attention"]
