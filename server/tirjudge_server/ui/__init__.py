"""The pages of the server: access of readers, and the routes that render templates of `tirjudge_pages`."""

from tirjudge_server.ui.site import PageSite, Viewer, is_page

__all__ = ["PageSite", "Viewer", "is_page"]
