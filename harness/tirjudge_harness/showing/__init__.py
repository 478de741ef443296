"""Print judgments with their texts, programs and outputs: `tirjudge show`, and `tirjudge judge` on one request."""
