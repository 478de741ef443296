"""Records of judgments: stored before the answer, chained by hashes, erasable field by field."""
