"""HTML pages for people: templates, their styles and script, and what is computed for display.

The server renders the templates for a browser, and `tirjudge show` renders them to files. Jinja2 escapes every
text that a template inserts. `untrusted` prepares texts of requests, models and programs.
"""

from tirjudge_pages.environment import NavLink, PageFrame, asset, asset_names, render_page
from tirjudge_pages.policy import FILE_POLICY, PAGE_HEADERS

__all__ = ["FILE_POLICY", "PAGE_HEADERS", "NavLink", "PageFrame", "asset", "asset_names", "render_page"]
