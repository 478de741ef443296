"""Generated items: prompts whose instructions a program can check, responses to order, and what is right about them."""
