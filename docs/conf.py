"""Settings of the documentation site. `make docs` builds it into `runs/docs`."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "site"))

project = "tirjudge"
author = "The tirjudge developers"
project_copyright = author
version = release = version_of("tirjudge")

extensions = ["myst_parser", "sphinx.ext.autodoc", "generated"]
exclude_patterns = ["site"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nitpicky = False
# Code blocks of examples are not always complete programs or valid JSON: they have `...`.
suppress_warnings = ["misc.highlighting_failure"]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_default_options = {"members": True, "undoc-members": False, "exclude-members": "model_config"}

html_theme = "furo"
html_title = f"tirjudge {release}"
html_copy_source = False
html_show_sphinx = False
linkcheck_ignore = [r"http://127\.0\.0\.1.*", r"http://localhost.*", r"http://gpu-\d.*", r"http://cpu-\d.*"]
