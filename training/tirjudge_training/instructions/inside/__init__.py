"""Parts of the judge's programs that are too long for one line of Python. They are never imported in a program: their text
is in it (`helpers.SOURCES`), from the line `# Program` on."""
