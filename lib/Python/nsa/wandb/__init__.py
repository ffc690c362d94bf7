"""Follows the directory of a run of nsa-train and logs its records to Weights & Biases.

    python -m nsa.wandb runs/small --project sparse

The package wandb is needed (`pip install nsa[wandb]`); nsa-train knows nothing of it.
"""

from nsa.wandb._follow import follow

__all__ = ["follow"]
