"""Fill the pages of runs (`tirjudge_pages.bench`): the index of a run, the comparison of two runs, and static pages."""
