# The models of transformers that this project uses. The original imports all of them for type checkers: 3,000 files.
from .auto import *  # noqa: F403
from .qwen3 import *  # noqa: F403
