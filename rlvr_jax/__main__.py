"""``python -m rlvr_jax`` is the command ``rlvr-jax``."""

import sys

from rlvr_jax.cli import main

if __name__ == "__main__":
    sys.exit(main())
