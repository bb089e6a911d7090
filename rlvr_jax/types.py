"""The values that cross module borders, and the letters in which shapes are written.

Shape letters, used everywhere: ``P`` prompts, ``M`` answers per prompt, ``B`` prompts per step (the batch), ``G``
samples per prompt (the group), ``K`` classes of a group's samples, ``C`` lanes (cells that share a seed's draws),
``W`` seeds side by side in one row of lanes, ``L = C * W`` lanes in all, ``S`` seeds, ``T`` training steps, ``E``
evaluations.
"""


class InvalidInput(ValueError):
    """A value that a user gave cannot be used; the message is one sentence that names it and says what is allowed."""
