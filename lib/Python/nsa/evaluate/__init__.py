"""What a checkpoint has learnt: losses, probes and multiple choice.

    nsa-eval runs/small --data shards                        (or python -m nsa.evaluate)

    scorer = nsa.evaluate.Scorer("runs/small")
    print(nsa.evaluate.loss(scorer, shards="shards")["loss"])
    print(nsa.evaluate.needle(scorer)["accuracy"])

See docs/evaluate.md.
"""

from nsa.evaluate._choices import choices
from nsa.evaluate._loss import loss
from nsa.evaluate._probes import copying, needle, recall
from nsa.evaluate._scores import Scorer

__all__ = ["Scorer", "choices", "copying", "loss", "needle", "recall"]
