"""The judge over HTTP, the mini worker, and the commands that start them."""
